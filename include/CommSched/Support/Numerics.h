//===- Numerics.h - Bounds on differences from the program's results --------------------------===//
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
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace commsched {

/// The class of a rewrite, by what it may do to results. Each includes those before it.
enum class Numerics : uint8_t {
  /// Equal bits.
  Exact,
  /// Terms of sums may be added in another order.
  Reassociated,
  /// Sums over ranks may be computed in a narrower type of at least 16 bits.
  ReducedPrecisionSums,
  /// Gathers may carry numbers of 8 bits with a scale per block.
  QuantisedGathers,
};

/// "exact", "reassociated", "reduced-precision-sums" or "quantised-gathers".
inline llvm::StringLiteral stringify(Numerics numerics) {
  switch (numerics) {
  case Numerics::Exact:
    return "exact";
  case Numerics::Reassociated:
    return "reassociated";
  case Numerics::ReducedPrecisionSums:
    return "reduced-precision-sums";
  case Numerics::QuantisedGathers:
    return "quantised-gathers";
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

/// Consecutive elements of a quantised gather with one scale.
inline constexpr int64_t kQuantisedBlock = 128;

/// The bound for the error of an element of a quantised gather is the largest of three: a fraction of its magnitude, a
/// fraction of the largest magnitude in its block, and an absolute distance. Rewrites.md, "Gathers in 8 bits", derives
/// them. An element that crosses several such gathers is rounded in each of them.
struct GatherErrorBound {
  /// f8E4M3FN has 4 significant bits: half a unit in the last place.
  double ofElement = 0x1p-4;
  /// Half the distance of the smallest numbers, 2^-9, times a scale of less than 1/224 of the largest magnitude.
  double ofBlock = 0x1p-10 / 224;
  /// The same with the smallest scale, 2^-126. Only f32 has numbers as small as that.
  double absolute = 0x1p-136;

  /// In words.
  std::string toText() const {
    return llvm::formatv("an element differs by at most {0:F4} of its magnitude, or {1:E1} of the largest in its block",
                         ofElement, ofBlock);
  }
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_NUMERICS_H
