//===- RuntimeBench.cpp - Collectives timed through the runtime -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Buffers, groups of the first ranks, and one timed run.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/RuntimeBench.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>
#include <numeric>

using namespace commsched;

/// The tag of the messages that are timed.
static constexpr int64_t kTag = 0;

RuntimeBench::RuntimeBench(commrt_context *context) : context(context) {}
RuntimeBench::~RuntimeBench() { release(); }

int32_t RuntimeBench::rank() const { return commrt_rank(context); }
int32_t RuntimeBench::ranks() const { return commrt_ranks(context); }
Ns RuntimeBench::now() const { return commrt_clock_ns(context); }

llvm::Error RuntimeBench::lastError() const {
  char message[4096];
  int32_t status = commrt_last_error(context, message, sizeof(message));
  return llvm::createStringError(llvm::Twine(commrt_status_name(status)) + ": " + message);
}

std::optional<int32_t> commsched::runtimeType(ElementType element) {
  switch (element) {
  case ElementType::F64:
    return COMMRT_F64;
  case ElementType::F32:
  case ElementType::TF32:
    return COMMRT_F32;
  case ElementType::BF16:
    return COMMRT_BF16;
  case ElementType::F16:
    return COMMRT_F16;
  case ElementType::I64:
    return COMMRT_I64;
  case ElementType::I32:
    return COMMRT_I32;
  case ElementType::I16:
    return COMMRT_I16;
  case ElementType::I8:
    return COMMRT_I8;
  case ElementType::F8:
  case ElementType::F4:
  case ElementType::Other:
    return std::nullopt;
  }
  return std::nullopt;
}

/// How many blocks of `count` elements the bytes of a collective are.
static int64_t blocksOf(CollectiveKind kind, int64_t ranks) {
  switch (kind) {
  case CollectiveKind::AllGather:
  case CollectiveKind::Gather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Scatter:
  case CollectiveKind::AllToAll:
    return ranks;
  default:
    return 1;
  }
}

Bytes RuntimeBench::feasibleBytes(const CollectiveProbe &wanted) const {
  if (wanted.kind == CollectiveKind::Barrier)
    return 0;
  int64_t unit =
      blocksOf(wanted.kind, wanted.shape.ranks) * commrt_dtype_size(runtimeType(wanted.element).value_or(COMMRT_F32));
  return std::max<Bytes>(1, (wanted.bytes + unit / 2) / unit) * unit;
}

llvm::Expected<commrt_group *> RuntimeBench::groupOfFirst(int64_t members) {
  commrt_group *&found = groups[members];
  if (found)
    return found;
  std::vector<int64_t> ranks(members);
  std::iota(ranks.begin(), ranks.end(), 0);
  int64_t offsets[] = {0, members};
  std::string name = "first_" + std::to_string(members);
  if (commrt_group_create(context, name.c_str(), 1, offsets, ranks.data(), &found) != COMMRT_OK)
    return lastError();
  return found;
}

void RuntimeBench::release() {
  commrt_free(context, input);
  if (output != input)
    commrt_free(context, output);
  input = output = nullptr;
}

llvm::Error RuntimeBench::prepare(const CollectiveProbe &wanted) {
  release();
  probe = wanted;
  std::optional<int32_t> type = runtimeType(wanted.element);
  if (!type)
    return llvm::createStringError("the runtime has no element type " + stringify(wanted.element));
  dtype = *type;
  llvm::Expected<commrt_group *> made = groupOfFirst(wanted.shape.ranks);
  if (!made)
    return made.takeError();
  group = *made;
  int64_t blocks = blocksOf(wanted.kind, wanted.shape.ranks);
  count = wanted.bytes / blocks / commrt_dtype_size(dtype);
  // Each buffer has room for all blocks.
  Bytes bytes = count * blocks * commrt_dtype_size(dtype);
  if (commrt_group_rank(group) >= 0 && bytes > 0) {
    if (commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &input) != COMMRT_OK ||
        commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &output) != COMMRT_OK)
      return lastError();
    // No zeros: memory that was never written may share one page.
    std::memset(input, 1, bytes);
    std::memset(output, 1, bytes);
  }
  return llvm::Error::success();
}

