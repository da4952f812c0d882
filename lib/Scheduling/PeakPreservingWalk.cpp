//===- PeakPreservingWalk.cpp - What the two peak-preserving passes share ---------------------===//

#include "PeakPreservingWalk.h"
#include "CommSched/Scheduling/Memory.h"
#include "CommSched/Scheduling/Timeline.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::peakwalk;

namespace {

constexpr int64_t kPermille = 1000;
constexpr int64_t kMillion = 1'000'000;

/// Larger than any sum of sizes, and small enough that sums with it do not overflow.
constexpr Bytes kNoLimit = INT64_MAX / 4;

/// How many collectives that raise the makespan are left out one by one.
constexpr int kGuardRounds = 4;

} // namespace

Bytes commsched::peakLimitOf(const PeakPreservingOptions &options, Bytes inputPeak) {
  if (options.peakLimitBytes >= 0)
    return std::min(options.peakLimitBytes, kNoLimit);
  Bytes base = options.inputPeakBytes >= 0 ? options.inputPeakBytes : inputPeak;
  __int128 limit = base + static_cast<__int128>(base) * options.peakBudgetPpm / kMillion;
  return limit > kNoLimit ? kNoLimit : static_cast<Bytes>(limit);
}

ScaledCosts::ScaledCosts(const Problem &problem, const PeakPreservingOptions &options)
    : problem(problem), commPermille(options.commTimePermille), extraPermille(options.extraOverlapPermille),
      workOf(problem.size(), 0), tagOf(problem.size(), 0) {
  // Absurd costs are cut, so that no sum of scaled ones overflows: at 100,000 nodes above 5 s each.
  int64_t largestPermille = std::max({options.commTimePermille, options.computeTimePermille, kPermille});
  mostNs = INT64_MAX / 16 / std::max<int64_t>(problem.size(), 1) / largestPermille;
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    switch (node.kind) {
    case NodeKind::Compute:
      workOf[id] = std::min(node.cost, mostNs) * options.computeTimePermille;
      break;
    case NodeKind::Start:
      tagOf[id] = kTagStart;
      break;
    case NodeKind::Hybrid:
      workOf[id] = std::min(node.cost, mostNs) * options.commTimePermille;
      tagOf[id] = kTagHybrid;
      break;
    case NodeKind::Wait:
      tagOf[id] = kTagWait;
      break;
    }
  }
  IndexLists startOf;
  startOf.reserve(problem.size(), problem.size());
  for (const Node &node : problem.nodes)
    startOf.append(node.start == kNone ? llvm::ArrayRef<int32_t>() : llvm::ArrayRef<int32_t>(node.start));
  waits = startOf.transposed(problem.size());
}

int64_t ScaledCosts::collective(NodeId id) const {
  const Node &node = problem.nodes[id];
  Ns time = node.cost;
  if (node.kind == NodeKind::Wait)
    time = node.start == kNone ? node.ready : problem.nodes[node.start].cost;
  return std::min(time, mostNs) * commPermille;
}

int64_t ScaledCosts::hiddenAbove(int64_t collectiveTime) const {
  return collectiveTime + static_cast<int64_t>(static_cast<__int128>(collectiveTime) * extraPermille / kPermille);
}

Hiding peakwalk::hidingOfStart(const Problem &problem, const ScaledCosts &costs, const OrderTree &tree, NodeId start,
                               int64_t enough) {
  int32_t begin = tree.position(start) + 1;
  int32_t end = tree.size();
  for (NodeId wait : costs.waitsOf(start))
    end = std::min(end, tree.position(wait));
  LaneId lane = problem.nodes[start].lane;
  for (int32_t from = begin; from < end;) {
    int32_t at = tree.firstTagged(from, end, kTagWait | kTagHybrid);
    if (at == kNone)
      break;
    if (int64_t work = tree.work(begin, at); work > enough)
      return {work, at};
    const Node &node = problem.nodes[tree.at(at)];
    bool ended = node.kind == NodeKind::Hybrid ? node.lane == lane
                                               : node.start != kNone && problem.nodes[node.start].lane == lane &&
                                                     tree.position(node.start) >= begin;
    if (ended)
      end = at;
    from = at + 1;
  }
  return {tree.work(begin, end), end};
}

bool peakwalk::isFirstWait(const Problem &problem, const ScaledCosts &costs, const OrderTree &tree, NodeId wait) {
  NodeId start = problem.nodes[wait].start;
  if (start == kNone || costs.waitsOf(start).size() == 1)
    return true;
  int32_t at = tree.position(wait);
  return llvm::all_of(costs.waitsOf(start), [&](NodeId other) { return tree.position(other) >= at; });
}

