//===- HeadsAndTails.h - Lower bounds on the time before and after each node ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// For each node, a lower bound on the time before it (its head) and after it (its tail), in any order. Heads and tails
// combine longest paths with load: work of one lane that must precede a node cannot overlap, so the node comes after
// the smallest head of this work plus its sum (a *level*; Bounds.md, Lemmas 2 to 4 and 6). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_HEADSANDTAILS_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_HEADSANDTAILS_H

#include "CommSched/Scheduling/Bounds/BoundOptions.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"

namespace commsched {

/// Durations as the bounds count them, ns. Indexed by node.
struct BoundCosts {
  /// The work on the compute lane: the cost of a compute or hybrid, the issue cost of a start.
  std::vector<Ns> compute;
  /// For starts and hybrids: the load that the node adds to its communication lane.
  std::vector<Ns> lane;
  /// For starts and hybrids: the least time between the beginning and the end of the collective. At least `lane`.
  std::vector<Ns> path;
  /// Work on the compute lane that is done at one of two nodes, `first` or a later one, `last`. Used by the arguments
  /// about a lane as a whole only.
  struct Floating {
    NodeId first, last;
    Ns cost;
  };
  std::vector<Floating> floating;
};

/// Lower bounds that hold for every order, ns. Indexed by node. The *clock* is the compute lane's time, and *T* the
/// makespan.
struct HeadsAndTails {
  /// On the clock at the node's turn, and on the clock after the node.
  std::vector<Ns> head, exit;
  /// For starts and hybrids: on the beginning of the work on the communication lane.
  std::vector<Ns> begin;
  /// On T minus the clock after the node, and on T minus the clock at the node's turn.
  std::vector<Ns> tail, entryTail;
  /// For starts and hybrids: on T minus the end of the work on the lane, and on T minus the end of the collective.
  std::vector<Ns> laneTail, endTail;
  /// The longest chain of dependences alone, without any load.
  Ns longestPath = 0;

  /// The largest sum, over all nodes, of a head, the node's own duration, and a tail, and a node that attains it.
  std::pair<Ns, NodeId> throughAny(const BoundCosts &costs) const;
};

/// Computes all bounds in two sweeps over the nodes. O((N + E) N / 64) words up to BoundOptions::exactNodes, O((N + E)
/// window / 64) for larger problems. Appends to `reasons`, unless it is null, each level that raised a value.
HeadsAndTails headsAndTails(const Problem &problem, const BoundCosts &costs, const BoundOptions &options,
                            std::vector<LevelReason> *reasons = nullptr);

/// Raises what follows along paths from heads that have been raised. O(N + E).
void propagateHeads(const Problem &problem, const BoundCosts &costs, HeadsAndTails &times);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_HEADSANDTAILS_H
