//===- ScheduleFacts.h - What the list scheduler knows beforehand -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A search decodes the same problem hundreds of times. What no decode changes is worked out once: ScheduleFacts for the
// problem, Reference for each order that decodes promise to be able to fall back to.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_SCHEDULEFACTS_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_SCHEDULEFACTS_H

#include "CommSched/Scheduling/Model/Problem.h"
#include "CommSched/Support/Arithmetic.h"
#include <algorithm>

namespace commsched {

/// What is known of a problem, whatever the order.
///
/// A *group* is what runs together: a start led by light nodes that feed only it (parameter casts), or a single node. A
/// feeder that ran ahead of its start would only hold memory; and it may be fused into the start's pack.
struct ScheduleFacts {
  /// O(N + E). With `bucketing`, starts may be merged where the problem has keys.
  ScheduleFacts(const Problem &problem, bool bucketing);

  const Problem &problem;
  bool bucketing;
  /// Of each node: the last node of its group (itself, or the start that it feeds).
  std::vector<NodeId> leader;
  /// Of each start: its feeders, ascending.
  IndexLists feeders;
  /// Of each leader: the number of edges that enter its group.
  std::vector<int32_t> enteringEdges;
  /// Of each start: whether it may be in a bucket, and the cast that its pack would do, or kNone.
  std::vector<bool> mergeable;
  std::vector<NodeId> fused;
  /// Indexed by node: the duration of the unpack of a mergeable all-gather that has an unpack of its own, ns.
  std::vector<Ns> ownUnpack;
  /// Of each start: the start that comes next in the order of issues where collectives keep theirs, or kNone; and the
  /// number of starts that it follows.
  std::vector<NodeId> nextIssue;
  std::vector<int32_t> issuesBefore;
  /// Of each node: whether it may run whenever it is ready: it takes no time and allocates nothing.
  std::vector<bool> freeToRun;
  /// Of each compute: the start that all its results flow into, through other such computes, or kNone. A weight
  /// gradient works for its reduction alone.
  std::vector<NodeId> exclusiveStart;
  /// Of each start: whether those computes take longer than it does. Then it pays to put them off behind a long
  /// collective at the block's end; else their own collective would come behind that one, and cost more than it saves.
  std::vector<bool> profitableToDefer;
  /// Of each node: the longest path behind it, its own cost left out, ns.
  std::vector<Ns> tail;
  /// Whether a pack may do the work of a node: the node is the cast of the start that leads it.
  bool isFusable(NodeId node) const { return leader[node] != node && fused[leader[node]] == node; }
  /// The longest path; the load of each lane; the load of the busiest communication lane.
  Ns criticalPath = 0;
  std::vector<Ns> load;
  Ns busiestLoad = 0;
  /// The cost of the collective in the middle of the busiest lane's load, ns.
  Ns medianCollective = 0;
  /// What Policy::horizon is a share of, ns: no order is shorter.
  Ns horizonBase() const { return std::max(load[0], criticalPath); }
  /// Of each merge key: the bytes of all its starts.
  std::vector<Bytes> keyBytes;

private:
  void findFeeders();
  void findIssueOrder();
  void findExclusiveProducers();
  void findPaths();
  void measureLanes();
};

/// An order that a decode promises to fall back to, with what follows from it.
struct Reference {
  /// O(N + E).
  Reference(const ScheduleFacts &facts, Order order);

  static constexpr int32_t kNever = INT32_MAX;

  Order order;
  /// Of each node: its position.
  std::vector<int32_t> position;
  /// Of each position, and one behind: the compute time before it, ns.
  std::vector<Ns> computeBefore;
  /// Of each node: the first position of a compute that needs its result, seen through views, waits and starts; kNever
  /// if only the block's end does (a reduced gradient, or one that is cast and returned).
  std::vector<int32_t> need;
  /// Of each start: whether only the block's end needs it. Such a start yields to the others.
  std::vector<bool> terminal;
  Bytes peak = 0;
  Ns makespan = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_SCHEDULEFACTS_H
