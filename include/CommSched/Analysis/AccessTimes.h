//===- AccessTimes.h - Times of memory accesses in an answer ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_ACCESSTIMES_H
#define COMMSCHED_ANALYSIS_ACCESSTIMES_H

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// Of each node of `problem`, the first and the last event of `answer` that accesses its memory. A merged start is read
/// by the pack and in flight until the start of its bucket; what a merged wait returns is written until the unpack.
/// O(N).
std::vector<AccessTime> accessTimesOf(const Problem &problem, const Schedule &answer);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_ACCESSTIMES_H
