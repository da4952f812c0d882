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
  /// The makespan if every duration is as expected.
  Makespan,
  /// The mean of the makespans in several scenarios.
  Mean,
  /// Their 95 % quantile.
  P95,
};

/// "makespan", "mean" or "p95".
inline llvm::StringLiteral stringify(Objective objective) {
  switch (objective) {
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
