//===- NcclReduce.cpp - Reductions by NCCL and by the host ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// NCCL reduces in an order of its own, and rounds averages and scaled sums of 16-bit floats after each step. Where that
// differs from the definition by more than the order, and in exact mode always, the members exchange their inputs and
// a kernel reduces them in rank order, with the bits of every other backend. Without kernels the host does, in the
// order of the stream, which is slow.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Formats.h"
#include "Kernels/Device/Arguments.h"
#include "NcclPlan.h"
#include <cmath>
#include <cstring>

using namespace commsched::runtime;

static constexpr int ncclScalarHostImmediate = 1;

static bool isFloat(int32_t dtype) { return dtype <= COMMRT_F64; }
/// One rounding more is no more than what the order changes.
static bool isWide(int32_t dtype) { return dtype == COMMRT_F32 || dtype == COMMRT_F64; }

bool commsched::runtime::isExactScale(double scale, int32_t dtype) {
  int exponent = 0;
  double mantissa = std::frexp(std::fabs(scale), &exponent);
  // A power of two within the normal numbers of f16, the smallest type.
  if (mantissa == 0.5 && exponent > -13 && exponent < 15)
    return true;
  return isWide(dtype);
}

/// The bits of the scale in the element type.
static uint64_t bitsOfScale(double scale, int32_t dtype) {
  uint64_t bits = 0;
  auto take = [&](auto value) { std::memcpy(&bits, &value, sizeof(value)); };
  auto narrow = static_cast<float>(scale);
  if (dtype == COMMRT_F64) {
    take(scale);
  } else if (dtype == COMMRT_F32) {
    take(narrow);
  } else if (dtype == COMMRT_F16) {
    Half half;
    store(narrow, half);
    take(half);
  } else {
    BFloat brain;
    store(narrow, brain);
    take(brain);
  }
  return bits;
}

int Plan::operation() {
  bool isOrderless = !isFloat(work.dtype); // integers and booleans have the same bits in every order
  if (peer.job->exact && !isOrderless)
    return -1;
  if (work.reduction == COMMRT_AVG) {
    bool isPowerOfTwo = (n & (n - 1)) == 0;
    constexpr int ncclAvg = 4;
    return isWide(work.dtype) || (isPowerOfTwo && isFloat(work.dtype)) ? ncclAvg : -1;
  }
  if (work.reduction != COMMRT_SCALED_SUM)
    return ncclReductionOf(work.reduction, work.dtype);
  if (!isExactScale(work.scale, work.dtype))
    return -1;
  uint64_t bits = bitsOfScale(work.scale, work.dtype);
  auto [entry, isNew] = lane.scaled.try_emplace({type.number, bits}, -1);
  if (isNew)
    if (int result =
            nccl().redOpCreatePreMulSum(&entry->second, &bits, type.number, ncclScalarHostImmediate, lane.comm)) {
      lane.scaled.erase(entry);
      fail(COMMRT_ERR_BACKEND, peer.ncclError("ncclRedOpCreatePreMulSum", result, lane.comm));
      return -1;
    }
  return entry->second;
}

/// Runs in the order of the stream.
static void runReduction(void *opaque) {
  auto &how = *static_cast<HostReduction *>(opaque);
  commrt_reduce_local(how.how.dtype, how.how.reduction, how.how.scale, static_cast<int64_t>(how.ins.size()),
                      how.ins.data(), how.out, how.count);
}

bool Plan::reduceByKernel(Phase &in, const char *gathered, char *to, int64_t elements) {
  device::Members arguments = {gathered, to, elements, n, work.scale, work.dtype, work.reduction};
  return addKernel(in, "reduceMembers", &arguments, sizeof(arguments), elements);
}

void Plan::reduceOnHost(Phase &in, const char *gathered, char *to, int64_t elements) {
  int64_t bytes = elements * size;
  PinnedBlock inputs = pinned(n * bytes), output = pinned(bytes);
  if (status != COMMRT_OK)
    return;
  auto reduction = std::make_unique<HostReduction>();
  reduction->how = work;
  reduction->out = output.data;
  reduction->count = elements;
  for (int64_t member = 0; member < n; ++member)
    reduction->ins.push_back(inputs.data + member * bytes);
  copy(in, inputs.data, gathered, n * bytes, toHost);
  in.pieces.emplace_back(
      [this, how = reduction.get()] { return cuda().launchHostFunc(lane.stream, runReduction, how); });
  copy(in, to, output.data, bytes, toDevice);
  flight.reductions.push_back(std::move(reduction));
}

/// Each member reduces a part: of an all_reduce a shard, of a reduce_scatter its block, of a reduce the root all.
void Plan::reduceInOrder(const char *from) {
  bool isShared = work.kind == COMMRT_ALL_REDUCE, isScatter = work.kind == COMMRT_REDUCE_SCATTER;
  auto partOf = [&](int64_t member) {
    if (isShared)
      return shardBegin(member + 1) - shardBegin(member);
    return isScatter || work.root == member ? work.count : int64_t(0);
  };
  auto beginOf = [&](int64_t member) {
    return isShared ? shardBegin(member) : isScatter ? member * work.count : int64_t(0);
  };
  int64_t mine = partOf(me), bytes = mine * size;
  char *gathered = scratch(n * bytes);
  for (int64_t member = 0; member < n && status == COMMRT_OK; ++member) {
    if (member == me) {
      copy(phase(0), gathered + me * bytes, from + beginOf(me) * size, bytes);
      continue;
    }
    send(phase(0), from + beginOf(member) * size, partOf(member), member);
    receive(phase(0), gathered + member * bytes, mine, member);
  }
  Phase &after = phase(1);
  char *to = out() + (isShared ? beginOf(me) * size : 0);
  if (mine > 0 && status == COMMRT_OK && !reduceByKernel(after, gathered, to, mine) && status == COMMRT_OK)
    reduceOnHost(after, gathered, to, mine);
  if (isShared && status == COMMRT_OK)
    shareShards(after);
}

void Plan::shareShards(Phase &in) {
  for (int64_t member = 0; member < n; ++member) {
    if (member == me)
      continue;
    send(in, out() + shardBegin(me) * size, shardBegin(me + 1) - shardBegin(me), member);
    receive(in, out() + shardBegin(member) * size, shardBegin(member + 1) - shardBegin(member), member);
  }
}
