//===- StartOutcomes.cpp - What became of every start ------------------------------------------===//
//
// Read off the finished order, not recorded by the solver: whatever found the order, the explanation is the same.
//
//===-----------------------------------------------------------------------------------------===//

#include "StartOutcomes.h"
#include "CommSched/Scheduling/Memory.h"
#include "CommSched/Scheduling/MemoryTree.h"
#include "CommSched/Scheduling/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// One order with everything that explanations look at.
class Explanation {
public:
  Explanation(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown)
      : problem(problem), order(order), line(simulate(problem, order, slowDown)),
        live(memoryProfile(problem, order).live), positions(problem.size()), exposed(problem.size(), 0),
        previous(problem.size(), kNone) {
    std::vector<NodeId> lastOnLane(problem.numLanes(), kNone);
    Ns compute = 0;
    for (int32_t at = 0; at < static_cast<int32_t>(order.size()); ++at) {
      const Node &node = problem.nodes[order[at]];
      positions[order[at]] = at;
      arrival.push_back(compute);
      compute = node.kind == NodeKind::Start ? compute + node.issue : line.end[order[at]];
      if (node.kind == NodeKind::Wait && node.start != kNone)
        exposed[node.start] += line.exposed[order[at]];
      if (node.lane != kComputeLane)
        previous[order[at]] = std::exchange(lastOnLane[node.lane], order[at]);
    }
  }

  int32_t position(NodeId node) const { return positions[node]; }
  Ns exposedOf(NodeId start) const { return exposed[start]; }

  /// Why `start`, whose issue stands at `first` or behind it (a pack, or itself), did not begin earlier.
  void explain(NodeId start, NodeId first, Bytes limit, StartOutcome &outcome) const {
    NodeId before = previous[start];
    if (before != kNone && line.end[before] == line.start[start] && line.start[start] > arrival[positions[start]]) {
      outcome.factor = LimitingFactor::LaneBusy;
      outcome.blocker = before;
      return;
    }
    NodeId last = kNone;
    for (NodeId pred : problem.preds[first])
      if (last == kNone || positions[pred] > positions[last])
        last = pred;
    int32_t earliest = last == kNone ? 0 : positions[last] + 1;
    if (arrival[earliest] >= arrival[positions[first]]) {
      outcome.factor = last == kNone ? LimitingFactor::Preference : LimitingFactor::DataDependence;
      outcome.blocker = last;
      return;
    }
    Bytes allocated = allocatedBy(start) + (first == start ? 0 : allocatedBy(first));
    Bytes reached = live.max(earliest, positions[first]) + allocated;
    outcome.factor = reached > limit ? LimitingFactor::PeakMemory : LimitingFactor::Preference;
    outcome.reached = reached > limit ? reached : 0;
  }

private:
  Bytes allocatedBy(NodeId node) const {
    Bytes bytes = 0;
    for (BufferId buffer : problem.touches[node])
      bytes += problem.buffers[buffer].def == node ? problem.buffers[buffer].bytes : 0;
    return bytes;
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> order;
  Timeline line;
  MemoryTree live;
  std::vector<int32_t> positions;
  /// Of each position: when the compute lane comes to it.
  std::vector<Ns> arrival;
  /// Of each start: how long compute stood still in its waits. Of each collective: the one before on its lane.
  std::vector<Ns> exposed;
  std::vector<NodeId> previous;
};

} // namespace

std::vector<StartOutcome> commsched::outcomesOfStarts(const Problem &problem, const ScheduleResult &result,
                                                      const SlowDown &slowDown) {
  const ExpandedProblem &expanded = result.expanded;
  Order given = identityOrder(problem);
  Explanation before(problem, given, slowDown), after(expanded.problem, result.order, slowDown);
  // Of each expanded node: an original that stands for it.
  std::vector<NodeId> originalOf = expanded.origin;
  for (NodeId node = problem.size() - 1; node >= 0; --node)
    if (originalOf[expanded.image[node]] == kNone)
      originalOf[expanded.image[node]] = node;

  std::vector<StartOutcome> outcomes;
  for (NodeId start = 0; start < problem.size(); ++start) {
    if (problem.nodes[start].kind != NodeKind::Start)
      continue;
    NodeId image = expanded.image[start];
    StartOutcome outcome;
    outcome.start = start;
    outcome.bucket = expanded.bucketOf[image];
    outcome.positionBefore = start;
    outcome.positionAfter = after.position(image);
    outcome.exposedBefore = before.exposedOf(start);
    bool tells = outcome.bucket == kNone || result.buckets[outcome.bucket].members.front() == start;
    outcome.exposedAfter = tells ? after.exposedOf(image) : 0;
    if (after.exposedOf(image) > 0) {
      NodeId pack = outcome.bucket == kNone ? kNone : expanded.buckets[outcome.bucket].pack;
      after.explain(image, pack == kNone ? image : pack, result.limit, outcome);
      outcome.blocker = outcome.blocker == kNone ? kNone : originalOf[outcome.blocker];
    }
    outcomes.push_back(outcome);
  }
  return outcomes;
}
