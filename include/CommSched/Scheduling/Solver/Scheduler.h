//===- Scheduler.h - Order and buckets under a hard peak limit --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The core of the solver. It knows nothing of variants of collectives, and of contention only that time is played with
// it; lenses (Lenses.h) see to both, and are the entry for everybody else. The given order is the first incumbent;
// decodes of a few policies and then moves of single nodes improve on it for as long as the effort lasts. Every
// incumbent passes verify(). Equal input and options give equal output: effort is counted in steps, not in time.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H
#define COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Scheduling/Solver/ScheduleOptions.h"

namespace commsched {

/// Schedules `problem`, which has to be valid (Problem::validate). Near-linear for a first answer, then in proportion
/// to the effort. The answer is never slower than the given order, or than any of ScheduleOptions::known that is within
/// the limit, and never has a higher peak than the limit; if the given order is above the limit, the peak comes first
/// (Schedule::isWithinLimit). With ScheduleOptions::bucketing it is never slower than without.
Schedule scheduleCore(const Problem &problem, const ScheduleOptions &options);

/// The names of the phases of the search, each once, in the order in which they first run, for
/// ScheduleOptions::without.
std::vector<llvm::StringRef> phaseNames();

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H
