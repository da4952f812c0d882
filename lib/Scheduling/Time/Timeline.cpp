//===- Timeline.cpp - Makespan of an order ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays an order by the rules of Models.md. Blocks on several streams are StreamTimeline's.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Time/Timeline.h"
#include "ContentionTimeline.h"
#include "StreamTimeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// The state of the lanes while an order is played.
class Player {
public:
  explicit Player(const Problem &problem) : problem(problem) {
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
    case NodeKind::Compute:
      line.load[kComputeLane] += node.cost;
      compute += node.cost;
      break;
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
    line.start[id] = std::max(now, lane);
    line.end[id] = lane = line.start[id] + node.cost;
    line.load[node.lane] += node.cost;
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
    line.start[id] = begin;
    line.end[id] = compute = begin + node.cost;
    line.load[kComputeLane] += node.cost;
    for (LaneId lane : own) {
      lanes[lane] = compute;
      line.load[lane] += node.cost;
    }
  }

  const Problem &problem;
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

Timeline commsched::simulate(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  if (problem.numLanes() == 0)
    return {};
  if (problem.hasStreams())
    return simulateStreams(problem, order, problem.hasContention());
  if (problem.hasContention())
    return simulateContention(problem, order);
  Player player(problem);
  for (NodeId id : order)
    player.play(id);
  return player.finish();
}

Ns commsched::makespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  if (problem.hasStreams())
    return simulate(problem, order).makespan;
  return problem.hasContention() ? contendedMakespanOf(problem, order) : undisturbedMakespanOf(problem, order);
}

Ns commsched::undisturbedMakespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  if (problem.hasStreams())
    return simulateStreams(problem, order, /*sharesResources=*/false).makespan;
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
