//===- SinkWaitsPreservingPeak.cpp - Waits move right within a peak ---------------------------===//
//
// The mirror image of ReorderPreservingPeak: one wait at a time, from right to left; what depends on it is taken along.
// A wait does not pass a start unless told to, and takes neither waits nor starts along.
//
//===-----------------------------------------------------------------------------------------===//

#include "PeakPreservingWalk.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::peakwalk;

namespace {

/// The walk of one wait.
class WaitWalk {
public:
  WaitWalk(const Problem &problem, const ScaledCosts &costs, const SinkWaitsPreservingPeakOptions &options,
           GroupWalk &walk, NodeId wait, Bytes limit)
      : problem(problem), costs(costs), options(options), walk(walk), wait(wait), limit(limit) {
    record.node = wait;
  }

  CollectiveRecord run() {
    walk.begin(wait);
    if (options.useEstimates) {
      // Nothing is gained by moving a wait that another wait for the same collective precedes.
      if (!isFirstWait(problem, costs, walk.tree(), wait))
        stop(LimitingFactor::AlreadyHidden);
      time = costs.collective(wait);
      Hiding hiding = hidingOfWait(problem, costs, walk.tree(), wait, costs.hiddenAbove(time));
      hidden = hiding.work;
      growing = hiding.end == walk.groupFirst();
    }
    while (record.factor == LimitingFactor::None)
      step();
    walk.end();
    return record;
  }

private:
  void stop(LimitingFactor factor, NodeId blocker = kNone, int64_t reached = 0, int64_t bound = 0) {
    record.factor = factor;
    record.blocker = blocker;
    record.reached = reached;
    record.limit = bound;
  }

  /// Takes one neighbour along, passes a run of them, or stops.
  void step() {
    if (options.useEstimates && hidden > costs.hiddenAbove(time))
      return stop(LimitingFactor::AlreadyHidden);
    if (walk.atEnd())
      return stop(LimitingFactor::BlockEnd);
    const OrderTree &tree = walk.tree();
    NodeId neighbour = walk.neighbour();
    NodeKind kind = problem.nodes[neighbour].kind;
    if (!options.swapWithCollectives && kind == NodeKind::Start)
      return stop(LimitingFactor::CollectiveOrder, neighbour);
    int32_t blocker = walk.blocker(), last = walk.groupLast();
    bool dependent = blocker == last;
    bool bothCollectives = groupHasHybrid && (kind == NodeKind::Start || kind == NodeKind::Hybrid);
    if (dependent || bothCollectives) {
      if (mayTakeAlong(neighbour))
        return takeAlong(neighbour);
      if (dependent)
        return stop(LimitingFactor::DataDependence, neighbour);
      if (!options.unsafeCollectivesReorder)
        return stop(LimitingFactor::CollectiveOrder, neighbour);
    }
    uint8_t alone = 0;
    if (options.useEstimates && (growing || groupWork > 0))
      alone |= kTagWait | kTagHybrid;
    if (!options.swapWithCollectives || groupHasHybrid)
      alone |= kTagStart;
    if (groupHasHybrid)
      alone |= kTagHybrid;
    if (costs.tags()[neighbour] & alone)
      return passAlone(neighbour);
    int32_t end = blocker;
    if (alone != 0)
      if (int32_t next = tree.firstTagged(last, end, alone); next != kNone)
        end = next;
    // No further than the node that hides the collective.
    if (options.useEstimates && growing)
      if (int32_t enough = tree.firstWithWork(last, end, costs.hiddenAbove(time) - hidden); enough != kNone)
        end = enough + 1;
    advance(end - 1);
  }

  bool mayTakeAlong(NodeId neighbour) const {
    NodeKind kind = problem.nodes[neighbour].kind;
    if (kind == NodeKind::Wait || kind == NodeKind::Start)
      return false;
    return options.useEstimates || (kind != NodeKind::Hybrid && !isGemm(options, neighbour));
  }

  void takeAlong(NodeId neighbour) {
    if (record.grouped >= options.groupLimitNodes)
      return stop(LimitingFactor::GroupLimit, neighbour, 0, options.groupLimitNodes);
    groupHasHybrid |= problem.nodes[neighbour].kind == NodeKind::Hybrid;
    groupWork += costs.work()[neighbour];
    walk.absorb();
    ++record.grouped;
  }

  /// A neighbour that is looked at on its own: another wait, or a collective.
  void passAlone(NodeId neighbour) {
    if (options.useEstimates && problem.nodes[neighbour].kind == NodeKind::Wait && groupWork > 0 &&
        isFirstWait(problem, costs, walk.tree(), neighbour)) {
      // The group's work hides the other collective no more.
      int64_t its = costs.collective(neighbour);
      int64_t work = hidingOfWait(problem, costs, walk.tree(), neighbour, its + groupWork).work;
      if (int64_t more = exposedPart(its, work - groupWork) - exposedPart(its, work); more > 0)
        return stop(LimitingFactor::ExposesOthers, neighbour, more / 1000);
    }
    if (growing && endsCollective(neighbour))
      growing = false;
    advance(walk.groupLast());
  }

  /// Whether the collective has ended at this node anyway: it, or a later one on its lane, is waited for.
  bool endsCollective(NodeId id) const {
    const Node &node = problem.nodes[id];
    NodeId start = problem.nodes[wait].start;
    if (start == kNone)
      return false;
    if (node.kind == NodeKind::Hybrid)
      return node.lane == problem.nodes[start].lane;
    return node.kind == NodeKind::Wait && node.start != kNone &&
           problem.nodes[node.start].lane == problem.nodes[start].lane &&
           walk.tree().position(node.start) >= walk.tree().position(start);
  }

  /// Moves the group so that it ends behind what is at the position `to`, or as far as memory allows.
  void advance(int32_t to) {
    int32_t before = walk.groupFirst();
    GroupWalk::Stop refused = walk.advance(to, limit);
    record.moves += walk.groupFirst() - before;
    if (growing)
      hidden += walk.tree().work(before, walk.groupFirst());
    if (refused.node != kNone)
      stop(LimitingFactor::PeakMemory, refused.node, refused.reached, limit);
  }

  const Problem &problem;
  const ScaledCosts &costs;
  const SinkWaitsPreservingPeakOptions &options;
  GroupWalk &walk;
  NodeId wait;
  Bytes limit;
  CollectiveRecord record;
  /// The collective's time, the work that hides it, and the group's work; scaled.
  int64_t time = 0, hidden = 0, groupWork = 0;
  /// What the wait passes hides its collective: nothing else ends that before.
  bool growing = false;
  bool groupHasHybrid = false;
};

} // namespace

ReorderResult commsched::sinkWaitsPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                                       const SinkWaitsPreservingPeakOptions &options) {
  ScaledCosts costs(problem, options);
  std::vector<NodeId> waits;
  llvm::copy_if(llvm::reverse(order), std::back_inserter(waits),
                [&](NodeId id) { return problem.nodes[id].kind == NodeKind::Wait; });
  return moveAll(problem, order, options, WalkDirection::Right, costs, waits,
                 [&](GroupWalk &walk, NodeId wait, Bytes limit) {
                   return WaitWalk(problem, costs, options, walk, wait, limit).run();
                 });
}
