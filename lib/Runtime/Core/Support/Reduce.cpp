//===- Reduce.cpp - Reductions in rank order --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One implementation for all backends, so that their results are equal bit for bit: inputs are taken in the order
// given, element by element, in blocks that stay in the cache. f16 and bf16 accumulate in f32 and are rounded once, to
// nearest even. Compiled without contraction of multiply and add.
//
//===------------------------------------------------------------------------------------------===//

#include "Reduce.h"
#include "Formats.h"
#include <algorithm>
#include <cstring>
#include <type_traits>

using namespace commsched::runtime;

namespace {
/// Integers wrap: arithmetic is unsigned.
template <typename A> A add(A a, A b) {
  if constexpr (std::is_floating_point_v<A>)
    return a + b;
  else
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <typename A> A multiply(A a, A b) {
  if constexpr (std::is_floating_point_v<A>)
    return a * b;
  else
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

constexpr int64_t blockElements = 1024;

template <typename T>
int32_t reduceAs(const Reduction &how, const void *const *ins, int64_t numIns, void *const *outs, int64_t numOuts,
                 int64_t count) {
  using A = decltype(load(std::declval<T>()));
  constexpr bool isBool = std::is_same_v<T, Bool>;
  constexpr bool isFloat = std::is_floating_point_v<A>;
  int32_t op = how.op;
  if (isBool && op == COMMRT_SUM)
    op = COMMRT_MAX;
  if (isBool && op == COMMRT_PRODUCT)
    op = COMMRT_MIN;
  if ((isBool && op == COMMRT_AVG) || (!isFloat && op == COMMRT_SCALED_SUM))
    return COMMRT_ERR_UNSUPPORTED;
  A acc[blockElements];
  A scale = static_cast<A>(isFloat ? how.scale : 1.0);
  for (int64_t begin = 0; begin < count; begin += blockElements) {
    int64_t n = std::min(blockElements, count - begin);
    for (int64_t k = 0; k < numIns; ++k) {
      const T *in = static_cast<const T *>(ins[k]) + begin;
      auto each = [&](auto combine) {
        for (int64_t i = 0; i < n; ++i)
          acc[i] = combine(acc[i], load(in[i]));
      };
      if (op == COMMRT_SCALED_SUM && k == 0)
        each([&](A, A b) { return multiply(b, scale); });
      else if (k == 0)
        each([](A, A b) { return b; });
      else if (op == COMMRT_SUM || op == COMMRT_AVG)
        each([](A a, A b) { return add(a, b); });
      else if (op == COMMRT_SCALED_SUM)
        each([&](A a, A b) { return add(a, multiply(b, scale)); });
      else if (op == COMMRT_PRODUCT)
        each([](A a, A b) { return multiply(a, b); });
      else if (op == COMMRT_MIN)
        each([](A a, A b) { return b < a ? b : a; });
      else
        each([](A a, A b) { return a < b ? b : a; });
    }
    if (op == COMMRT_AVG)
      for (int64_t i = 0; i < n; ++i)
        acc[i] = static_cast<A>(acc[i] / static_cast<A>(numIns));
    for (int64_t k = 0; k < numOuts; ++k) {
      T *out = static_cast<T *>(outs[k]) + begin;
      for (int64_t i = 0; i < n; ++i)
        store(acc[i], out[i]);
    }
  }
  return COMMRT_OK;
}
} // namespace

bool commsched::runtime::isReducible(int32_t dtype, int32_t op) {
  if (dtype < COMMRT_F16 || dtype > COMMRT_I1 || op < COMMRT_SUM || op > COMMRT_SCALED_SUM)
    return false;
  if (op == COMMRT_SCALED_SUM)
    return dtype <= COMMRT_F64;
  return op != COMMRT_AVG || dtype != COMMRT_I1;
}

int32_t commsched::runtime::reduceInto(const Reduction &how, const void *const *ins, int64_t numIns, void *const *outs,
                                       int64_t numOuts, int64_t count) {
  if (count == 0 || numIns == 0)
    return COMMRT_OK;
  switch (how.dtype) {
  case COMMRT_F16:
    return reduceAs<Half>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_BF16:
    return reduceAs<BFloat>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_F32:
    return reduceAs<float>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_F64:
    return reduceAs<double>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_I8:
    return reduceAs<int8_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_I16:
    return reduceAs<int16_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_I32:
    return reduceAs<int32_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_I64:
    return reduceAs<int64_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_U8:
    return reduceAs<uint8_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_U16:
    return reduceAs<uint16_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_U32:
    return reduceAs<uint32_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_U64:
    return reduceAs<uint64_t>(how, ins, numIns, outs, numOuts, count);
  case COMMRT_I1:
    return reduceAs<Bool>(how, ins, numIns, outs, numOuts, count);
  default:
    return COMMRT_ERR_UNSUPPORTED;
  }
}

int32_t commrt_reduce_local(int32_t dtype, int32_t reduction, double scale, int64_t numInputs, const void *const *ins,
                            void *out, int64_t count) {
  if (!isReducible(dtype, reduction) || numInputs < 1 || count < 0 || !ins || (count && !out))
    return COMMRT_ERR_INVALID;
  return reduceInto({dtype, reduction, scale}, ins, numInputs, &out, 1, count);
}
