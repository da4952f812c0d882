//===- Names.cpp - Words for codes, and one-line descriptions ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The names of statuses, kinds, types and reductions, and how a collective reads in a message.
//
//===------------------------------------------------------------------------------------------===//

#include "Core.h"

using namespace commsched::runtime;

template <size_t n> static const char *pick(const char *const (&names)[n], int32_t index) {
  return index >= 0 && static_cast<size_t>(index) < n ? names[index] : "?";
}

static constexpr const char *dtypeNames[] = {"f16", "bf16", "f32", "f64", "i8",  "i16", "i32",
                                             "i64", "u8",   "u16", "u32", "u64", "i1"};
static_assert(std::size(dtypeNames) == COMMRT_I1 + 1, "expected one name per element type");

const char *commrt_status_name(int32_t status) {
  static constexpr const char *names[] = {"ok",      "invalid argument", "mismatch",  "timeout",     "peer lost",
                                          "aborted", "backend failure",  "no memory", "unsupported", "injected fault"};
  static_assert(std::size(names) == COMMRT_ERR_INJECTED + 1, "expected one name per status");
  return pick(names, status);
}

const char *commrt_kind_name(int32_t kind) {
  static constexpr const char *names[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                          "broadcast",  "reduce",         "gather",     "scatter",
                                          "permute",    "send",           "recv",       "barrier"};
  static_assert(std::size(names) == COMMRT_BARRIER + 1, "expected one name per kind");
  return pick(names, kind);
}

const char *commrt_dtype_name(int32_t dtype) { return pick(dtypeNames, dtype); }

const char *commrt_reduction_name(int32_t reduction) {
  static constexpr const char *names[] = {"sum", "product", "min", "max", "avg", "scaled_sum"};
  static_assert(std::size(names) == COMMRT_SCALED_SUM + 1, "expected one name per reduction");
  return pick(names, reduction);
}

int64_t commrt_dtype_size(int32_t dtype) {
  static constexpr int64_t sizes[] = {2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
  static_assert(std::size(sizes) == COMMRT_I1 + 1, "expected one size per element type");
  return dtype >= 0 && dtype <= COMMRT_I1 ? sizes[dtype] : 0;
}

static std::string describe(int32_t kind, int32_t dtype, int64_t count, const char *group) {
  std::string text = commrt_kind_name(kind);
  if (kind != COMMRT_BARRIER) {
    text += " of " + (count < 0 ? std::string("?") : std::to_string(count));
    if (dtype >= 0)
      text += std::string(" x ") + commrt_dtype_name(dtype);
  }
  if (group && *group)
    text += std::string(" on @") + group;
  return text;
}

std::string commsched::runtime::describeWork(const commrt_work &work) {
  std::string text = describe(work.kind, work.dtype, work.send_counts ? -1 : work.count, work.group);
  if (work.kind == COMMRT_SEND || work.kind == COMMRT_RECV)
    text += (work.kind == COMMRT_SEND ? " to member " : " from member ") + std::to_string(work.peer) +
            (work.tag ? " tag " + std::to_string(work.tag) : "");
  if (work.kind == COMMRT_BROADCAST || work.kind == COMMRT_REDUCE || work.kind == COMMRT_GATHER ||
      work.kind == COMMRT_SCATTER)
    text += " with root " + std::to_string(work.root);
  if (work.kind <= COMMRT_REDUCE &&
      (work.kind == COMMRT_REDUCE_SCATTER || work.kind == COMMRT_ALL_REDUCE || work.kind == COMMRT_REDUCE))
    text += std::string(" by ") + commrt_reduction_name(work.reduction);
  if (work.one_shot)
    text += " in one shot";
  if (work.site >= 0 || work.location) {
    text += " (";
    if (work.site >= 0)
      text += "site " + std::to_string(work.site);
    if (work.location)
      text += std::string(work.site >= 0 ? ", " : "") + work.location;
    text += ")";
  }
  if (work.injected)
    text += " [altered by an injected fault]";
  return text;
}

std::string commsched::runtime::describeSite(const commrt_site &site) {
  std::string text = describe(site.kind, site.dtype, site.count, site.group);
  if (site.location && *site.location)
    text += std::string(" (") + site.location + ")";
  return text;
}
