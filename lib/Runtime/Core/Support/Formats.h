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

#ifndef COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_FORMATS_H
#define COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_FORMATS_H

#include "Kernels/Device/Formats.h"
#include <cstdint>
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

inline float load(Half h) { return device::floatOfHalf(h.bits); }
inline float load(BFloat b) { return device::floatOfBrain(b.bits); }
inline float load(float f) { return f; }
inline double load(double f) { return f; }
inline uint8_t load(Bool b) { return b.bits != 0; }
template <typename T> std::enable_if_t<std::is_integral_v<T> && std::is_signed_v<T>, int64_t> load(T v) { return v; }
template <typename T> std::enable_if_t<std::is_integral_v<T> && std::is_unsigned_v<T>, uint64_t> load(T v) { return v; }

inline void store(float value, Half &out) { out.bits = device::halfOfFloat(value); }
inline void store(float value, BFloat &out) { out.bits = device::brainOfFloat(value); }
inline void store(float value, float &out) { out = value; }
inline void store(double value, double &out) { out = value; }
inline void store(uint8_t value, Bool &out) { out.bits = value; }
template <typename A, typename T> std::enable_if_t<std::is_integral_v<T>> store(A value, T &out) {
  out = static_cast<T>(value);
}
} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_CORE_SUPPORT_FORMATS_H
