//===- Settle.cpp - An order of equal length with more slack ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Why a wait may move down: behind it, the clock of the compute lane is at least the end of its collective, and that
// only delays what stands between its old and its new place. Without it there, everything between runs no later; at the
// new place the clock is the larger of the same two times as before, or less. Views take no time. A start that moves
// up delays what it passes by its issue cost, so such moves are played first.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Solver/Settle.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "Time/IncrementalTimeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <optional>

using namespace commsched;

namespace {

/// How many places all moves may pass together, per node of the problem: an order of a million nodes is settled in
/// about a second.
constexpr int64_t kPlacesPerNode = 400;
/// The scales at which no move of a start may lengthen the order.
constexpr CostScale kPlayed[] = {kScaleOne, 2 * kScaleOne};

/// In a long order, a start moves up by about so many places at most: clocks are kept around it only.
constexpr int32_t kLongestRaise = 4096;

/// How many places are tried for one start, each half as far as the one before it.
constexpr int kTries = 4;

/// Indexed by node: what nodes take at a scale, ns.
std::vector<Ns> costsAt(const Problem &problem, CostScale scale) {
  std::vector<Ns> costs;
  for (const Node &node : problem.nodes)
    costs.push_back(node.kind == NodeKind::Start ? scaleTime(node.cost, scale) : node.cost);
  return costs;
}

class Settler {
public:
  Settler(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit)
      : problem(problem), limit(limit), memory(problem, order), places(kPlacesPerNode * problem.size()) {}

  Order run() {
    if (memory.peak() > limit)
      return memory.order().vec();
    sinkWaits();
    raiseStarts();
    return memory.order().vec();
  }

private:
  bool isFree(NodeId id) const { return !problem.nodes[id].pinned && problem.nodes[id].unit == kNone; }

  bool isView(NodeId id) const {
    const Node &node = problem.nodes[id];
    return node.kind == NodeKind::Compute && node.cost == 0 && node.region == kNone;
  }

  /// Whether the group [first, last) fits at `to`.
  bool fits(int32_t first, int32_t last, int32_t to) const {
    return memory.windowPeakIfMoved(first, last, to) <= limit;
  }

  /// The place closest to `to` that is found by halving distances and at which [first, last) fits; `first` if none.
  int32_t farthest(int32_t first, int32_t last, int32_t to) const {
    if (fits(first, last, to))
      return to;
    int32_t good = first, bad = to;
    while (std::abs(bad - good) > 1) {
      int32_t middle = good + (bad - good) / 2;
      (fits(first, last, middle) ? good : bad) = middle;
    }
    return good;
  }

  /// From the back, so that what needs a wait is at its place before the wait moves.
  void sinkWaits() {
    std::vector<char> follows(problem.size(), 0);
    const Order before = memory.order().vec();
    for (NodeId id : before)
      follows[id] = problem.nodes[id].kind == NodeKind::Wait ||
                    (isView(id) && llvm::any_of(problem.preds[id], [&](NodeId pred) { return follows[pred]; }));
    for (auto it = before.rbegin(); it != before.rend() && places > 0; ++it) {
      if (!follows[*it] || !isFree(*it))
        continue;
      int32_t at = memory.position(*it), to = farthest(at, at + 1, memory.latest(at, at + 1));
      places -= to - at;
      memory.move(at, at + 1, to);
    }
  }

  /// From the front, so that the collective in front of a start on its lane is at its place before the start moves.
  void raiseStarts() {
    const Order before = memory.order().vec();
    std::vector<NodeId> lastOnLane(problem.numLanes(), kNone);
    for (CostScale scale : kPlayed)
      timelines.emplace_back(problem, before, costsAt(problem, scale));
    for (auto [at, id] : llvm::enumerate(before)) {
      if (at % kLongestRaise == 0 && problem.size() > kLongOrder)
        focusAround(static_cast<int32_t>(at));
      const Node &node = problem.nodes[id];
      if (node.kind == NodeKind::Start && isFree(id) && places > 0) {
        const NodeId previous = lastOnLane[node.lane];
        raise(memory.position(id), memory.position(id) + 1, previous);
        const int32_t now = memory.position(id);
        raise(firstFeeder(now), now + 1, previous);
      }
      if (node.region != kNone)
        for (LaneId lane : problem.regions[node.region].lanes)
          lastOnLane[lane] = id;
      else if (node.lane != kComputeLane)
        lastOnLane[node.lane] = id;
    }
  }

