//===- Scheduler.h - Order and buckets under a hard peak limit --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one entry to the solver. The given order is the first incumbent; decodes of a few policies and then moves of
// single nodes improve on it for as long as the effort lasts. Every incumbent passes verify(). Equal input and options
// give equal output: effort is counted in steps, not in time.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H
#define COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Scheduling/Solver/ScheduleOptions.h"

namespace commsched {

/// Schedules `problem`, which has to be valid (Problem::validate). Near-linear for a first answer, then in proportion
/// to the effort. The answer is never slower than the given order and never has a higher peak than the limit; if the
/// given order is above the limit, the peak comes first (Schedule::isWithinLimit). With ScheduleOptions::bucketing it
/// is never slower than without. If the problem has variants, the answer may choose some (Schedule::variants); it is
/// then shorter than without them.
Schedule schedule(const Problem &problem, const ScheduleOptions &options = {});

/// As schedule(), and if the limit is above the peak of the given order, never slower
/// than the answer of schedule() within that peak: every plan within a smaller limit is one within a larger limit, but
/// a search that may use more memory goes other ways and may end at a longer plan. Takes the time of both searches,
/// unless the first one ends at a lower bound of the larger limit. Between two limits above the peak nothing is
/// promised.
Schedule scheduleWithPeakOfInput(const Problem &problem, const ScheduleOptions &options = {});

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H
