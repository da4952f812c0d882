//===- SeedRuleOracle.cpp - The reordering rules, word for word -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "SeedRuleOracle.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace {

/// One order under swaps of a group with its neighbour, with everything recomputed on each question.
class SwapWalk {
public:
  SwapWalk(const Problem &problem, Order order, const PeakPreservingOptions &options, Bytes limit)
      : problem(problem), order(std::move(order)), options(options), limit(limit) {}

  const Node &node(NodeId id) const { return problem.nodes[id]; }
  bool isStart(NodeId id) const { return node(id).kind == NodeKind::Start; }
  bool isWait(NodeId id) const { return node(id).kind == NodeKind::Wait; }
  bool isCollective(NodeId id) const { return isStart(id) || node(id).kind == NodeKind::Hybrid; }
  bool isGemm(NodeId id) const { return static_cast<unsigned>(id) < options.gemms.size() && options.gemms[id]; }
  int position(NodeId id) const { return static_cast<int>(llvm::find(order, id) - order.begin()); }

  int64_t work(NodeId id) const {
    if (node(id).kind == NodeKind::Compute)
      return node(id).cost * options.computeTimePermille;
    return node(id).kind == NodeKind::Hybrid ? node(id).cost * options.commTimePermille : 0;
  }
  int64_t commTime(NodeId id) const {
    Ns time = node(id).cost;
    if (isWait(id))
      time = node(id).start == kNone ? node(id).ready : node(node(id).start).cost;
    return time * options.commTimePermille;
  }
  bool hiddenEnough(int64_t comm, int64_t comp) const {
    return comm - comp < -(comm * options.extraOverlapPermille / 1000);
  }

  /// Compute after a start up to its wait, or to where the collective has ended anyway.
  int64_t compOfStart(NodeId start) const {
    int64_t comp = 0;
    std::set<NodeId> laterStarts;
    for (int at = position(start) + 1; at < static_cast<int>(order.size()); ++at) {
      NodeId id = order[at];
      if (isWait(id) && node(id).start == start)
        break;
      if (isStart(id) && node(id).lane == node(start).lane)
        laterStarts.insert(id);
      if (node(id).kind == NodeKind::Hybrid && node(id).lane == node(start).lane)
        break;
      if (isWait(id) && laterStarts.count(node(id).start))
        break;
      comp += work(id);
    }
    return comp;
  }
  int64_t compOfWait(NodeId wait) const {
    if (node(wait).start != kNone)
      return compOfStart(node(wait).start);
    int64_t comp = 0;
    for (NodeId id : order) {
      if (id == wait)
        break;
      comp += work(id);
    }
    return comp;
  }
  bool isFirstWait(NodeId wait) const {
    if (node(wait).start == kNone)
      return true;
    for (NodeId id : order)
      if (isWait(id) && node(id).start == node(wait).start)
        return id == wait;
    return false;
  }

  bool dependsOnGroup(NodeId id) const {
    return llvm::any_of(problem.preds[id], [&](NodeId pred) { return group.count(pred) != 0; });
  }
  bool groupDependsOn(NodeId id) const {
    return llvm::any_of(problem.succs[id], [&](NodeId succ) { return group.count(succ) != 0; });
  }

  /// Swaps the group with its neighbour unless they, in their new places, need more than the limit. Returns what they
  /// need.
  std::optional<Bytes> trySwap(bool left) {
    Order swapped = order;
    int first = groupFirst(), last = first + static_cast<int>(group.size());
    if (left)
      std::rotate(swapped.begin() + first - 1, swapped.begin() + first, swapped.begin() + last);
    else
      std::rotate(swapped.begin() + first, swapped.begin() + last, swapped.begin() + last + 1);
    std::vector<Bytes> live = memoryProfile(problem, swapped).live;
    Bytes most = 0;
    for (int at = left ? first - 1 : first; at < (left ? last : last + 1); ++at)
      most = std::max(most, live[at]);
    if (most > limit)
      return most;
    order = swapped;
    return std::nullopt;
  }
  int groupFirst() const {
    for (int at = 0;; ++at)
      if (group.count(order[at]))
        return at;
  }