  /// Lets the clocks answer for the starts at the positions from `at` on, and for where they may move to.
  void focusAround(int32_t at) {
    firstPlace = std::max(at - kLongestRaise, 0);
    for (IncrementalTimeline &timeline : timelines)
      timeline.focus(firstPlace, std::min(at + kLongestRaise, problem.size()));
  }

  /// Where the computations begin that stand in front of the start at `at` and serve nothing but it.
  int32_t firstFeeder(int32_t at) const {
    int32_t first = at;
    while (first > 0) {
      const NodeId id = memory.order()[first - 1];
      const Node &node = problem.nodes[id];
      bool serves = node.kind == NodeKind::Compute && node.region == kNone && isFree(id) &&
                    llvm::all_of(problem.succs[id], [&](NodeId user) {
                      return memory.position(user) >= first && memory.position(user) <= at;
                    });
      if (!serves)
        break;
      --first;
    }
    return first;
  }

  /// Moves [first, last), which ends with a start, up: behind `previous`, the collective in front of it on its lane,
  /// and no further than where that has ended as planned.
  void raise(int32_t first, int32_t last, NodeId previous) {
    int32_t to = std::max(memory.earliest(first, last), firstPlace);
    if (previous != kNone) {
      to = std::max(to, memory.position(previous) + 1);
      const Ns end = timelines.front().endOf(previous);
      while (to < first && timelines.front().clockAt(to) < end)
        ++to;
    }
    if (to >= first)
      return;
    to = farthest(first, last, to);
    for (int tries = 0; tries < kTries && to < first && places > 0; ++tries, to = first - (first - to) / 2)
      if (tryRaise(first, last, to))
        return;
  }

  bool tryRaise(int32_t first, int32_t last, int32_t to) {
    places -= first - to;
    llvm::ArrayRef<NodeId> order = memory.order();
    Order window(order.begin() + first, order.begin() + last);
    window.insert(window.end(), order.begin() + to, order.begin() + first);
    for (IncrementalTimeline &timeline : timelines)
      if (timeline.makespanIfReplaced(to, window, timeline.makespan()) > timeline.makespan())
        return false;
    if (!fits(first, last, to))
      return false;
    for (IncrementalTimeline &timeline : timelines)
      timeline.replace(to, window);
    memory.move(first, last, to);
    return true;
  }

  const Problem &problem;
  const Bytes limit;
  MoveEvaluator memory;
  /// The clocks of the order at each scale of kPlayed, as soon as waits have moved.
  std::vector<IncrementalTimeline> timelines;
  /// Nothing moves up beyond this place.
  int32_t firstPlace = 0;
  /// How many places moves may still pass.
  int64_t places;
};

} // namespace

Order commsched::settle(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit) {
  return Settler(problem, order, limit).run();
}

void commsched::settleAnswer(const Problem &problem, const ScheduleOptions &options, Schedule &answer) {
  const Problem &carried = answer.carriedOut(problem);
  if (carried.hasContention() || carried.hasStreams())
    return;
  const Ns before = makespanOf(carried, answer.order);
  auto accept = [&](llvm::ArrayRef<NodeId> order) {
    return peakOf(carried, order) <= answer.limit && makespanOf(carried, order) <= before &&
           (!options.admits || options.admits(carried, order));
  };
  std::optional<Order> order = keepTogether(carried, settle(carried, answer.order, answer.limit), accept);
  if (!order || *order == answer.order || !accept(*order))
    return;
  Schedule settled = answer;
  settled.order = std::move(*order);
  measure(problem, settled);
  settled.claims = {makespanOf(carried, settled.order), settled.peak};
  ScheduleRequirements requirements{answer.limit, options.collectiveOrder};
  if (std::string defect = verify(problem, settled, requirements); defect.empty())
    answer = std::move(settled);
  else if (answer.defect.empty())
    answer.defect = std::move(defect);
}

std::vector<Ns> commsched::toleratedDelays(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  IncrementalTimeline timeline(problem, order);
  std::vector<Ns> delays(problem.size(), 0);
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].kind == NodeKind::Start)
      delays[id] = timeline.makespan() - timeline.endOf(id) - timeline.tailThrough(id);
  return delays;
}
