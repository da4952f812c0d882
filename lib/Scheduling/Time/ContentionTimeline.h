//===- ContentionTimeline.h - The timeline of activities that share resources -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Timeline.h's simulate() and makespanOf() for problems with demands. Private to the library.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONTIMELINE_H
#define COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONTIMELINE_H

#include "CommSched/Scheduling/Time/Timeline.h"

namespace commsched {

/// Plays an order on one stream. O(N x activities in flight).
Timeline simulateContention(const Problem &problem, llvm::ArrayRef<NodeId> order);

/// The makespan alone.
Ns contendedMakespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONTIMELINE_H
