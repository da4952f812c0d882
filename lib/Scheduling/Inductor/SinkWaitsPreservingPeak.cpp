//===- SinkWaitsPreservingPeak.cpp - Waits move right within a peak ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The mirror image of ReorderPreservingPeak: one wait at a time, from right to left; what depends on it is taken along.
// A wait does not pass a start unless told to, and takes neither waits nor starts along.
//
//===------------------------------------------------------------------------------------------===//

#include "PeakPreservingWalk.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::peakwalk;

namespace {

/// The walk of one wait.
class WaitMover : public Mover {
public:
  WaitMover(const Problem &problem, const ScaledCosts &costs, const SinkWaitsPreservingPeakOptions &options,
            GroupWalk &walk, NodeId wait, Bytes limit)
      : Mover(problem, costs, options, walk, wait, limit), options(options) {}

private:
  void measure() final {
    // Nothing is gained by moving a wait that another wait for the same collective precedes.
    if (!isFirstWait(record.node))
      return stop(LimitingFactor::AlreadyHidden);
    Hiding hiding = hidingOfWait(record.node, costs.hiddenAbove(time));
    hidden = hiding.work;
    growing = hiding.end == walk.groupFirst();
  }

  void step(NodeId neighbour) final {
    NodeKind kind = kindOf(neighbour);
    if (!options.swapWithCollectives && kind == NodeKind::Start)
      return stop(LimitingFactor::CollectiveOrder, neighbour);
    int32_t blocker = walk.blocker(), last = walk.groupLast();
    bool dependent = blocker == last;
    bool bothCollectives = groupHasHybrid && (kind == NodeKind::Start || kind == NodeKind::Hybrid);
    if (dependent || bothCollectives) {
      if (mayTakeAlong(neighbour)) {
        groupHasHybrid |= kind == NodeKind::Hybrid;
        return takeAlong(neighbour);
      }
      if (dependent)
        return stop(LimitingFactor::DataDependence, neighbour);
      if (!options.unsafeCollectivesReorder)
        return stop(LimitingFactor::CollectiveOrder, neighbour);
    }
    uint8_t alone = tagsToPassAlone();
    if (costs.tags()[neighbour] & alone)
      return passAlone(neighbour);
    int32_t end = blocker;
    if (alone != 0)
      if (int32_t next = walk.tree().firstTagged(last, end, alone); next != kNone)
        end = next;
    // No further than the node that hides the collective.
    if (options.useEstimates && growing)
      if (int32_t enough = walk.tree().firstWithWork(last, end, costs.hiddenAbove(time) - hidden); enough != kNone)
        end = enough + 1;
    advance(end - 1);
  }

  bool mayTakeAlong(NodeId neighbour) const {
    NodeKind kind = kindOf(neighbour);
    if (kind == NodeKind::Wait || kind == NodeKind::Start)
      return false;
    return options.useEstimates || (kind != NodeKind::Hybrid && !isGemm(neighbour));
  }

  /// Neighbours that are looked at on their own.
  uint8_t tagsToPassAlone() const {
    uint8_t alone = 0;
    if (options.useEstimates && (growing || groupWork > 0))
      alone |= kTagWait | kTagHybrid;
    if (!options.swapWithCollectives || groupHasHybrid)
      alone |= kTagStart;
    if (groupHasHybrid)
      alone |= kTagHybrid;
    return alone;
  }

  /// Another wait, or a collective.
  void passAlone(NodeId neighbour) {
    // The group's work hides the other wait's collective no more.
    if (options.useEstimates && kindOf(neighbour) == NodeKind::Wait && groupWork > 0 && isFirstWait(neighbour))
      if (int64_t more = exposureWithout(neighbour, groupWork); more > 0)
        return stopExposing(neighbour, more);
    if (growing && endsCollective(neighbour))
      growing = false;
    advance(walk.groupLast());
  }

  /// Whether the collective has ended at this node anyway: it, or a later one on its lane, is waited for.
  bool endsCollective(NodeId id) const {
    const Node &node = problem.nodes[id];
    NodeId start = problem.nodes[record.node].start;
    if (start == kNone)
      return false;
    if (node.kind == NodeKind::Hybrid)
      return node.lane == problem.nodes[start].lane;
    return node.kind == NodeKind::Wait && node.start != kNone &&
           problem.nodes[node.start].lane == problem.nodes[start].lane &&
           walk.tree().position(node.start) >= walk.tree().position(start);
  }

  void passed(int64_t work) final {
    if (growing)
      hidden += work;
  }

  const SinkWaitsPreservingPeakOptions &options;
  /// What the wait passes hides its collective: nothing else ends that before.
  bool growing = false;
  bool groupHasHybrid = false;
};

} // namespace

Schedule commsched::sinkWaitsPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                                  const SinkWaitsPreservingPeakOptions &options) {
  return moveAll(problem, order, options, NodeKind::Wait, WalkDirection::Right,
                 [&](const ScaledCosts &costs, GroupWalk &walk, NodeId wait, Bytes limit) {
                   return WaitMover(problem, costs, options, walk, wait, limit).run();
                 });
}
