//===- OverlapListScheduler.h - Starts early, waits late, compute in between ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One list scheduler with three switches, after PyTorch Inductor's raise_comms, sink_waits and
// reorder_compute_for_overlap. Among the ready nodes it takes the one with the smallest key: the lowest index of a
// collective that the node is or leads to (with `raiseStarts`; none counts as infinite), whether it is a wait (with
// `sinkWaits`), its place in the order given. With `fillWithCompute`, each collective is followed by ready nodes that
// are neither collectives nor waits, by their keys, until their costs add up to the collective's.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_OVERLAPLISTSCHEDULER_H
#define COMMSCHED_SCHEDULING_INDUCTOR_OVERLAPLISTSCHEDULER_H

#include "CommSched/Scheduling/Model/Schedule.h"

namespace commsched {

struct OverlapListOptions {
  bool raiseStarts = false;
  bool sinkWaits = false;
  bool fillWithCompute = false;
};

inline constexpr OverlapListOptions kRaiseStarts = {true, false, false};
inline constexpr OverlapListOptions kSinkWaits = {false, true, false};
inline constexpr OverlapListOptions kReorderComputeForOverlap = {true, true, true};

/// Schedules anew. `order` is the order given: ties go to it, and collectives are numbered along it. One record per
/// start (per wait, when only waits sink), in the order given. Memory is no concern. O(N + E).
Schedule scheduleForOverlap(const Problem &problem, llvm::ArrayRef<NodeId> order, const OverlapListOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_OVERLAPLISTSCHEDULER_H
