//===- StreamTimeline.h - Makespan of an order on several streams -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The part of Timeline.h for blocks whose operations are on several streams.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_TIME_STREAMTIMELINE_H
#define COMMSCHED_LIB_SCHEDULING_TIME_STREAMTIMELINE_H

#include "CommSched/Scheduling/Time/Timeline.h"

namespace commsched {

/// Plays `order` on the streams of its nodes, on the clock that a single stream with contention is played with. If not
/// `sharesResources`, everything runs at its full rate. O(N x (streams + activities in flight)).
Timeline simulateStreams(const Problem &problem, llvm::ArrayRef<NodeId> order, bool sharesResources);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_TIME_STREAMTIMELINE_H
