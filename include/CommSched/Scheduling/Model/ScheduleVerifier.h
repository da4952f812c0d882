//===- ScheduleVerifier.h - Whether an answer is right ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Checks a solver's order before anything is done with it: always, in release builds too. It shares no code with a
// solver, nor with the models that solvers use: it has its own sweep and its own count of live bytes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MODEL_SCHEDULEVERIFIER_H
#define COMMSCHED_SCHEDULING_MODEL_SCHEDULEVERIFIER_H

#include "CommSched/Scheduling/Model/Problem.h"
#include "CommSched/Support/CollectiveOrder.h"

namespace commsched {

/// What an order has to keep.
struct ScheduleRequirements {
  /// Live bytes may reach this and not pass it; no limit where negative.
  Bytes peakLimit = -1;
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
};

/// Describes the first violation (with node ids and positions), or returns an empty string: `order` is a permutation,
/// respects every edge, touches no buffer before its definition, runs every wait after its start, stays within the
/// limit, keeps the collectives' order and that of the pinned nodes, and tears no unit apart. O(N + E + touches).
std::string verifySchedule(const Problem &problem, llvm::ArrayRef<NodeId> order,
                           const ScheduleRequirements &requirements);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MODEL_SCHEDULEVERIFIER_H
