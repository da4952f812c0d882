//===- ShortFloats.h - Floating-point formats that C++ lacks ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// By the definition, with the mathematics library: another hand than the runtime's own conversions.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_SHORTFLOATS_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_SHORTFLOATS_H

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace emulator {
/// IEEE-like formats of 16 or 8 bits, with round to nearest even; Finite: no infinities, and all ones is NaN (e4m3).
template <typename R, int exponentBits, int mantissaBits, bool isFinite> struct Short {
  using Raw = R;
  using Value = float;
  static constexpr int bias = (1 << (exponentBits - 1)) - 1, top = (1 << exponentBits) - 1;

  static float load(Raw raw) {
    int sign = raw >> (exponentBits + mantissaBits) & 1, exponent = raw >> mantissaBits & top;
    int mantissa = raw & ((1 << mantissaBits) - 1);
    float value;
    if (exponent == top && (!isFinite || mantissa == (1 << mantissaBits) - 1))
      value = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
      value = std::ldexp(float(mantissa), 1 - bias - mantissaBits);
    else
      value = std::ldexp(float(mantissa + (1 << mantissaBits)), exponent - bias - mantissaBits);
    return sign ? -value : value;
  }

  static Raw store(float value) {
    Raw sign = Raw(std::signbit(value) ? 1 << (exponentBits + mantissaBits) : 0);
    constexpr int allOnes = (1 << mantissaBits) - 1;
    constexpr int notANumber =
        isFinite ? (top << mantissaBits) + allOnes : (top << mantissaBits) + (1 << (mantissaBits - 1));
    constexpr int infinite = isFinite ? notANumber : top << mantissaBits;
    constexpr int greatest = isFinite ? notANumber - 1 : infinite - 1;
    if (std::isnan(value))
      return Raw(sign | notANumber);
    if (std::isinf(value))
      return Raw(sign | infinite);
    int exponent = 0;
    std::frexp(value, &exponent); // value = f * 2^exponent, f in [0.5, 1)
    int unit = std::max(exponent - 1, 1 - bias) - mantissaBits;
    double steps = std::nearbyint(std::ldexp(double(std::fabs(value)), -unit));
    if (steps == 0)
      return sign;
    // A subnormal number is its number of steps; a carry into the next exponent comes out right by itself.
    int bits = int(steps) + (std::max(exponent - 1, 1 - bias) + bias - 1) * (1 << mantissaBits);
    return Raw(sign | (bits > greatest ? infinite : bits));
  }
};
using Half = Short<uint16_t, 5, 10, false>;
using Bfloat = Short<uint16_t, 8, 7, false>;
} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_SHORTFLOATS_H
