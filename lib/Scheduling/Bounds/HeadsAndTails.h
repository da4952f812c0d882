//===- HeadsAndTails.h - The earliest and the latest that lanes allow -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// For each node a lower bound on what passes before it (its head) and after it (its tail), in any order. Beside the
// longest path they know load: what must have run on one lane before a node cannot have run at the same time, so the
// node comes after the smallest head among these pieces of work plus their sum ("level"). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_HEADSANDTAILS_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_HEADSANDTAILS_H

#include "CommSched/Scheduling/Bounds/Bounds.h"

namespace commsched {

/// Durations as the bounds count them, by node.
struct BoundCosts {
  /// On the compute lane: of computes and hybrids their cost, of starts their issue.
  std::vector<Ns> compute;
  /// On the communication lane, of starts and hybrids: what the node adds to the lane's load.
  std::vector<Ns> lane;
  /// Of starts and hybrids: how long after its beginning the collective ends at the earliest. Not less than `lane`.
  std::vector<Ns> path;
};

/// Lower bounds by node, for every order. "Clock" is the compute lane's time.
struct HeadsAndTails {
  /// On the clock when the node's turn comes, and when it is done.
  std::vector<Ns> head, exit;
  /// Of starts and hybrids: on the beginning of the work on its communication lane.
  std::vector<Ns> begin;
  /// On what passes from the clock after the node to the end of everything, and from the clock before it.
  std::vector<Ns> tail, entryTail;
  /// Of starts and hybrids: on what passes from the end of the work on its lane, and from the end of the collective.
  std::vector<Ns> laneTail, endTail;
  /// The longest chain of dependences alone, without any load.
  Ns longestPath = 0;

  /// The largest sum of a head, what follows it, and a tail.
  Ns throughAny(const BoundCosts &costs) const;
};

HeadsAndTails headsAndTails(const Problem &problem, const BoundCosts &costs, const BoundOptions &options);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_HEADSANDTAILS_H
