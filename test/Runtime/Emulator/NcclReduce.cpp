//===- NcclReduce.cpp - Results of reductions for each rank -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops over the members' inputs. NCCL_EMU_ORDER=rank adds in the order of ranks, in single precision for the
// short types, and rounds once; =ring begins each rank's share at the next rank and rounds at every step, as a ring
// does.
//
//===------------------------------------------------------------------------------------------===//

#include "NcclComm.h"
#include "ShortFloats.h"
#include <cmath>
#include <cstring>

namespace emulator {
size_t sizeOf(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
  case ncclFloat8e4m3:
  case ncclFloat8e5m2:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  default:
    return 8;
  }
}

namespace {
/// How an element is stored (Raw) and what it is computed in (Value).
template <typename T> struct Plain {
  using Raw = T;
  using Value = T;
  static Value load(Raw raw) { return raw; }
  static Raw store(Value value) { return value; }
};

using E4M3 = Short<uint8_t, 4, 3, true>;
using E5M2 = Short<uint8_t, 5, 2, false>;

/// Integers are added without sign, so that overflow wraps.
template <typename V> V add(V a, V b) {
  if constexpr (std::is_integral_v<V>)
    return V(std::make_unsigned_t<V>(a) + std::make_unsigned_t<V>(b));
  else
    return a + b;
}
template <typename V> V multiply(V a, V b) {
  if constexpr (std::is_integral_v<V>)
    return V(uint64_t(std::make_unsigned_t<V>(a)) * uint64_t(std::make_unsigned_t<V>(b)));
  else
    return a * b;
}

template <typename F>
void reduce(char *to, const std::vector<const char *> &inputs, size_t count, const Reduction &reduction, size_t first,
            bool isStepwise) {
  using Value = typename F::Value;
  using Raw = typename F::Raw;
  size_t ranks = inputs.size();
  // The factor is rounded to the element's type before it is used.
  Value factor = Value(reduction.scale);
  bool isScaled = reduction.op == ncclNumOps;
  if constexpr (std::is_floating_point_v<Value>) {
    if (reduction.op == ncclAvg) {
      isScaled = true;
      factor = Value(1) / Value(ranks);
    }
    if (isScaled)
      factor = F::load(F::store(factor));
  }
  for (size_t i = 0; i < count; ++i) {
    Value sum{};
    for (size_t step = 0; step < ranks; ++step) {
      Raw raw;
      memcpy(&raw, inputs[(first + step) % ranks] + i * sizeof(Raw), sizeof(Raw));
      Value value = F::load(raw);
      if (isScaled)
        value = multiply(value, factor);
      if (step == 0)
        sum = value;
      else if (reduction.op == ncclProd)
        sum = multiply(sum, value);
      else if (reduction.op == ncclMax)
        sum = sum < value ? value : sum;
      else if (reduction.op == ncclMin)
        sum = value < sum ? value : sum;
      else
        sum = add(sum, value);
      if (isStepwise)
        sum = F::load(F::store(sum));
    }
    if constexpr (std::is_integral_v<Value>)
      if (reduction.op == ncclAvg)
        sum = Value(sum / Value(ranks));
    Raw raw = F::store(sum);
    memcpy(to + i * sizeof(Raw), &raw, sizeof(Raw));
  }
}

/// Calls `run` with the format of the type.
template <typename F> auto withFormat(ncclDataType_t type, F run) {
  switch (type) {
  case ncclInt8:
    return run(Plain<int8_t>());
  case ncclUint8:
    return run(Plain<uint8_t>());
  case ncclInt32:
    return run(Plain<int32_t>());
  case ncclUint32:
    return run(Plain<uint32_t>());
  case ncclInt64:
    return run(Plain<int64_t>());
  case ncclUint64:
    return run(Plain<uint64_t>());
  case ncclFloat16:
    return run(Half());
  case ncclFloat32:
    return run(Plain<float>());
  case ncclFloat64:
    return run(Plain<double>());
  case ncclBfloat16:
    return run(Bfloat());
  case ncclFloat8e4m3:
    return run(E4M3());
  default:
    return run(E5M2());
  }
}

void reduceAs(ncclDataType_t type, char *to, const std::vector<const char *> &inputs, size_t count,
              const Reduction &reduction, size_t first, bool isStepwise) {
  withFormat(type, [&](auto format) { reduce<decltype(format)>(to, inputs, count, reduction, first, isStepwise); });
}

/// Where the operation can read that part of a member's input.
const char *input(const Call &call, size_t offset, size_t bytes) {
  return static_cast<const char *>(emulatorAccess(static_cast<const char *>(call.in) + offset, bytes, 0));
}

/// Reduces elements [begin, begin + count) of all inputs.
void reduceRange(Task &task, const std::vector<const Call *> &calls, size_t begin, size_t count) {
  static const bool isRing = optionText("NCCL_EMU_ORDER", "rank") == "ring";
  const Call &call = task.call;
  size_t size = sizeOf(call.type);
  std::vector<const char *> inputs;
  for (const Call *other : calls)
    inputs.push_back(input(*other, begin * size, count * size));
  task.temporary.resize(count * size);
  if (!isRing) {
    reduceAs(call.type, task.temporary.data(), inputs, count, call.reduction, 0, false);
    return;
  }
  // The shares of an all-reduce, or the one of a reduce-scatter.
  size_t ranks = calls.size();
  bool isScatter = call.kind == Kind::ReduceScatter;
  size_t share = isScatter ? count : (count + ranks - 1) / ranks;
  for (size_t at = 0, owner = isScatter ? size_t(task.rank) : 0; at < count; at += share, ++owner) {
    std::vector<const char *> parts;
    for (const char *one : inputs)
      parts.push_back(one + at * size);
    reduceAs(call.type, task.temporary.data() + at * size, parts, std::min(share, count - at), call.reduction,
             owner + 1, true);
  }
}

/// Concatenates `bytes` bytes at `offset` of every input.
void gather(Task &task, const std::vector<const Call *> &calls, size_t offset, size_t bytes) {
  task.temporary.resize(bytes * calls.size());
  for (size_t i = 0; i < calls.size(); ++i)
    memcpy(task.temporary.data() + i * bytes, input(*calls[i], offset, bytes), bytes);
}
} // namespace

