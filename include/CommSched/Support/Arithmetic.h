//===- Arithmetic.h - Integer arithmetic of the models ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Products and quotients that do not overflow in between.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_ARITHMETIC_H
#define COMMSCHED_SUPPORT_ARITHMETIC_H

#include <cstdint>

namespace commsched {

/// a * b / c without overflow in between; 0 where c is 0.
inline int64_t mulDiv(int64_t a, int64_t b, int64_t c) {
  __int128 value = c == 0 ? 0 : static_cast<__int128>(a) * b / c;
  return value > INT64_MAX / 4      ? INT64_MAX / 4
         : value < -(INT64_MAX / 4) ? -(INT64_MAX / 4)
                                    : static_cast<int64_t>(value);
}

} // namespace commsched

#endif // COMMSCHED_SUPPORT_ARITHMETIC_H
