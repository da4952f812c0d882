//===- HloProblem.h - A computation of XLA as a problem for the solver ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One node per instruction that is scheduled. Streams are those of XLA:GPU: one for kernels, one for all collectives,
// one for messages between two ranks, and one for copies.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOPROBLEM_H
#define COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOPROBLEM_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "HloCosts.h"
#include "HloGraph.h"
#include <set>

namespace commsched::hlo {

/// The lanes, and their names in reports.
enum HloLane : LaneId { kCollectiveLane = 1, kMessageLane, kCopyLane, kKernelLane, kNumLanes };

/// Time, memory and resources of one call of a computation.
struct CalleeWork {
  /// Durations of one run, ns: in the given order, in the new order, and the lower bound.
  Ns before = 0, after = 0, bound = 0;
  /// Time that compute waits for collectives in one run, callees included, ns: in the given order and in the new one.
  Ns exposedBefore = 0, exposedAfter = 0;
  /// Live bytes, and the lower bound of them.
  Bytes peakBefore = 0, peakAfter = 0, leastPeak = 0;
  /// Lanes and groups of the asynchronous work in it and in its callees.
  std::set<LaneId> lanes;
  std::set<int32_t> groups;
  bool isPinned = false, hasMessages = false;
};

/// Selects the durations of callees in a problem.
enum class CalleeCost : uint8_t { Before, After, Bound };

struct LoadedComputation {
  Problem problem;
  int32_t collectives = 0, unknownKernels = 0, unknownLoops = 0;
  /// See ComputationResult::untimed.
  std::vector<std::string> untimed;
  /// Time that compute waits for collectives inside the callees, in one run of the computation, ns.
  Ns exposedInCallees = 0;
  /// For the callers of the computation; times and peaks are not set.
  CalleeWork work;
};

/// By instruction, a start that may be merged: the number of its key.
using MergeKeys = llvm::DenseMap<int32_t, int32_t>;

/// Loads a computation. `callees` is indexed by computation. Starts with equal keys may be merged. Fails if it has
/// something that is not understood. O(nodes + edges).
llvm::Expected<LoadedComputation> loadComputation(const HloGraph &graph, HloCosts &costs,
                                                  llvm::ArrayRef<CalleeWork> callees, CalleeCost variant, bool isEntry,
                                                  const MergeKeys &mergeKeys);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_GRAPH_HLOPROBLEM_H
