//===- PeakPreservingWalk.cpp - Walk of the two peak-preserving passes ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The guard bisects: it moves a range of collectives on trial, and halves the range if the makespan rises.
//
//===------------------------------------------------------------------------------------------===//

#include "PeakPreservingWalk.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cstdlib>
#include <memory>

using namespace commsched;
using namespace commsched::peakwalk;

namespace {

/// Limit on the number of nodes that all trials of the makespan guard visit together, and the least number of trials.
constexpr int64_t kGuardNodes = 1'600'000;
constexpr int64_t kFewestAttempts = 16;

} // namespace

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
  return collectiveTime + mulDiv(collectiveTime, extraPermille, kPermille);
}

CollectiveRecord Mover::run() {
  walk.begin(record.node);
  if (common.useEstimates) {
    time = costs.collective(record.node);
    measure();
  }
  while (record.factor == LimitingFactor::None) {
    if (common.useEstimates && hidden > costs.hiddenAbove(time))
      stop(LimitingFactor::AlreadyHidden);
    else if (walk.atEnd())
      stop(LimitingFactor::BlockEnd);
    else
      step(walk.neighbour());
  }
  walk.end();
  return record;
}

void Mover::stop(LimitingFactor factor, NodeId blocker, int64_t reached, int64_t bound) {
  record.factor = factor;
  record.blocker = blocker;
  record.reached = reached;
  record.limit = bound;
}

void Mover::stopExposing(NodeId blocker, int64_t scaled) {
  stop(LimitingFactor::ExposesOthers, blocker, scaled / kPermille);
}

void Mover::takeAlong(NodeId neighbour) {
  if (record.grouped >= common.groupLimitNodes)
    return stop(LimitingFactor::GroupLimit, neighbour, 0, common.groupLimitNodes);
  groupWork += costs.work()[neighbour];
  walk.absorb();
  ++record.grouped;
}

bool Mover::advance(int32_t to) {
  int32_t before = walk.groupFirst();
  // Of the nodes up to `to`, as many as this collective may still pass.
  bool left = to < before, clamped = false;
  if (common.prefetchLimitNodes >= 0) {
    int32_t room = common.prefetchLimitNodes - record.moves;
    int32_t furthest = left ? before - room : walk.groupLast() + room - 1;
    clamped = left ? to < furthest : to > furthest;
    if (clamped && room == 0) {
      stop(LimitingFactor::PrefetchLimit, kNone, 0, common.prefetchLimitNodes);
      return false;
    }
    to = clamped ? furthest : to;
  }
  GroupWalk::Stop refused = walk.advance(to, limit);
  int32_t after = walk.groupFirst(), count = std::abs(after - before);
  record.moves += count;
  if (common.useEstimates) {
    int32_t first = after < before ? walk.groupLast() : before;
    passed(walk.tree().work(first, first + count));
  }
  if (refused.node != kNone)
    stop(LimitingFactor::PeakMemory, refused.node, refused.reached, limit);
  else if (clamped)
    stop(LimitingFactor::PrefetchLimit, kNone, 0, common.prefetchLimitNodes);
  return refused.node == kNone;
}

bool Mover::isGemm(NodeId node) const {
  return static_cast<unsigned>(node) < common.gemms.size() && common.gemms.test(node);
}

