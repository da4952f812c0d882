//===- StartReasons.h - Why compute waits for a collective ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one explanation of exposed time, for the solver's remarks and for reports. It is read off a finished order, not
// recorded by whatever found the order.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MODEL_STARTREASONS_H
#define COMMSCHED_SCHEDULING_MODEL_STARTREASONS_H

#include "CommSched/Scheduling/Model/CollectiveRecord.h"
#include "CommSched/Scheduling/Model/MemoryTree.h"
#include "CommSched/Scheduling/Model/Timeline.h"

namespace commsched {

/// Why compute waits for a collective: AlreadyHidden (it does not), LaneBusy, DataDependence, StartsAtOnce, PeakMemory
/// or Preference.
struct StartReason {
  LimitingFactor factor = LimitingFactor::AlreadyHidden;
  /// LaneBusy, DataDependence: the node that is in the way. Otherwise kNone.
  NodeId blocker = kNone;
  /// PeakMemory: what the peak would reach if the collective were issued as early as its dependences allow, bytes.
  Bytes reached = 0;
};

/// Explains the collectives of one order.
class StartReasons {
public:
  /// Plays `order`, which respects the edges of `problem`. Keeps references to both. O((N + touches) log N).
  StartReasons(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown);

  /// Where a node stands in the order.
  int32_t position(NodeId node) const { return positions[node]; }
  /// How long compute stands still in the waits for a start, ns.
  Ns exposedOf(NodeId start) const { return exposed[start]; }
  /// Why compute waits for `start`. `first` is the node that has to be issued earlier if the start is: the pack of a
  /// bucket, or the start itself. `limit`: what the peak may reach, bytes. O(degree + log N).
  StartReason explain(NodeId start, NodeId first, Bytes limit) const;

private:
  Bytes allocatedBy(NodeId node) const;

  const Problem &problem;
  Timeline line;
  MemoryTree live;
  std::vector<int32_t> positions;
  /// Indexed by position: when the compute lane comes to it.
  std::vector<Ns> arrival;
  /// Indexed by node. Of a start: how long compute stood still in its waits. Of a collective: the one before on its
  /// lane.
  std::vector<Ns> exposed;
  std::vector<NodeId> previous;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MODEL_STARTREASONS_H
