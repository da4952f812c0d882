//===- ReorderPreservingPeak.cpp - Starts move left within a peak -----------------------------===//
//
// One start at a time, from left to right. Its neighbour on the left is passed, or taken along where the start depends
// on it, until something forbids it. Whole runs of neighbours are decided at once: what is in the way, the sum of
// compute that hides the start, and the memory limit are each one question to the tree. Only neighbours whose passing
// changes what hides what, other collectives, are looked at one by one, and only with estimates.
//
//===-----------------------------------------------------------------------------------------===//

#include "PeakPreservingWalk.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::peakwalk;

namespace {

constexpr int64_t kUnbounded = INT64_MAX / 4;

/// The walk of one start.
class StartWalk {
public:
  StartWalk(const Problem &problem, const ScaledCosts &costs, const ReorderPreservingPeakOptions &options,
            GroupWalk &walk, NodeId start, Bytes limit)
      : problem(problem), costs(costs), options(options), walk(walk), start(start), limit(limit) {
    record.node = start;
  }

  CollectiveRecord run() {
    walk.begin(start);
    if (options.useEstimates) {
      time = costs.collective(start);
      hidden = hidingOfStart(problem, costs, walk.tree(), start, costs.hiddenAbove(time)).work;
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
    bool collective = kind == NodeKind::Start || kind == NodeKind::Hybrid;
    if (!options.unsafeCollectivesReorder && collective)
      return stop(LimitingFactor::CollectiveOrder, neighbour);
    int32_t blocker = walk.blocker(), first = walk.groupFirst();
    if (blocker == first - 1)
      return takeAlong(neighbour);
    int32_t to = blocker + 1;
    if (options.useEstimates && collective)
      return passCollective(neighbour);
    if (options.useEstimates || !options.unsafeCollectivesReorder)
      if (int32_t next = tree.lastTagged(to, first, kTagStart | kTagHybrid); next != kNone)
        to = next + 1;
    passRun(to);
  }

  void takeAlong(NodeId neighbour) {
    const Node &node = problem.nodes[neighbour];
    if (node.kind == NodeKind::Start && !options.groupWithCollectives) {
      // Nothing but an ordering edge leads from one start to another.
      bool ordering = llvm::any_of(problem.succs[neighbour], [&](NodeId succ) {
        return walk.contains(succ) && problem.nodes[succ].kind == NodeKind::Start;
      });
      return stop(ordering ? LimitingFactor::CollectiveOrder : LimitingFactor::DataDependence, neighbour);
    }
    if (!options.useEstimates && isGemm(options, neighbour))
      return stop(LimitingFactor::DataDependence, neighbour);
    if (record.grouped >= options.groupLimitNodes)
      return stop(LimitingFactor::GroupLimit, neighbour, 0, options.groupLimitNodes);
    if (options.useEstimates) {
      if (node.kind == NodeKind::Wait && isFirstWait(problem, costs, walk.tree(), neighbour))
        groupWaits.push_back(
            {node.start, hidingOfWait(problem, costs, walk.tree(), neighbour).work - costs.collective(neighbour)});
      // A wait that travels with its start keeps what hides it.
      if (node.kind == NodeKind::Start)
        llvm::erase_if(groupWaits, [&](const GroupWait &wait) { return wait.start == neighbour; });
      groupWork += costs.work()[neighbour];
    }
    walk.absorb();
    ++record.grouped;
  }

  /// A start or hybrid, with estimates: what it does to the exposed times is looked at on its own.
  void passCollective(NodeId neighbour) {
    if (problem.nodes[neighbour].kind == NodeKind::Start) {
      if (groupWork > 0) {
        int64_t its = costs.collective(neighbour);
        int64_t work = hidingOfStart(problem, costs, walk.tree(), neighbour, its + groupWork).work;
        if (int64_t more = exposedPart(its, work - groupWork) - exposedPart(its, work); more > 0)
          return stop(LimitingFactor::ExposesOthers, neighbour, toNs(more));
      }
    } else if (int64_t more = netExposure(costs.work()[neighbour]); more > 0) {
      return stop(LimitingFactor::ExposesOthers, neighbour, toNs(more));
    }
    if (!advance(walk.groupFirst() - 1))
      return;
    hidden = hidingOfStart(problem, costs, walk.tree(), start, costs.hiddenAbove(time)).work;
  }

  /// Passes neighbours down to the position `to`. With estimates they are computes and waits.
  void passRun(int32_t to) {
    if (options.useEstimates) {
      const OrderTree &tree = walk.tree();
      int32_t first = walk.groupFirst();
      // No further than the node that hides the start.
      if (int32_t enough = tree.lastWithWork(to, first, costs.hiddenAbove(time) - hidden); enough != kNone)
        to = enough;
      // No further than net exposure falls. The first node beyond that point is tried on its own.
      if (int64_t room = workWithoutLoss(); room < kUnbounded)
        if (int32_t beyond = tree.lastWithWork(to, first, room); beyond != kNone) {
          if (beyond == first - 1) {
            NodeId neighbour = walk.neighbour();
            if (int64_t more = netExposure(costs.work()[neighbour]); more > 0)
              return stop(LimitingFactor::ExposesOthers, neighbour, toNs(more));
            to = beyond;
          } else {
            to = beyond + 1;
          }
        }
    }
    int32_t before = walk.groupFirst();
    advance(to);
    if (options.useEstimates)
      hidden += walk.tree().work(walk.groupLast(), walk.groupLast() + before - walk.groupFirst());
  }

  /// Moves the group to the position `to`, or as far as memory allows.
  bool advance(int32_t to) {
    int32_t before = walk.groupFirst();
    GroupWalk::Stop refused = walk.advance(to, limit);
    int32_t passed = before - walk.groupFirst();
    record.moves += passed;
    int64_t work = walk.tree().work(walk.groupLast(), walk.groupLast() + passed);
    for (GroupWait &wait : groupWaits)
      wait.slack -= work;
    if (refused.node == kNone)
      return true;
    stop(LimitingFactor::PeakMemory, refused.node, refused.reached, limit);
    return false;
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
    int64_t least = kUnbounded, second = kUnbounded;
    for (const GroupWait &wait : groupWaits) {
      int64_t slack = std::max<int64_t>(wait.slack, 0);
      if (slack < least)
        second = least, least = slack;
      else
        second = std::min(second, slack);
    }
    return std::max(least, std::min(exposedPart(time, hidden), second));
  }

  static Ns toNs(int64_t scaled) { return scaled / 1000; }

  /// A wait that was taken along: the start that it belongs to, and how much more work than needed hides that.
  struct GroupWait {
    NodeId start;
    int64_t slack;
  };

  const Problem &problem;
  const ScaledCosts &costs;
  const ReorderPreservingPeakOptions &options;
  GroupWalk &walk;
  NodeId start;
  Bytes limit;
  CollectiveRecord record;
  /// The start's own time, the work that hides it, and the group's work; scaled.
  int64_t time = 0, hidden = 0, groupWork = 0;
  llvm::SmallVector<GroupWait, 4> groupWaits;
};

} // namespace

ReorderResult commsched::reorderPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                                     const ReorderPreservingPeakOptions &options) {
  ScaledCosts costs(problem, options);
  std::vector<NodeId> starts;
  llvm::copy_if(order, std::back_inserter(starts),
                [&](NodeId id) { return problem.nodes[id].kind == NodeKind::Start; });
  return moveAll(problem, order, options, WalkDirection::Left, costs, starts,
                 [&](GroupWalk &walk, NodeId start, Bytes limit) {
                   return StartWalk(problem, costs, options, walk, start, limit).run();
                 });
}
