//===- Envelope.h - Bounds on the makespan of one order -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// If durations are only known to lie in intervals, so is the makespan of an order. It is monotone in every duration as
// long as no activity disturbs another one, so the shortest durations give a lower bound (undisturbedMakespanOf()) and
// the longest ones an upper bound.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_TIME_ENVELOPE_H
#define COMMSCHED_SCHEDULING_TIME_ENVELOPE_H

#include "CommSched/Scheduling/Time/Timeline.h"

namespace commsched {

/// An upper bound on the makespan of `order` for all durations that are at most those of `longest`, ns. Equal to the
/// makespan of `longest` without contention. As simulate().
Ns largestMakespan(const Problem &longest, llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_TIME_ENVELOPE_H
