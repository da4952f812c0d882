//===- Reduce.cpp - Reductions in rank order ----------------------------------------------------===//
//
// Part of the CommSched project, under the Apache License v2.0 with LLVM Exceptions.
//
// One implementation for all backends, so that their results are equal bit for bit: inputs are taken in the order
// given, element by element, in blocks that stay in the cache. f16 and bf16 accumulate in f32 and are rounded once, to
// nearest even. Compiled without contraction of multiply and add.
//
//===--------------------------------------------------------------------------------------------===//

#include "Reduce.h"
#include <algorithm>
#include <cstring>
#include <type_traits>

using namespace commsched::runtime;

namespace {
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};

float bitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
uint32_t floatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

float load(Half h) {
  uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = (h.bits >> 10) & 31, mantissa = h.bits & 1023;
  if (exponent == 31)
    return bitsToFloat(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) // zero or subnormal: mantissa * 2^-24
    return bitsToFloat(sign | floatToBits(float(mantissa) * 0x1p-24f));
  return bitsToFloat(sign | ((exponent + 112) << 23) | (mantissa << 13));
}
float load(BFloat b) { return bitsToFloat(uint32_t(b.bits) << 16); }
float load(float f) { return f; }
double load(double f) { return f; }
uint8_t load(Bool b) { return b.bits != 0; }
template <typename T> std::enable_if_t<std::is_integral_v<T> && std::is_signed_v<T>, int64_t> load(T v) { return v; }
template <typename T> std::enable_if_t<std::is_integral_v<T> && std::is_unsigned_v<T>, uint64_t> load(T v) { return v; }

void store(float value, Half &out) {
  uint32_t bits = floatToBits(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) // NaN stays quiet
    out.bits = uint16_t(sign | 0x7e00 | ((magnitude >> 13) & 1023));
  else if (magnitude >= 0x477ff000) // rounds to 65536 or above
    out.bits = uint16_t(sign | 0x7c00);
  else if (magnitude < 0x38800000) // below 2^-14: adding 0.5 leaves the subnormal, rounded, in the low bits
    out.bits = uint16_t(sign | (floatToBits(bitsToFloat(magnitude) + 0.5f) - 0x3f000000u));
  else
    out.bits = uint16_t(sign | ((magnitude - 0x38000000u + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}
void store(float value, BFloat &out) {
  uint32_t bits = floatToBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    out.bits = uint16_t((bits >> 16) | 0x40);
  else
    out.bits = uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
void store(float value, float &out) { out = value; }
void store(double value, double &out) { out = value; }
void store(uint8_t value, Bool &out) { out.bits = value; }
template <typename A, typename T> std::enable_if_t<std::is_integral_v<T>> store(A value, T &out) {
  out = static_cast<T>(value);
}

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
