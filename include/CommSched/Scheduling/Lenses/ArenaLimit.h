//===- ArenaLimit.h - A limit on the arena of the buffers -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A plan that gives every buffer a fixed offset may need more than the peak of live bytes. This search lowers the
// limit on live bytes until the plan of the answer fits, and it plans the buffers of improvements and takes only those
// that fit.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_ARENALIMIT_H
#define COMMSCHED_SCHEDULING_LENSES_ARENALIMIT_H

#include "CommSched/Scheduling/Solver/Scheduler.h"

namespace commsched {

/// The arena of a buffer plan of the answer, with the largest workspace of a node, bytes. O(n log n) in the number of
/// buffers, and a bounded number of steps per buffer (planBuffers()).
Bytes arenaOf(const Problem &problem, const Schedule &schedule);

/// Schedules like schedule(), but `options.memory` limits arenaOf(), relative to that of the order given where it is a
/// ratio. Returns the arena of `answer`, bytes, which is above `answer.limit` if no answer was found that fits;
/// `answer` is then the one with the smallest arena. Calls schedule() once if the plan of that answer
/// fits, otherwise at most 17 times, 9 of them with the whole effort.
Bytes scheduleWithinArena(const Problem &problem, ScheduleOptions options, Schedule &answer);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_ARENALIMIT_H
