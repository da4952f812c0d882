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
// that fit. The limit of ScheduleOptions is then about arenaOf(), relative to that of the order given where it is a
// ratio, and the answer is the one with the smallest arena if none was found that fits. It asks the solver once if the
// plan of that answer fits, otherwise at most 17 times, 9 of them with the whole effort.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_ARENALIMIT_H
#define COMMSCHED_SCHEDULING_LENSES_ARENALIMIT_H

#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// The arena of a buffer plan of the answer, with the largest workspace of a node, bytes. O(n log n) in the number of
/// buffers, and a bounded number of steps per buffer (planBuffers()).
Bytes arenaOf(const Problem &problem, const Schedule &schedule);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_ARENALIMIT_H
