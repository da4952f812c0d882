//===- Numerics.h - How far results may differ from the program's -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Nothing that changes results runs unless a user asks for it by the name of its class.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_NUMERICS_H
#define COMMSCHED_SUPPORT_NUMERICS_H

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringRef.h"
#include <cmath>
#include <cstdint>
#include <optional>

namespace commsched {

/// The class of a rewrite, by what it may do to results. Each includes those before it.
enum class Numerics : uint8_t {
  /// Equal bits.
  Exact,
  /// Terms of sums may be added in another order.
  Reassociated,
  /// Sums over ranks may be computed in a narrower type of at least 16 bits.
  ReducedPrecisionSums,
};

/// "exact", "reassociated" or "reduced-precision-sums".
inline llvm::StringLiteral stringify(Numerics numerics) {
  switch (numerics) {
  case Numerics::Exact:
    return "exact";
  case Numerics::Reassociated:
    return "reassociated";
  case Numerics::ReducedPrecisionSums:
    return "reduced-precision-sums";
  }
  return "";
}

/// An upper bound for the distance between a sum of `terms` numbers that is computed in `format`, in any order, and the
/// exact sum, as a fraction of the sum of the magnitudes of the numbers: g(k) = k u / (1 - k u) with u = 2^-precision
/// and k = terms - 1 + extra roundings (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition,
/// section 4.2). It holds unless a partial sum overflows. None if k u is at least 1: then there is no such bound.
inline std::optional<double> sumErrorBound(int64_t terms, const llvm::fltSemantics &format,
                                           int64_t extraRoundings = 0) {
  const double roundings = static_cast<double>(terms - 1 + extraRoundings);
  const double all = std::ldexp(roundings, -static_cast<int>(llvm::APFloat::semanticsPrecision(format)));
  return all < 1 ? std::optional<double>(all / (1 - all)) : std::nullopt;
}

} // namespace commsched

#endif // COMMSCHED_SUPPORT_NUMERICS_H
