//===- ReorderPreservingPeak.cpp - Starts move left within a peak -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One start at a time, from left to right. Its neighbour on the left is passed, or taken along where the start depends
// on it, until something forbids it. Whole runs of neighbours are decided at once: what is in the way, the sum of
// compute that hides the start, and the memory limit are each one question to the tree. Only neighbours whose passing
// changes what hides what, other collectives, are looked at one by one, and only with estimates.
//
//===------------------------------------------------------------------------------------------===//

#include "PeakPreservingWalk.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::peakwalk;

namespace {

/// The walk of one start.
class StartMover : public Mover {
public:
  StartMover(const Problem &problem, const ScaledCosts &costs, const ReorderPreservingPeakOptions &options,
             GroupWalk &walk, NodeId start, Bytes limit)
      : Mover(problem, costs, options, walk, start, limit), options(options) {}

private:
  void measure() final { hidden = hidingOfStart(record.node, costs.hiddenAbove(time)).work; }

  void step(NodeId neighbour) final {
    bool collective = kindOf(neighbour) == NodeKind::Start || kindOf(neighbour) == NodeKind::Hybrid;
    if (!options.unsafeCollectivesReorder && collective)
      return stop(LimitingFactor::CollectiveOrder, neighbour);
    int32_t blocker = walk.blocker(), first = walk.groupFirst();
    if (blocker == first - 1)
      return takeDependence(neighbour);
    if (options.useEstimates && collective)
      return passCollective(neighbour);
    int32_t to = blocker + 1;
    if (options.useEstimates || !options.unsafeCollectivesReorder)
      if (int32_t next = walk.tree().lastTagged(to, first, kTagStart | kTagHybrid); next != kNone)
        to = next + 1;
    options.useEstimates ? passRun(to) : static_cast<void>(advance(to));
  }

  /// A neighbour that the group depends on.
  void takeDependence(NodeId neighbour) {
    NodeKind kind = kindOf(neighbour);
    if (kind == NodeKind::Start && !options.groupWithCollectives) {
      // Nothing but an ordering edge leads from one start to another.
      bool ordering = llvm::any_of(problem.succs[neighbour],
                                   [&](NodeId succ) { return walk.contains(succ) && kindOf(succ) == NodeKind::Start; });
      return stop(ordering ? LimitingFactor::CollectiveOrder : LimitingFactor::DataDependence, neighbour);
    }
    if (!options.useEstimates && isGemm(neighbour))
      return stop(LimitingFactor::DataDependence, neighbour);
    if (options.useEstimates && kind == NodeKind::Wait && isFirstWait(neighbour))
      groupWaits.push_back(
          {problem.nodes[neighbour].start, hidingOfWait(neighbour).work - costs.collective(neighbour)});
    // A wait that travels with its start keeps what hides it.
    if (kind == NodeKind::Start)
      llvm::erase_if(groupWaits, [&](const GroupWait &wait) { return wait.start == neighbour; });
    takeAlong(neighbour);
  }

  /// A start or hybrid, with estimates: what it does to the exposed times is looked at on its own.
  void passCollective(NodeId neighbour) {
    int64_t more = 0;
    if (kindOf(neighbour) == NodeKind::Hybrid)
      more = netExposure(costs.work()[neighbour]);
    else if (groupWork > 0)
      more = exposureWithout(neighbour, groupWork);
    if (more > 0)
      return stopExposing(neighbour, more);
    if (advance(walk.groupFirst() - 1))
      measure();
  }

  /// Passes neighbours down to the position `to`, with estimates. They are computes and waits.
  void passRun(int32_t to) {
    const OrderTree &tree = walk.tree();
    int32_t first = walk.groupFirst();
    // No further than the node that hides the start.
    if (int32_t enough = tree.lastWithWork(to, first, costs.hiddenAbove(time) - hidden); enough != kNone)
      to = enough;
    // No further than net exposure falls. The first node beyond that point is tried on its own.
    if (int64_t room = workWithoutLoss(); room < kLargestAmount)
      if (int32_t beyond = tree.lastWithWork(to, first, room); beyond != kNone) {
        if (beyond == first - 1)
          if (int64_t more = netExposure(costs.work()[walk.neighbour()]); more > 0)
            return stopExposing(walk.neighbour(), more);
        to = std::min(beyond + 1, first - 1);
      }
    advance(to);
  }

  void passed(int64_t work) final {
    hidden += work;
    for (GroupWait &wait : groupWaits)
      wait.slack -= work;
  }

  /// What passing this much work more does to the exposed time of the start and of the waits in the group.
  int64_t netExposure(int64_t work) const {
    if (work == 0 || groupWaits.empty())
      return 0;
    int64_t change = exposedPart(time, hidden + work) - exposedPart(time, hidden);
    for (const GroupWait &wait : groupWaits)
      change += exposedPart(work, wait.slack) - exposedPart(0, wait.slack);
    return change;
  }

  /// How much work may be passed in any portions before net exposure, a convex function of it, begins to rise. While
  /// the start is exposed, one wait of the group may be exposed in turn; after that, none.
  int64_t workWithoutLoss() const {
    int64_t least = kLargestAmount, second = kLargestAmount;
    for (const GroupWait &wait : groupWaits) {
      int64_t slack = std::max<int64_t>(wait.slack, 0);
      if (slack < least)
        second = least, least = slack;
      else
        second = std::min(second, slack);
    }
    return std::max(least, std::min(exposedPart(time, hidden), second));
  }

  /// A wait that was taken along: the start that it belongs to, and how much more work than needed hides that.
  struct GroupWait {
    NodeId start;
    int64_t slack;
  };

  const ReorderPreservingPeakOptions &options;
  llvm::SmallVector<GroupWait, 4> groupWaits;
};

} // namespace

Schedule commsched::reorderPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                                const ReorderPreservingPeakOptions &options) {
  return moveAll(problem, order, options, NodeKind::Start, WalkDirection::Left,
                 [&](const ScaledCosts &costs, GroupWalk &walk, NodeId start, Bytes limit) {
                   return StartMover(problem, costs, options, walk, start, limit).run();
                 });
}
