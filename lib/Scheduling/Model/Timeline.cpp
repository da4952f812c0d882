//===- Timeline.cpp - What an order costs in time ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays an order by the rules of docs/Models.md. Collectives in flight are kept as disjoint intervals, so that
// slow-downs cost O(log F) per node.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

using namespace commsched;

namespace {

/// `ns` of work at a rate of 1000 / (1000 + permille), rounded up. Saturates.
Ns stretched(Ns ns, int32_t permille) { return mulDivUp(ns, kPermille + permille, kPermille); }

/// How much work fits into `ns` at that rate, rounded down.
Ns workWithin(Ns ns, int32_t permille) { return mulDiv(ns, kPermille, kPermille + permille); }

/// The collectives issued so far, as far as they can still matter.
class InFlight {
public:
  InFlight(const SlowDown &slowDown, LaneId lanes) : slowDown(slowDown), flights(lanes) {
    for (LaneId lane = 1; lane < lanes; ++lane)
      if (int32_t link = linkOf(lane); link != kNone)
        lanesOfLink[link].push_back(lane);
  }

  /// How long a collective of `cost` takes that begins on `lane` at `begin`; registers it. O(lanes of its link + log
  /// F).
  Ns launch(LaneId lane, Ns begin, Ns cost) {
    Ns duration = cost;
    int32_t link = linkOf(lane);
    if (slowDown.linkPermille > 0 && link != kNone &&
        llvm::any_of(lanesOfLink[link], [&](LaneId other) { return other != lane && flies(other, begin); }))
      duration = stretched(cost, slowDown.linkPermille);
    if (duration > 0) {
      flights[lane].push_back({begin, begin + duration});
      cover(begin, begin + duration);
    }
    return duration;
  }

  /// When `work` on the compute lane that begins at `now` has ended. Forgets what ended before: nothing later in the
  /// order begins before the compute lane's time. O(log F) amortised.
  Ns endOfCompute(Ns now, Ns work) {
    if (slowDown.computePermille <= 0)
      return now + work;
    while (!busy.empty()) {
      auto [begin, end] = *busy.begin();
      if (end <= now) {
        busy.erase(busy.begin());
        continue;
      }
      if (begin > now) {
        Ns alone = std::min(work, begin - now);
        now += alone, work -= alone;
      }
      if (work == 0)
        return now;
      Ns done = workWithin(end - now, slowDown.computePermille);
      if (work <= done)
        return now + stretched(work, slowDown.computePermille);
      now = end, work -= done;
    }
    return now + work;
  }

private:
  struct Flight {
    Ns begin, end;
  };

  int32_t linkOf(LaneId lane) const {
    return lane < static_cast<LaneId>(slowDown.linkOfLane.size()) ? slowDown.linkOfLane[lane] : kNone;
  }

  /// Whether a collective of `lane` is in flight at `time`. A lane's flights follow one another.
  bool flies(LaneId lane, Ns time) const {
    const std::vector<Flight> &list = flights[lane];
    auto after = std::partition_point(list.begin(), list.end(), [&](const Flight &f) { return f.begin <= time; });
    return after != list.begin() && time < std::prev(after)->end;
  }

  /// Adds [begin, end) to the times at which something flies; what touches becomes one interval.
  void cover(Ns begin, Ns end) {
    auto next = busy.upper_bound(begin);
    if (next != busy.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
      end = std::max(end, next->second);
      next = busy.erase(next);
    }
    for (; next != busy.end() && next->first <= end; next = busy.erase(next))
      end = std::max(end, next->second);
    busy[begin] = end;
  }

  const SlowDown &slowDown;
  std::vector<std::vector<Flight>> flights;
  std::map<int32_t, std::vector<LaneId>> lanesOfLink;
  /// Disjoint, by beginning.
  std::map<Ns, Ns> busy;
};

/// The state of the lanes while an order is played.
class Player {
public:
  Player(const Problem &problem, const SlowDown &slowDown)
      : problem(problem), inFlight(slowDown, problem.numLanes()), disturbed(slowDown.any()) {
    problem.beginLanes(lanes);
    line.start.assign(problem.size(), 0);
    line.end.assign(problem.size(), 0);
    line.exposed.assign(problem.size(), 0);
    line.load.assign(problem.numLanes(), 0);
  }