  const Problem &problem;
  Order order;
  const PeakPreservingOptions &options;
  Bytes limit;
  std::set<NodeId> group;
};

int64_t positive(int64_t value) { return std::max<int64_t>(value, 0); }

CollectiveRecord moveStart(SwapWalk &walk, NodeId start, const ReorderPreservingPeakOptions &options) {
  CollectiveRecord record;
  record.node = start;
  auto stop = [&](LimitingFactor factor, NodeId blocker) {
    record.factor = factor;
    record.blocker = blocker;
    return record;
  };
  walk.group = {start};
  bool estimates = options.useEstimates;
  int64_t comm = walk.commTime(start), groupRuntime = 0;
  std::map<NodeId, std::pair<int64_t, int64_t>> groupWaits;
  while (true) {
    int64_t comp = walk.compOfStart(start);
    if (estimates && walk.hiddenEnough(comm, comp))
      return stop(LimitingFactor::AlreadyHidden, kNone);
    if (walk.groupFirst() == 0)
      return stop(LimitingFactor::BlockEnd, kNone);
    NodeId candidate = walk.order[walk.groupFirst() - 1];
    if (!options.unsafeCollectivesReorder && walk.isCollective(candidate))
      return stop(LimitingFactor::CollectiveOrder, candidate);
    if (walk.groupDependsOn(candidate)) {
      if (walk.isStart(candidate) && !options.groupWithCollectives) {
        bool ordering = llvm::any_of(walk.problem.succs[candidate],
                                     [&](NodeId succ) { return walk.group.count(succ) && walk.isStart(succ); });
        return stop(ordering ? LimitingFactor::CollectiveOrder : LimitingFactor::DataDependence, candidate);
      }
      if (!estimates && walk.isGemm(candidate))
        return stop(LimitingFactor::DataDependence, candidate);
      if (record.grouped >= options.groupLimitNodes)
        return stop(LimitingFactor::GroupLimit, candidate);
      if (estimates && walk.isWait(candidate) && walk.isFirstWait(candidate))
        groupWaits[candidate] = {walk.commTime(candidate), walk.compOfWait(candidate)};
      if (estimates && walk.isStart(candidate))
        for (auto it = groupWaits.begin(); it != groupWaits.end();)
          it = walk.node(it->first).start == candidate ? groupWaits.erase(it) : std::next(it);
      groupRuntime += walk.work(candidate);
      walk.group.insert(candidate);
      ++record.grouped;
      continue;
    }
    if (estimates && !walk.isStart(candidate)) {
      int64_t runtime = walk.work(candidate);
      if (runtime > 0 && !groupWaits.empty()) {
        int64_t delta = positive(comm - comp - runtime) - positive(comm - comp);
        for (auto &[wait, times] : groupWaits)
          delta += positive(times.first - times.second + runtime) - positive(times.first - times.second);
        if (delta > 0)
          return stop(LimitingFactor::ExposesOthers, candidate);
      }
    } else if (estimates && groupRuntime > 0) {
      int64_t itsComm = walk.commTime(candidate), itsComp = walk.compOfStart(candidate);
      if (positive(itsComm - itsComp + groupRuntime) > positive(itsComm - itsComp))
        return stop(LimitingFactor::ExposesOthers, candidate);
    }
    if (std::optional<Bytes> reached = walk.trySwap(/*left=*/true)) {
      record.reached = *reached;
      return stop(LimitingFactor::PeakMemory, candidate);
    }
    for (auto &[wait, times] : groupWaits)
      times.second -= walk.work(candidate);
    ++record.moves;
  }
}

