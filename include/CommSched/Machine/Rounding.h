//===- Rounding.h - Wide integer arithmetic for the cost models -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Products of bytes and nanoseconds exceed 64 bits. These helpers compute in 128 bits, round once, and saturate.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_ROUNDING_H
#define COMMSCHED_MACHINE_ROUNDING_H

#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Support/Arithmetic.h"

namespace commsched::detail {

inline Ns saturate(Wide value) { return value > kMaxNs ? kMaxNs : static_cast<Ns>(value); }

/// Time to process `amount` units at `perSecond`, ns, rounded to the nearest (halves up). Monotone in `amount`.
inline Ns timeAtRate(Wide amount, Wide perSecond) {
  // The same computation in 64 bits if the values fit, which is several times faster.
  constexpr Wide kSmallAmount = INT64_MAX / 1'000'000'000;
  if (amount <= kSmallAmount && perSecond <= INT64_MAX / 2) {
    uint64_t rate = static_cast<uint64_t>(perSecond);
    return saturate((static_cast<uint64_t>(amount) * 1'000'000'000 + rate / 2) / rate);
  }
  return saturate((amount * 1'000'000'000 + perSecond / 2) / perSecond);
}

inline Ns addNs(Ns a, Ns b) { return saturate(static_cast<Wide>(a) + b); }

/// Sums and products of non-negative amounts (bytes, flops), saturating at the largest int64_t.
inline int64_t clampAmount(Wide value) { return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value); }
inline int64_t addAmounts(int64_t a, int64_t b) { return clampAmount(static_cast<Wide>(a) + b); }
inline int64_t multiplyAmounts(int64_t a, int64_t b) { return clampAmount(static_cast<Wide>(a) * b); }

} // namespace commsched::detail

#endif // COMMSCHED_MACHINE_ROUNDING_H
