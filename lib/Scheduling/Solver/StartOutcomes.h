//===- StartOutcomes.h - What became of every start, private to the solver --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_STARTOUTCOMES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_STARTOUTCOMES_H

#include "CommSched/Scheduling/Solver/Scheduler.h"

namespace commsched {

/// Explains a result, start by start, in the order of the given problem, with times as the slow-downs make them.
/// O((N + E) log N).
std::vector<StartOutcome> outcomesOfStarts(const Problem &problem, const ScheduleResult &result,
                                           const SlowDown &slowDown);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_STARTOUTCOMES_H