CollectiveRecord moveWait(SwapWalk &walk, NodeId wait, const SinkWaitsPreservingPeakOptions &options) {
  CollectiveRecord record;
  record.node = wait;
  auto stop = [&](LimitingFactor factor, NodeId blocker) {
    record.factor = factor;
    record.blocker = blocker;
    return record;
  };
  walk.group = {wait};
  bool estimates = options.useEstimates, groupHasHybrid = false;
  if (estimates && !walk.isFirstWait(wait))
    return stop(LimitingFactor::AlreadyHidden, kNone);
  int64_t comm = walk.commTime(wait), groupRuntime = 0;
  while (true) {
    if (estimates && walk.hiddenEnough(comm, walk.compOfWait(wait)))
      return stop(LimitingFactor::AlreadyHidden, kNone);
    size_t next = walk.groupFirst() + walk.group.size();
    if (next == walk.order.size())
      return stop(LimitingFactor::BlockEnd, kNone);
    NodeId candidate = walk.order[next];
    if (!options.swapWithCollectives && walk.isStart(candidate))
      return stop(LimitingFactor::CollectiveOrder, candidate);
    bool dependent = walk.dependsOnGroup(candidate);
    bool both = groupHasHybrid && walk.isCollective(candidate);
    if (dependent || both) {
      bool groupable = !walk.isWait(candidate) && !walk.isStart(candidate) &&
                       (estimates || (!walk.isCollective(candidate) && !walk.isGemm(candidate)));
      if (groupable) {
        if (record.grouped >= options.groupLimitNodes)
          return stop(LimitingFactor::GroupLimit, candidate);
        walk.group.insert(candidate);
        groupHasHybrid |= walk.isCollective(candidate);
        groupRuntime += walk.work(candidate);
        ++record.grouped;
        continue;
      }
      if (dependent)
        return stop(LimitingFactor::DataDependence, candidate);
      if (!options.unsafeCollectivesReorder)
        return stop(LimitingFactor::CollectiveOrder, candidate);
    }
    if (estimates && walk.isWait(candidate) && walk.isFirstWait(candidate)) {
      int64_t itsComm = walk.commTime(candidate), itsComp = walk.compOfWait(candidate);
      if (positive(itsComm - itsComp + groupRuntime) > positive(itsComm - itsComp))
        return stop(LimitingFactor::ExposesOthers, candidate);
    }
    if (std::optional<Bytes> reached = walk.trySwap(/*left=*/false)) {
      record.reached = *reached;
      return stop(LimitingFactor::PeakMemory, candidate);
    }
    ++record.moves;
  }
}

/// Moves one after the other; with estimates, leaves out what raises the makespan, as PeakPreservingWalk.h says. Every
/// trial begins anew from the order given.
template <typename Options> class OracleMoves {
public:
  using MoveOne = CollectiveRecord (*)(SwapWalk &, NodeId, const Options &);
  OracleMoves(const Problem &problem, const Order &order, const Options &options, std::vector<NodeId> movers,
              MoveOne moveOne)
      : problem(problem), given(order), options(options), movers(std::move(movers)), moveOne(moveOne),
        limit(options.limitFor(peakOf(problem, order))) {}

  Schedule run() {
    size_t count = movers.size();
    if (options.moveLimit >= 0)
      count = std::min<size_t>(count, options.moveLimit);
    if (!options.useEstimates)
      return play(std::vector<char>(count, 1));
    std::vector<char> moves;
    guard(moves, count, std::max(options.guardAttempts, 1));
    return play(moves);
  }

private:
  /// Moves the first movers, those that are marked; the rest stay.
  Schedule play(const std::vector<char> &moves) {
    SwapWalk walk(problem, given, options, limit);
    Schedule result;
    for (size_t index = 0; index < movers.size(); ++index) {
      CollectiveRecord record;
      record.node = movers[index];
      if (index >= moves.size())
        record.factor = LimitingFactor::MoveLimit;
      else if (moves[index])
        record = moveOne(walk, movers[index], options);
      else
        record.factor = LimitingFactor::Makespan;
      result.records.push_back(record);
    }
    result.order = walk.order;
    return result;
  }

  /// Decides the next `count` movers. Returns the attempts that are left.
  int guard(std::vector<char> &moves, size_t count, int attempts) {
    std::vector<char> all = moves;
    all.insert(all.end(), count, 1);
    --attempts;
    if (makespanOf(problem, play(all).order) <= makespanOf(problem, given)) {
      moves = all;
      return attempts;
    }
    if (count > 1 && attempts >= 2) {
      int kept = attempts - attempts / 2;
      int left = guard(moves, count / 2, attempts / 2);
      return guard(moves, count - count / 2, kept + left);
    }
    moves.insert(moves.end(), count, 0);
    return attempts;
  }

  const Problem &problem;
  const Order &given;
  const Options &options;
  std::vector<NodeId> movers;
  MoveOne moveOne;
  Bytes limit;
};

} // namespace