  void play(NodeId id) {
    const Node &node = problem.nodes[id];
    Ns &compute = lanes[kComputeLane];
    line.start[id] = compute;
    if (node.region != kNone)
      return playRegion(id, node);
    switch (node.kind) {
    case NodeKind::Compute: {
      Ns end = disturbed ? inFlight.endOfCompute(compute, node.cost) : compute + node.cost;
      line.load[kComputeLane] += end - compute;
      compute = end;
      break;
    }
    case NodeKind::Start:
      occupy(id, node);
      line.load[kComputeLane] += node.issue;
      compute += node.issue;
      return;
    case NodeKind::Wait: {
      Ns there = node.start == kNone ? node.ready : line.end[node.start];
      line.exposed[id] = std::max<Ns>(there - compute, 0);
      line.exposedTotal += line.exposed[id];
      compute += line.exposed[id];
      break;
    }
    case NodeKind::Hybrid:
      occupy(id, node);
      line.load[kComputeLane] += line.end[id] - line.start[id];
      compute = line.end[id];
      break;
    }
    line.end[id] = compute;
  }

  Timeline finish() {
    line.makespan = *std::max_element(lanes.begin(), lanes.end());
    if (problem.joinsAtEnd)
      line.exposedAtEnd = line.makespan - lanes[kComputeLane];
    line.exposedTotal += line.exposedAtEnd;
    return std::move(line);
  }

private:
  /// Puts a start or hybrid on its communication lane.
  void occupy(NodeId id, const Node &node) {
    Ns now = lanes[kComputeLane], &lane = lanes[node.lane];
    Ns begin = std::max(now, lane);
    Ns duration = disturbed ? inFlight.launch(node.lane, begin, node.cost) : node.cost;
    line.start[id] = begin;
    line.end[id] = lane = begin + duration;
    line.load[node.lane] += duration;
  }

  /// Plays a compute or hybrid with communication in its regions.
  void playRegion(NodeId id, const Node &node) {
    Ns &compute = lanes[kComputeLane];
    Ns begin = problem.beginOfRegion(node, compute, lanes, line.end), free = compute;
    const std::vector<LaneId> &own = problem.regions[node.region].lanes;
    for (LaneId lane : own)
      free = std::max(free, lanes[lane]);
    line.exposed[id] = begin - free;
    line.exposedTotal += begin - free;
    Ns duration = node.cost;
    if (disturbed && own.empty())
      duration = inFlight.endOfCompute(begin, node.cost) - begin;
    else if (disturbed)
      duration = inFlight.launch(node.lane, begin, node.cost); // its first lane stands for all of them
    line.start[id] = begin;
    line.end[id] = compute = begin + duration;
    line.load[kComputeLane] += duration;
    for (LaneId lane : own) {
      lanes[lane] = compute;
      line.load[lane] += duration;
    }
  }

  const Problem &problem;
  InFlight inFlight;
  bool disturbed;
  std::vector<Ns> lanes;
  Timeline line;
};

} // namespace

NodeId commsched::awaitedStart(const Problem &problem, const Timeline &line, NodeId id) {
  const Node &node = problem.nodes[id];
  if (node.region == kNone)
    return node.start;
  NodeId last = kNone;
  for (NodeId start : problem.regions[node.region].starts)
    if (last == kNone || line.end[start] > line.end[last])
      last = start;
  return last;
}

std::vector<Ns> commsched::exposedByCollective(const Problem &problem, const Timeline &line) {
  std::vector<Ns> exposed = line.exposed;
  for (NodeId id = 0; id < problem.size(); ++id)
    if (NodeId start = awaitedStart(problem, line, id); start != kNone)
      exposed[start] += line.exposed[id];
  if (line.exposedAtEnd > 0)
    exposed[std::max_element(line.end.begin(), line.end.end()) - line.end.begin()] += line.exposedAtEnd;
  return exposed;
}

Timeline commsched::simulate(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown) {
  if (problem.numLanes() == 0)
    return {};
  Player player(problem, slowDown);
  for (NodeId id : order)
    player.play(id);
  return player.finish();
}

Ns commsched::makespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  llvm::SmallVector<Ns, 16> lanes;
  problem.beginLanes(lanes);
  std::vector<Ns> end(problem.size(), 0);
  Ns compute = 0;
  for (NodeId id : order) {
    const Node &node = problem.nodes[id];
    if (node.region != kNone) {
      compute = problem.beginOfRegion(node, compute, lanes, end) + node.cost;
      for (LaneId lane : problem.regions[node.region].lanes)
        lanes[lane] = compute;
      continue;
    }
    switch (node.kind) {
    case NodeKind::Compute:
      compute += node.cost;
      break;
    case NodeKind::Start:
      end[id] = lanes[node.lane] = std::max(compute, lanes[node.lane]) + node.cost;
      compute += node.issue;
      break;
    case NodeKind::Wait:
      compute = std::max(compute, node.start == kNone ? node.ready : end[node.start]);
      break;
    case NodeKind::Hybrid:
      compute = lanes[node.lane] = std::max(compute, lanes[node.lane]) + node.cost;
      break;
    }
  }
  return std::max(compute, *std::max_element(lanes.begin(), lanes.end()));
}

Ns commsched::makespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown) {
  return slowDown.any() ? simulate(problem, order, slowDown).makespan : makespanOf(problem, order);
}
