//===- Objective.h - What a search minimizes --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Passes and solvers name objectives by this type.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_OBJECTIVE_H
#define COMMSCHED_SUPPORT_OBJECTIVE_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace commsched {

/// What a search minimizes.
enum class Objective : uint8_t {
  /// The makespan if every duration is as expected, and among orders that differ by next to nothing in it, the regret.
  Robust,
  /// The regret: the largest distance to a lower bound over several scales of the collectives' times.
  Regret,
  /// The makespan if every duration is as expected.
  Makespan,
  /// The mean of the makespans in several scenarios.
  Mean,
  /// Their 95 % quantile.
  P95,
};

/// Whether an objective is one over scenarios with noise.
inline bool needsNoise(Objective objective) { return objective == Objective::Mean || objective == Objective::P95; }

/// "robust", "regret", "makespan", "mean" or "p95".
inline llvm::StringLiteral stringify(Objective objective) {
  switch (objective) {
  case Objective::Robust:
    return "robust";
  case Objective::Regret:
    return "regret";
  case Objective::Makespan:
    return "makespan";
  case Objective::Mean:
    return "mean";
  case Objective::P95:
    return "p95";
  }
  return "";
}

} // namespace commsched

#endif // COMMSCHED_SUPPORT_OBJECTIVE_H
