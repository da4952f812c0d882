//===- ScheduleFacts.h - Facts of a problem that no decode changes ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A search decodes one problem hundreds of times. Facts that no decode changes are computed once: ScheduleFacts for the
// problem, and a Reference for each order that decodes fall back to.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_SCHEDULEFACTS_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_SCHEDULEFACTS_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "CommSched/Support/Arithmetic.h"
#include <algorithm>

namespace commsched {

/// Facts of a problem, whatever the order.
///
/// A *launch unit* is a start with its feeders, or any other node alone. A feeder is a cheap node, such as the cast of
/// a parameter, whose results only that start uses. A unit is placed as one: a feeder placed ahead of its start would
/// only hold memory, and a pack may absorb it.
struct ScheduleFacts {
  /// O(N + E). With `bucketing`, starts may be merged if the problem has merge keys.
  ScheduleFacts(const Problem &problem, bool bucketing);

  const Problem &problem;
  bool bucketing;
  /// Indexed by node: the last node of its launch unit, which is the start that it feeds, or the node itself.
  std::vector<NodeId> leader;
  /// Indexed by start: its feeders, ascending.
  IndexLists feeders;
  /// Indexed by leader: the number of edges that enter its launch unit.
  std::vector<int32_t> enteringEdges;
  /// Indexed by start: whether it may be in a bucket.
  std::vector<bool> mergeable;
  /// Indexed by start: the cast that its pack would absorb, or kNone.
  std::vector<NodeId> fused;
  /// Indexed by start: the duration of its unpack if it is a mergeable all-gather, ns.
  std::vector<Ns> ownUnpack;
  /// Indexed by start: if collectives keep their order, the start that is issued next, or kNone, and the number of
  /// starts that are issued right before it.
  std::vector<NodeId> nextIssue;
  std::vector<int32_t> issuesBefore;
  /// Indexed by node: whether it may be placed whenever it is ready, because it takes no time and allocates nothing.
  std::vector<bool> freeToRun;
  /// Indexed by compute: the only start that uses its results, directly or through other such computes, or kNone.
  /// Example: a product that computes the gradient of a weight is an exclusive producer of its reduce-scatter.
  std::vector<NodeId> exclusiveStart;
  /// Indexed by node: whether it is a compute between the stages of a reduction: it works on results of collectives
  /// alone, and only further collectives use what it gives. Example: the division between an all-reduce over the
  /// replicas of a gradient and the reduce-scatter that follows. It needs its inputs when these collectives are needed,
  /// not earlier.
  std::vector<bool> isStage;
  /// Indexed by node: whether a compute that takes time and is not a stage needs the node, directly or through others.
  std::vector<bool> isNeeded;
  /// Whether the block has reductions of several stages that nothing needs before its end: gradients of hybrid
  /// sharding, for example. Stages between the layers of tensor parallelism are needed.
  bool hasDeferredStages = false;
  /// Indexed by start: what its exclusive producers take together, in permille of what it takes. If that is more than
  /// 1,000, it pays to defer them behind the start of a long collective at the block's end. Otherwise their own
  /// collective, which would follow that one on the lane, would cost more than the deferral saves (Bounds.md,
  /// Lemma 9). A start that may be merged takes its share of one bucket of all its key: dozens of small gradients that
  /// are deferred together pay one latency (Lemma 20).
  std::vector<int64_t> gainOfDeferral;
  /// Indexed by node: the longest path that leaves it, without its own cost (its upward rank), ns.
  std::vector<Ns> tail;
  /// Whether a pack may do the work of a node: the node is the cast of the start that leads it.
  bool isFusable(NodeId node) const { return leader[node] != node && fused[leader[node]] == node; }
  /// The length of the longest path, ns.
  Ns criticalPath = 0;
  /// Indexed by lane: the sum of its work, ns. Then the largest sum of a communication lane.
  std::vector<Ns> load;
  Ns busiestLoad = 0;
  /// The cost of the collective at the middle of the busiest communication lane's load, by ascending cost, ns.
  Ns medianCollective = 0;
  /// The time that Policy::horizon is a share of, ns: a lower bound on the makespan.
  Ns horizonBase() const { return std::max(load[0], criticalPath); }
  /// Indexed by merge key: the bytes of all its starts.
  std::vector<Bytes> keyBytes;

private:
  void findFeeders();
  void findIssueOrder();
  void findExclusiveProducers();
  void findStages();
  void findPaths();
  void measureLanes();
};

/// An order that fits the limit and that a decode can fall back to at any time, with what follows from it.
struct Reference {
  /// O(N + E).
  Reference(const ScheduleFacts &facts, Order order);

  /// The position of something that never happens in the order.
  static constexpr int32_t kNever = INT32_MAX;

  Order order;
  /// Indexed by node: its position.
  std::vector<int32_t> position;
  /// Indexed by position, and one position more: the compute time before it, ns.
  std::vector<Ns> computeBefore;
  /// Indexed by node: the first position of a compute that needs its result, directly or through views, waits and
  /// starts; kNever if only the block's end needs it, as a reduced gradient, or one that is cast and returned.
  std::vector<int32_t> need;
  /// Indexed by start: whether it is terminal, which means that only the block's end needs its result. A terminal start
  /// yields to the others.
  std::vector<bool> terminal;
  Bytes peak = 0;
  Ns makespan = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_SCHEDULEFACTS_H
