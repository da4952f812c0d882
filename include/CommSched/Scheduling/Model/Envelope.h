//===- Envelope.h - Bounds on the makespan of one order -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// If durations are only known to lie in intervals, so is the makespan. Without a slow-down of links, the makespan of an
// order is monotone in every duration, so the shortest durations give a lower bound and the longest ones an upper
// bound. With a slow-down of links it is not: a collective that becomes ready earlier may begin while another one is in
// flight, and take longer. The bounds then assume that no collective is slowed down, and that all are.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MODEL_ENVELOPE_H
#define COMMSCHED_SCHEDULING_MODEL_ENVELOPE_H

#include "CommSched/Scheduling/Model/Timeline.h"

namespace commsched {

/// A lower bound on the makespan of `order` for all durations that are at least those of `shortest`, ns. Equal to the
/// makespan of `shortest` unless links slow down. As simulate().
Ns leastMakespan(const Problem &shortest, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown);

/// An upper bound on the makespan of `order` for all durations that are at most those of `longest`, ns. Equal to the
/// makespan of `longest` unless links slow down. As simulate().
Ns largestMakespan(const Problem &longest, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MODEL_ENVELOPE_H