Hiding Mover::hidingOfStart(NodeId start, int64_t enough) const {
  const OrderTree &tree = walk.tree();
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

Hiding Mover::hidingOfWait(NodeId wait, int64_t enough) const {
  if (NodeId start = problem.nodes[wait].start; start != kNone)
    return hidingOfStart(start, enough);
  int32_t at = walk.tree().position(wait);
  return {walk.tree().work(0, at), at};
}

bool Mover::isFirstWait(NodeId wait) const {
  NodeId start = problem.nodes[wait].start;
  if (start == kNone || costs.waitsOf(start).size() == 1)
    return true;
  int32_t at = walk.tree().position(wait);
  return llvm::all_of(costs.waitsOf(start), [&](NodeId other) { return walk.tree().position(other) >= at; });
}

int64_t Mover::exposureWithout(NodeId node, int64_t less) const {
  int64_t its = costs.collective(node);
  Hiding hiding = kindOf(node) == NodeKind::Wait ? hidingOfWait(node, its + less) : hidingOfStart(node, its + less);
  return exposedPart(its, hiding.work - less) - exposedPart(its, hiding.work);
}

namespace {

/// The loop over all movers, and its guard.
class AllMoves {
public:
  AllMoves(const Problem &problem, llvm::ArrayRef<NodeId> order, const PeakPreservingOptions &options, NodeKind kind,
           WalkDirection direction, MoveOne moveOne)
      : problem(problem), given(order), options(options), direction(direction), moveOne(moveOne),
        costs(problem, options), limit(options.limitFor(peakOf(problem, order))) {
    auto collect = [&](NodeId id) {
      if (problem.nodes[id].kind == kind)
        records.emplace_back().node = id;
    };
    direction == WalkDirection::Left ? llvm::for_each(order, collect) : llvm::for_each(llvm::reverse(order), collect);
  }

  Schedule run() {
    Schedule result;
    result.order.assign(given.begin(), given.end());
    result.limit = limit;
    size_t count = records.size();
    if (options.moveLimit >= 0)
      count = std::min(count, static_cast<size_t>(options.moveLimit));
    if (count > 0) {
      walk = std::make_unique<GroupWalk>(problem, given, direction, costs.work(), costs.tags());
      if (options.useEstimates) {
        givenMakespan = makespanOf(problem, given);
        int64_t attempts = std::max(kGuardNodes / problem.size(), kFewestAttempts);
        guard(0, count, static_cast<int32_t>(std::clamp<int64_t>(options.guardAttempts, 1, attempts)));
      } else {
        moveRange(*walk, 0, count);
      }
      if (error.empty())
        result.order = walk->order();
    }
    for (CollectiveRecord &record : llvm::MutableArrayRef(records).drop_front(count)) {
      record.factor = LimitingFactor::MoveLimit;
      record.limit = options.moveLimit;
    }
    result.records = std::move(records);
    result.defect = std::move(error);
    return result;
  }

private:
  void moveRange(GroupWalk &on, size_t first, size_t last) {
    for (CollectiveRecord &record : llvm::MutableArrayRef(records).slice(first, last - first)) {
      record = moveOne(costs, on, record.node, limit);
      if (options.memoryRecompute && record.moves > 0 && error.empty())
        error = on.recount();
    }
  }

  /// Moves the range, in halves where the whole of it raises the makespan. Returns what is left of the attempts, of
  /// which there has to be one.
  int32_t guard(size_t first, size_t last, int32_t attempts) {
    // The copy takes over the storage of the one before it.
    if (spare)
      *spare = *walk;
    else
      spare = std::make_unique<GroupWalk>(*walk);
    moveRange(*spare, first, last);
    --attempts;
    Ns makespan = makespanOf(problem, spare->order());
    if (makespan <= givenMakespan || !error.empty()) {
      std::swap(walk, spare);
      return attempts;
    }
    // Two halves need an attempt each.
    if (last - first > 1 && attempts >= 2) {
      size_t middle = first + (last - first) / 2;
      int32_t share = attempts / 2;
      int32_t left = attempts - share + guard(first, middle, share);
      return guard(middle, last, left);
    }
    for (CollectiveRecord &record : llvm::MutableArrayRef(records).slice(first, last - first)) {
      NodeId node = record.node;
      record = {};
      record.node = node;
      record.factor = LimitingFactor::Makespan;
      record.reached = makespan;
      record.limit = givenMakespan;
    }
    return attempts;
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> given;
  const PeakPreservingOptions &options;
  WalkDirection direction;
  MoveOne moveOne;
  ScaledCosts costs;
  Bytes limit;
  Ns givenMakespan = 0;
  /// Indexed by mover: its record.
  std::vector<CollectiveRecord> records;
  /// Where the moves that hold have led, and where the last trial has.
  std::unique_ptr<GroupWalk> walk, spare;
  std::string error;
};

} // namespace

Schedule peakwalk::moveAll(const Problem &problem, llvm::ArrayRef<NodeId> order, const PeakPreservingOptions &options,
                           NodeKind kind, WalkDirection direction, MoveOne moveOne) {
  Schedule result = AllMoves(problem, order, options, kind, direction, moveOne).run();
  measureExposure(problem, order, result);
  return result;
}