int32_t RuntimeBench::start(commrt_token **token) {
  int32_t place = commrt_group_rank(group);
  switch (probe.kind) {
  case CollectiveKind::AllGather:
    return commrt_all_gather_start(group, input, output, 1, count, dtype, -1, token);
  case CollectiveKind::ReduceScatter:
    return commrt_reduce_scatter_start(group, input, output, 1, count, dtype, COMMRT_SUM, 1, -1, token);
  case CollectiveKind::AllReduce:
    return commrt_all_reduce_start(group, input, output, count, dtype, COMMRT_SUM, 1, -1, token);
  case CollectiveKind::AllToAll:
    return commrt_all_to_all_start(group, input, output, 1, 1, count, dtype, -1, token);
  case CollectiveKind::Broadcast:
    return commrt_broadcast_start(group, input, output, count, dtype, 0, -1, token);
  case CollectiveKind::Reduce:
    return commrt_reduce_start(group, input, output, count, dtype, COMMRT_SUM, 1, 0, -1, token);
  case CollectiveKind::Gather:
    return commrt_gather_start(group, input, output, 1, count, dtype, 0, -1, token);
  case CollectiveKind::Scatter:
    return commrt_scatter_start(group, input, output, 1, count, dtype, 0, -1, token);
  case CollectiveKind::Permute: {
    std::vector<int64_t> pairs;
    for (int64_t i = 0; i < probe.shape.ranks; ++i)
      pairs.insert(pairs.end(), {i, (i + 1) % probe.shape.ranks});
    return commrt_permute_start(group, input, output, count, dtype, pairs.data(), probe.shape.ranks, -1, token);
  }
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    // One message from the first member to the second; both sides see it.
    return place == 0 ? commrt_send_start(group, input, count, dtype, 1, kTag, -1, token)
                      : commrt_recv_start(group, output, count, dtype, 0, kTag, -1, token);
  case CollectiveKind::Barrier:
    return commrt_barrier_start(group, -1, token);
  }
  return COMMRT_ERR_UNSUPPORTED;
}

llvm::Expected<ProbeTime> RuntimeBench::run() {
  llvm::Expected<commrt_group *> all = groupOfFirst(ranks());
  if (!all)
    return all.takeError();
  commrt_token *token = nullptr;
  if (commrt_barrier_start(*all, -1, &token) != COMMRT_OK || commrt_wait_host(token, -1) != COMMRT_OK ||
      commrt_token_release(token) != COMMRT_OK)
    return lastError();
  if (commrt_group_rank(group) < 0)
    return ProbeTime();
  Ns begin = now();
  if (start(&token) != COMMRT_OK)
    return lastError();
  Ns issued = now();
  if (commrt_wait_host(token, -1) != COMMRT_OK)
    return lastError();
  Ns end = now();
  commrt_token_release(token);
  return ProbeTime{end - begin, issued - begin};
}

llvm::Expected<std::vector<std::vector<int64_t>>> RuntimeBench::gather(llvm::ArrayRef<int64_t> own) {
  llvm::Expected<commrt_group *> all = groupOfFirst(ranks());
  if (!all)
    return all.takeError();
  std::vector<int64_t> flat(own.size() * ranks());
  commrt_token *token = nullptr;
  if (commrt_all_gather_start(*all, own.data(), flat.data(), 1, static_cast<int64_t>(own.size()), COMMRT_I64, -1,
                              &token) != COMMRT_OK ||
      commrt_wait_host(token, -1) != COMMRT_OK || commrt_token_release(token) != COMMRT_OK)
    return lastError();
  std::vector<std::vector<int64_t>> result;
  for (int32_t rank = 0; rank < ranks(); ++rank)
    result.emplace_back(flat.begin() + rank * own.size(), flat.begin() + (rank + 1) * own.size());
  return result;
}