double scalarOf(ncclDataType_t type, const void *value) {
  return withFormat(type, [&](auto format) {
    typename decltype(format)::Raw raw;
    memcpy(&raw, value, sizeof(raw));
    return double(decltype(format)::load(raw));
  });
}

size_t resultBytes(const Task &task) {
  size_t bytes = task.call.count * sizeOf(task.call.type);
  switch (task.call.kind) {
  case Kind::AllGather:
  case Kind::AllToAll:
    return bytes * size_t(task.shared->size);
  case Kind::Gather:
    return task.rank == task.call.peer ? bytes * size_t(task.shared->size) : 0;
  case Kind::Reduce:
    return task.rank == task.call.peer ? bytes : 0;
  case Kind::Send:
    return 0;
  default:
    return bytes;
  }
}

void compute(Task &task, const std::vector<const Call *> &calls) {
  const Call &call = task.call;
  size_t bytes = call.count * sizeOf(call.type);
  if (resultBytes(task) == 0)
    return;
  switch (call.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
    return reduceRange(task, calls, 0, call.count);
  case Kind::ReduceScatter:
    return reduceRange(task, calls, call.count * size_t(task.rank), call.count);
  case Kind::AllToAll:
  case Kind::Scatter:
    return gather(task, calls, bytes * size_t(task.rank), bytes);
  default: // all-gather, gather, broadcast, receive: whole inputs, one after another
    return gather(task, calls, 0, bytes);
  }
}
} // namespace emulator
