//===- OverlapListScheduler.h - List scheduler after Inductor's raise, sink and reorder passes ===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One list scheduler with three switches, after PyTorch Inductor's raise_comms, sink_waits and
// reorder_compute_for_overlap. Among the ready nodes it picks the one with the smallest key, which is a triple: the
// lowest index of a collective that the node is or leads to (with `raiseStarts`; infinite if there is none), whether
// the node is a wait (with `sinkWaits`), and its position in the given order. With `fillWithCompute`, each collective
// is followed by ready nodes that are neither collectives nor waits, by their keys, until their costs sum to the
// collective's cost.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_OVERLAPLISTSCHEDULER_H
#define COMMSCHED_SCHEDULING_INDUCTOR_OVERLAPLISTSCHEDULER_H

#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// The switches of the scheduler.
struct OverlapListOptions {
  bool raiseStarts = false;
  bool sinkWaits = false;
  bool fillWithCompute = false;
};

/// The switches of raise_comms, sink_waits, and reorder_compute_for_overlap.
inline constexpr OverlapListOptions kRaiseStarts = {true, false, false};
inline constexpr OverlapListOptions kSinkWaits = {false, true, false};
inline constexpr OverlapListOptions kReorderComputeForOverlap = {true, true, true};

/// Reschedules the block: among ready nodes, picks the one on which the earliest collective depends. Ignores memory.
/// Ties keep `order`, along which collectives are numbered. One record per start, or per wait if only waits sink, in
/// the given order. O(N + E).
Schedule scheduleForOverlap(const Problem &problem, llvm::ArrayRef<NodeId> order, const OverlapListOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_OVERLAPLISTSCHEDULER_H
