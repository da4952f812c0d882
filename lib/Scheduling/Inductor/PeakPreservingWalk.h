//===- PeakPreservingWalk.h - Walk of the two peak-preserving passes --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Costs as the options scale them, the compute that hides a collective, the walk of one start or wait as far as both
// directions agree, and the loop over all of them with its guard on the makespan. Private to lib/Scheduling.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_INDUCTOR_PEAKPRESERVINGWALK_H
#define COMMSCHED_LIB_SCHEDULING_INDUCTOR_PEAKPRESERVINGWALK_H

#include "CommSched/Scheduling/Inductor/PeakPreserving.h"
#include "GroupWalk.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched::peakwalk {

enum Tag : uint8_t { kTagStart = 1, kTagHybrid = 2, kTagWait = 4 };

/// Costs in thousandths of an ns: cost x the options' permille.
class ScaledCosts {
public:
  ScaledCosts(const Problem &problem, const PeakPreservingOptions &options);

  /// Indexed by node: the work that it adds to the compute lane; 0 for starts and waits.
  llvm::ArrayRef<int64_t> work() const { return workOf; }
  llvm::ArrayRef<uint8_t> tags() const { return tagOf; }
  /// The duration of the collective that a start issues or a wait waits for.
  int64_t collective(NodeId node) const;
  /// Compute beyond this much hides a collective.
  int64_t hiddenAbove(int64_t collectiveTime) const;
  llvm::ArrayRef<int32_t> waitsOf(NodeId start) const { return waits[start]; }

private:
  const Problem &problem;
  int64_t commPermille, extraPermille;
  Ns mostNs = 0;
  std::vector<int64_t> workOf;
  std::vector<uint8_t> tagOf;
  IndexLists waits;
};

/// The work that hides a collective, and the position at which it ends.
struct Hiding {
  int64_t work = 0;
  /// Position of the node that ends it: the first wait, or a node at which the collective has ended anyway.
  int32_t end = 0;
};

/// The part of a time that work does not cover.
inline int64_t exposedPart(int64_t time, int64_t work) { return time > work ? time - work : 0; }

/// The walk of one start or wait. This class has the loop, the limits and the record; the rule of the pass decides
/// whether a neighbour is taken along, passed, or ends the walk.
class Mover {
public:
  Mover(const Problem &problem, const ScaledCosts &costs, const PeakPreservingOptions &options, GroupWalk &walk,
        NodeId node, Bytes limit)
      : problem(problem), costs(costs), common(options), walk(walk), limit(limit) {
    record.node = node;
  }
  virtual ~Mover() = default;

  /// Moves the node as far as the rules allow.
  CollectiveRecord run();

protected:
  /// With estimates, before the first step: fills in `hidden`.
  virtual void measure() = 0;
  /// Takes one neighbour along, passes a run of them, or stops.
  virtual void step(NodeId neighbour) = 0;
  /// With estimates: nodes with this much work in total were passed.
  virtual void passed(int64_t work) = 0;

  void stop(LimitingFactor factor, NodeId blocker = kNone, int64_t reached = 0, int64_t bound = 0);
  /// Stops because passing `blocker` would expose others by `scaled` more.
  void stopExposing(NodeId blocker, int64_t scaled);
  /// The neighbour joins the group, unless that is full.
  void takeAlong(NodeId neighbour);
  /// Passes the neighbours up to and including the one at `to`, or as far as memory allows; then false.
  bool advance(int32_t to);

  NodeKind kindOf(NodeId node) const { return problem.nodes[node].kind; }
  bool isGemm(NodeId node) const;
  /// Work between a start and its first wait, a wait for a later start on its lane, or a hybrid on its lane, whichever
  /// comes first. Looks no further once the work exceeds `enough`.
  Hiding hidingOfStart(NodeId start, int64_t enough = kLargestAmount) const;
  /// The same for the collective behind a wait; work from the block's beginning where it came in as an argument.
  Hiding hidingOfWait(NodeId wait, int64_t enough = kLargestAmount) const;
  /// Whether this wait is the one that the compute lane may stand still in: the first of its collective.
  bool isFirstWait(NodeId wait) const;
  /// How much more exposed the collective of `node` is with `less` of the work that hides it.
  int64_t exposureWithout(NodeId node, int64_t less) const;

  const Problem &problem;
  const ScaledCosts &costs;
  const PeakPreservingOptions &common;
  GroupWalk &walk;
  Bytes limit;
  CollectiveRecord record;
  /// The collective's time, the work that hides it, and the group's work; scaled.
  int64_t time = 0, hidden = 0, groupWork = 0;
};

/// Moves one start or wait on a walk, within a memory limit.
using MoveOne = llvm::function_ref<CollectiveRecord(const ScaledCosts &, GroupWalk &, NodeId, Bytes limit)>;

/// Moves every node of a kind: left, from left to right, or right, from right to left. With estimates, guards the
/// makespan: moves that would leave it larger than the given order's are taken back. All nodes are tried at once; where
/// that fails, the first and the second half one after the other, and so on, down to single nodes as long as the
/// options' `guardAttempts` last. Each half may use half of them, the second one also what the first one left.
Schedule moveAll(const Problem &problem, llvm::ArrayRef<NodeId> order, const PeakPreservingOptions &options,
                 NodeKind kind, WalkDirection direction, MoveOne moveOne);

} // namespace commsched::peakwalk

#endif // COMMSCHED_LIB_SCHEDULING_INDUCTOR_PEAKPRESERVINGWALK_H
