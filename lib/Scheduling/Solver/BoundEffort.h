//===- BoundEffort.h - Whether a search may compute a lower bound -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_BOUNDEFFORT_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_BOUNDEFFORT_H

#include "CommSched/Scheduling/Model/Problem.h"

namespace commsched {

/// Computing a bound takes the time of about N * N / kBoundDivisor steps (measured). It is computed if that is at most
/// kBoundPercent of the effort.
inline constexpr int64_t kBoundDivisor = 360, kBoundPercent = 10;

/// Whether a bound for a problem of so many nodes costs little beside `effort` steps.
inline bool isBoundCheap(NodeId nodes, int64_t effort) {
  return mulDiv(nodes, nodes, kBoundDivisor) <= mulDiv(effort, kBoundPercent, 100);
}

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_BOUNDEFFORT_H