Hiding peakwalk::hidingOfWait(const Problem &problem, const ScaledCosts &costs, const OrderTree &tree, NodeId wait,
                              int64_t enough) {
  if (NodeId start = problem.nodes[wait].start; start != kNone)
    return hidingOfStart(problem, costs, tree, start, enough);
  int32_t at = tree.position(wait);
  return {tree.work(0, at), at};
}

bool peakwalk::isGemm(const PeakPreservingOptions &options, NodeId node) {
  return static_cast<unsigned>(node) < options.gemms.size() && options.gemms.test(node);
}

namespace {

/// One attempt: the movers [0, count) without those that are left out.
class Attempts {
public:
  Attempts(const Problem &problem, llvm::ArrayRef<NodeId> order, const PeakPreservingOptions &options,
           WalkDirection direction, const ScaledCosts &costs, llvm::ArrayRef<NodeId> movers,
           llvm::function_ref<CollectiveRecord(GroupWalk &, NodeId, Bytes)> moveOne)
      : problem(problem), given(order), options(options), direction(direction), costs(costs), movers(movers),
        moveOne(moveOne), leftOut(movers.size()), raisedTo(movers.size(), 0),
        limit(peakLimitOf(options, peakOf(problem, order))), givenMakespan(makespanOf(problem, order)) {}

  ReorderResult run(size_t count, LimitingFactor beyond) {
    ReorderResult result;
    result.peakLimit = limit;
    GroupWalk walk(problem, given, direction, costs.work(), costs.tags());
    for (size_t index = 0; index < movers.size(); ++index) {
      CollectiveRecord record;
      record.node = movers[index];
      if (index >= count) {
        record.factor = beyond;
        record.limit = beyond == LimitingFactor::MoveLimit ? options.moveLimit : givenMakespan;
      } else if (leftOut[index]) {
        record.factor = LimitingFactor::Makespan;
        record.reached = raisedTo[index];
        record.limit = givenMakespan;
      } else {
        record = moveOne(walk, movers[index], limit);
      }
      result.records.push_back(record);
      if (!options.memoryRecompute || record.moves == 0)
        continue;
      if (result.error = walk.recount(); !result.error.empty()) {
        result.order.assign(given.begin(), given.end());
        return result;
      }
    }
    result.order = walk.order();
    return result;
  }

  ReorderResult runGuarded(size_t count) {
    ReorderResult result = run(count, LimitingFactor::MoveLimit);
    if (!options.useEstimates || !result.error.empty())
      return result;
    for (int round = 0;; ++round) {
      Ns makespan = makespanOf(problem, result.order);
      if (makespan <= givenMakespan)
        return result;
      // `good` movers do not raise the makespan, `bad` ones do; in the end they are neighbours.
      size_t good = 0, bad = count;
      while (bad - good > 1) {
        size_t middle = good + (bad - good) / 2;
        Ns reached = makespanOf(problem, run(middle, LimitingFactor::None).order);
        if (reached <= givenMakespan)
          good = middle;
        else
          bad = middle, makespan = reached;
      }
      raisedTo[bad - 1] = makespan;
      leftOut.set(static_cast<unsigned>(bad - 1));
      if (round == kGuardRounds)
        return run(good, LimitingFactor::Makespan);
      result = run(count, LimitingFactor::MoveLimit);
    }
  }

private:
  const Problem &problem;
  llvm::ArrayRef<NodeId> given;
  const PeakPreservingOptions &options;
  WalkDirection direction;
  const ScaledCosts &costs;
  llvm::ArrayRef<NodeId> movers;
  llvm::function_ref<CollectiveRecord(GroupWalk &, NodeId, Bytes)> moveOne;
  llvm::BitVector leftOut;
  std::vector<Ns> raisedTo;
  Bytes limit;
  Ns givenMakespan;
};

} // namespace

ReorderResult peakwalk::moveAll(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                const PeakPreservingOptions &options, WalkDirection direction, const ScaledCosts &costs,
                                llvm::ArrayRef<NodeId> movers,
                                llvm::function_ref<CollectiveRecord(GroupWalk &, NodeId, Bytes)> moveOne) {
  size_t count = movers.size();
  if (options.moveLimit >= 0)
    count = std::min(count, static_cast<size_t>(options.moveLimit));
  ReorderResult result;
  if (count == 0)
    result.order.assign(order.begin(), order.end());
  else
    result = Attempts(problem, order, options, direction, costs, movers, moveOne).runGuarded(count);
  measureExposure(problem, order, result);
  return result;
}
