//===- Formats.h - Loading and storing element types ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// f16 and bf16 as bits, converted to f32 and back with rounding to nearest even, without compiler or library support.
// load() gives the type in which values are computed: f32, f64, int64_t, uint64_t; uint8_t for booleans.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_RUNTIME_CORE_FORMATS_H
#define COMMSCHED_LIB_RUNTIME_CORE_FORMATS_H

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace commsched::runtime {
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};

inline float bitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t floatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float load(Half h) {
  uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = (h.bits >> 10) & 31, mantissa = h.bits & 1023;
  if (exponent == 31)
    return bitsToFloat(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) // zero or subnormal: mantissa * 2^-24
    return bitsToFloat(sign | floatToBits(float(mantissa) * 0x1p-24f));
  return bitsToFloat(sign | ((exponent + 112) << 23) | (mantissa << 13));
}
inline float load(BFloat b) { return bitsToFloat(uint32_t(b.bits) << 16); }
inline float load(float f) { return f; }
inline double load(double f) { return f; }
inline uint8_t load(Bool b) { return b.bits != 0; }
template <typename T> std::enable_if_t<std::is_integral_v<T> && std::is_signed_v<T>, int64_t> load(T v) { return v; }
template <typename T> std::enable_if_t<std::is_integral_v<T> && std::is_unsigned_v<T>, uint64_t> load(T v) { return v; }

inline void store(float value, Half &out) {
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
inline void store(float value, BFloat &out) {
  uint32_t bits = floatToBits(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    out.bits = uint16_t((bits >> 16) | 0x40);
  else
    out.bits = uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
inline void store(float value, float &out) { out = value; }
inline void store(double value, double &out) { out = value; }
inline void store(uint8_t value, Bool &out) { out.bits = value; }
template <typename A, typename T> std::enable_if_t<std::is_integral_v<T>> store(A value, T &out) {
  out = static_cast<T>(value);
}
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_FORMATS_H
