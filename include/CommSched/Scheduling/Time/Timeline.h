//===- Timeline.h - Makespan of an order ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays an order of a Problem's nodes on its lanes and says when everything runs, how long it takes and how long the
// compute lane stood still in waits. The rules are Models.md; every solver and report uses this model, and the
// ScheduleVerifier's memory recount and the tests check it from outside. With several streams (Problem::streams), each
// has a clock of its own; computations still run one at a time, in the order in which their streams come to them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_TIME_TIMELINE_H
#define COMMSCHED_SCHEDULING_TIME_TIMELINE_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// How much of each resource is in use from one moment on, in millionths.
struct ResourceUse {
  Ns begin = 0;
  Shares share{};
};

/// When everything of one order happens, ns from the beginning of the block.
struct Timeline {
  /// By node. A compute: its run. A start or hybrid: the collective on its lane. A wait: from when the compute lane
  /// came to it until the compute lane goes on.
  std::vector<Ns> start, end;
  /// By node: of a wait, and of a node whose regions wait, how long the compute lane stood still for what is waited
  /// for; 0 of all other nodes.
  std::vector<Ns> exposed;
  /// By lane: the time for which it was occupied. Compute: computes, issues and hybrids.
  std::vector<Ns> load;
  /// How long compute stands still at the end of an iteration of a loop (Problem::joinsAtEnd); part of exposedTotal.
  Ns exposedAtEnd = 0;
  /// The largest lane time.
  Ns makespan = 0;
  /// The sum over `exposed` and exposedAtEnd. A hybrid that waits for its lane stalls compute too, but is no part of
  /// this.
  Ns exposedTotal = 0;
  /// With contention, by time: the use of resources until the next entry. The last entry is the makespan's.
  std::vector<ResourceUse> uses;
};

/// Plays `order`, a permutation of the problem's nodes that respects its edges, or a prefix of one (nodes that are not
/// part of it have start = end = 0). O(N + lanes), or O(N x streams); with contention (Problem::demands) O(N x
/// activities in flight).
Timeline simulate(const Problem &problem, llvm::ArrayRef<NodeId> order);

/// The start that a wait waits for, or, of a node whose regions wait, the one of theirs that ends last; kNone of all
/// other nodes and of futures that came in.
NodeId awaitedStart(const Problem &problem, const Timeline &line, NodeId id);

/// How long compute stands still for each collective, ns. Indexed by node: of a start, in all that waits for it, with
/// what an iteration of a loop waits for at its end counted for the one that ends last; of a wait for a future that
/// came in, in that wait. O(N).
std::vector<Ns> exposedByCollective(const Problem &problem, const Timeline &line);

/// The makespan alone, for solvers: no output per node. O(N + lanes); with contention as simulate().
Ns makespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order);

/// The makespan if no activity disturbed another one, ns: a lower bound on makespanOf() of the same order. O(N +
/// lanes).
Ns undisturbedMakespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_TIME_TIMELINE_H
