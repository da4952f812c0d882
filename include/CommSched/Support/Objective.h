//===- Objective.h - Objective of a search ----------------------------------------------------===//
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
};

/// "robust", "regret" or "makespan".
inline llvm::StringLiteral stringify(Objective objective) {
  switch (objective) {
  case Objective::Robust:
    return "robust";
  case Objective::Regret:
    return "regret";
  case Objective::Makespan:
    return "makespan";
  }
  return "";
}

} // namespace commsched

#endif // COMMSCHED_SUPPORT_OBJECTIVE_H
