//===- Arithmetic.h - Integer arithmetic of the models ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Products and quotients that do not overflow in between, and the scales of ratios.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_ARITHMETIC_H
#define COMMSCHED_SUPPORT_ARITHMETIC_H

#include <cstdint>

namespace commsched {

/// GNU's 128-bit integers, without the pedantic warning.
__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

/// The largest time (ns) or size (bytes) of the models. The sum of three of them fits 64 bits.
inline constexpr int64_t kLargestAmount = INT64_MAX / 4;

/// One, in thousandths and in millionths: the scales of all ratios.
inline constexpr int64_t kPermille = 1'000, kMillion = 1'000'000;

/// `value`, or the nearest bound of [-kLargestAmount, kLargestAmount].
inline constexpr int64_t saturateAmount(Wide value) {
  return value > kLargestAmount    ? kLargestAmount
         : value < -kLargestAmount ? -kLargestAmount
                                   : static_cast<int64_t>(value);
}

/// a * b / c, rounded towards 0, without overflow in between; 0 if c is 0. Saturates.
inline constexpr int64_t mulDiv(int64_t a, int64_t b, int64_t c) {
  return c == 0 ? 0 : saturateAmount(static_cast<Wide>(a) * b / c);
}

/// The same of numbers that are not negative, rounded up; c is not 0.
inline constexpr int64_t mulDivUp(int64_t a, int64_t b, int64_t c) {
  return saturateAmount((static_cast<Wide>(a) * b + c - 1) / c);
}

/// The sign of a * b - c * d, without overflow in between: -1, 0 or 1.
inline constexpr int compareProducts(int64_t a, int64_t b, int64_t c, int64_t d) {
  Wide left = static_cast<Wide>(a) * b, right = static_cast<Wide>(c) * d;
  return left < right ? -1 : left > right ? 1 : 0;
}

} // namespace commsched

#endif // COMMSCHED_SUPPORT_ARITHMETIC_H