Schedule commsched::test::oracleReorderPreservingPeak(const Problem &problem, const Order &order,
                                                      const ReorderPreservingPeakOptions &options) {
  std::vector<NodeId> starts;
  for (NodeId id : order)
    if (problem.nodes[id].kind == NodeKind::Start)
      starts.push_back(id);
  return OracleMoves<ReorderPreservingPeakOptions>(problem, order, options, starts, moveStart).run();
}

Schedule commsched::test::oracleSinkWaitsPreservingPeak(const Problem &problem, const Order &order,
                                                        const SinkWaitsPreservingPeakOptions &options) {
  std::vector<NodeId> waits;
  for (NodeId id : llvm::reverse(order))
    if (problem.nodes[id].kind == NodeKind::Wait)
      waits.push_back(id);
  return OracleMoves<SinkWaitsPreservingPeakOptions>(problem, order, options, waits, moveWait).run();
}

Order commsched::test::oracleScheduleForOverlap(const Problem &problem, const Order &order,
                                                const OverlapListOptions &options) {
  auto isCollective = [&](NodeId id) {
    return problem.nodes[id].kind == NodeKind::Start || problem.nodes[id].kind == NodeKind::Hybrid;
  };
  auto isWait = [&](NodeId id) { return problem.nodes[id].kind == NodeKind::Wait; };
  std::map<NodeId, std::array<int, 3>> scores;
  for (auto [index, id] : llvm::enumerate(order))
    scores[id] = {INT32_MAX, options.sinkWaits && isWait(id) ? 1 : 0, static_cast<int>(index)};
  int collectives = 0;
  for (NodeId id : order) {
    if (!options.raiseStarts || !isCollective(id))
      continue;
    // The collective and all of its ancestors.
    std::vector<NodeId> stack = {id};
    std::set<NodeId> seen;
    while (!stack.empty()) {
      NodeId above = stack.back();
      stack.pop_back();
      if (!seen.insert(above).second)
        continue;
      scores[above][0] = std::min(scores[above][0], collectives);
      llvm::append_range(stack, problem.preds[above]);
    }
    ++collectives;
  }
  Order result;
  std::set<NodeId> done;
  auto pick = [&](bool computesOnly) {
    NodeId best = kNone;
    for (NodeId id : order) {
      if (done.count(id) || !llvm::all_of(problem.preds[id], [&](NodeId pred) { return done.count(pred) != 0; }))
        continue;
      if (computesOnly && (isCollective(id) || isWait(id)))
        continue;
      if (best == kNone || scores[id] < scores[best])
        best = id;
    }
    if (best != kNone) {
      done.insert(best);
      result.push_back(best);
    }
    return best;
  };
  for (NodeId id = pick(false); id != kNone; id = pick(false))
    if (options.fillWithCompute && isCollective(id))
      for (Ns left = problem.nodes[id].cost; left > 0;) {
        NodeId filler = pick(true);
        if (filler == kNone)
          break;
        left -= problem.nodes[filler].cost;
      }
  return result;
}
