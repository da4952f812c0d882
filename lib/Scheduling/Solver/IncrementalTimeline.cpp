//===- IncrementalTimeline.cpp - The times of an order under small changes --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays nodes forward for clocks and backward for tails.
//
//===------------------------------------------------------------------------------------------===//

#include "IncrementalTimeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <utility>

using namespace commsched;

/// The least distance between two positions at which lanes are kept. Playing so many nodes costs about what a query of
/// the memory after a move does.
static constexpr int32_t kLeastSpacing = 32;

IncrementalTimeline::IncrementalTimeline(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<Ns> costs)
    : problem(problem), current(order.begin(), order.end()), positions(order.size(), 0),
      numLanes(std::max<LaneId>(problem.numLanes(), 1)), spacing(std::max(kLeastSpacing, numLanes)) {
  const int32_t size = problem.size();
  waiters.resize(size);
  steps.reserve(size);
  for (NodeId id = 0; id < size; ++id) {
    const Node &node = problem.nodes[id];
    Ns cost = costs.empty() ? node.cost : costs[id];
    steps.push_back({node.kind, node.lane, node.start, node.region, cost, node.issue, node.ready});
    if (node.start != kNone)
      waiters[node.start].push_back(id);
    if (node.region != kNone)
      for (NodeId start : problem.regions[node.region].starts)
        waiters[start].push_back(id);
  }

  const size_t blocks = size / spacing + 2;
  clocks.assign(size + 1, 0);
  tails.assign(size + 1, 0);
  laneClocks.assign(blocks * numLanes, 0);
  laneTails.assign(blocks * numLanes, 0);
  ends.assign(size, 0);
  tailsOfEnds.assign(size, 0);
  tailsThrough.assign(size, 0);
  tailsOfWaiters.assign(size, 0);
  waitedIn.assign(size, 0);
  lanesNow.assign(numLanes, 0);
  for (int32_t at = 0; at < size; ++at)
    positions[current[at]] = at;
  problem.beginLanes(lanesNow);
  std::copy(lanesNow.begin(), lanesNow.end(), laneClocks.begin());
  updateClocks(0, size);
  updateTails(0, size);
  measure();
}

void IncrementalTimeline::measure() {
  longest = clocks.back();
  for (Ns lane : lanesBefore(blockOf(static_cast<int32_t>(current.size())) + 1))
    longest = std::max(longest, lane);
}

void IncrementalTimeline::playRegion(NodeId id, Ns &compute, llvm::MutableArrayRef<Ns> lanes) {
  const Node &node = problem.nodes[id];
  compute = problem.beginOfRegion(node, compute, lanes, ends) + steps[id].cost;
  for (LaneId lane : problem.regions[node.region].lanes)
    lanes[lane] = compute;
}

/// The rules of makespanOf().
void IncrementalTimeline::play(NodeId id, Ns &compute, llvm::MutableArrayRef<Ns> lanes) {
  const Step &step = steps[id];
  if (step.region != kNone)
    return playRegion(id, compute, lanes);
  switch (step.kind) {
  case NodeKind::Compute:
    compute += step.cost;
    break;
  case NodeKind::Start:
    ends[id] = lanes[step.lane] = std::max(compute, lanes[step.lane]) + step.cost;
    compute += step.issue;
    break;
  case NodeKind::Wait:
    compute = std::max(compute, step.start == kNone ? step.ready : ends[step.start]);
    break;
  case NodeKind::Hybrid:
    compute = lanes[step.lane] = std::max(compute, lanes[step.lane]) + step.cost;
    break;
  }
}

/// The same rules, from the tails after a node to the tails before it.
void IncrementalTimeline::playBackward(NodeId id, Ns &tail, llvm::MutableArrayRef<Ns> lanes) {
  const Step &step = steps[id];
  if (step.region != kNone) {
    const RegionWork &region = problem.regions[step.region];
    for (LaneId lane : region.lanes)
      tail = std::max(tail, lanes[lane]);
    tailsThrough[id] = tail;
    tail += step.cost;
    for (LaneId lane : region.lanes)
      lanes[lane] = tail;
    return;
  }
  switch (step.kind) {
  case NodeKind::Compute:
    tail += step.cost;
    break;
  case NodeKind::Start: {
    tailsThrough[id] = std::max(tailsOfEnds[id], lanes[step.lane]);
    lanes[step.lane] = tailsThrough[id] + step.cost;
    tail = std::max(tail + step.issue, lanes[step.lane]);
    break;
  }
  case NodeKind::Wait:
    break;
  case NodeKind::Hybrid:
    tailsThrough[id] = std::max(tail, lanes[step.lane]);
    tail = lanes[step.lane] = tailsThrough[id] + step.cost;
    break;
  }
}

/// Plays from the block of `first` on, at least to `last`, until nothing differs from what is kept.
void IncrementalTimeline::updateClocks(int32_t first, int32_t last) {
  const int32_t size = static_cast<int32_t>(current.size());
  int32_t at = blockOf(first) * spacing;
  llvm::ArrayRef<Ns> begin = lanesBefore(blockOf(first));
  lanesNow.assign(begin.begin(), begin.end());
  Ns compute = clocks[at];
  for (; at < size; ++at) {
    if (at % spacing == 0) {
      llvm::MutableArrayRef<Ns> kept = lanesBefore(blockOf(at));
      if (at >= last && clocks[at] == compute && llvm::ArrayRef<Ns>(kept) == llvm::ArrayRef<Ns>(lanesNow))
        return;
      std::copy(lanesNow.begin(), lanesNow.end(), kept.begin());
    }
    clocks[at] = compute;
    NodeId node = current[at];
    Ns before = ends[node];
    play(node, compute, lanesNow);
    if (ends[node] != before)
      for (NodeId waiter : waiters[node])
        last = std::max(last, positions[waiter] + 1);
  }
  clocks[size] = compute;
  std::copy(lanesNow.begin(), lanesNow.end(), lanesBefore(blockOf(size) + 1).begin());
}

/// The same backward, from behind `last` at least down to `first`.
void IncrementalTimeline::updateTails(int32_t first, int32_t last) {
  const int32_t size = static_cast<int32_t>(current.size());
  // The last block ends at the end of the order, where all tails are 0.
  int32_t block = std::min(blockOf(last - 1 < 0 ? 0 : last - 1) + 1, blockOf(size) + 1);
  int32_t at = std::min(block * spacing, size);
  if (at == size) {
    lanesNow.assign(numLanes, 0);
    tails[size] = 0;
  } else {
    llvm::ArrayRef<Ns> begin = tailsBefore(block);
    lanesNow.assign(begin.begin(), begin.end());
  }
  Ns tail = tails[at];
  while (at-- > 0) {
    NodeId node = current[at];
    const Step &step = steps[node];
    if (step.kind == NodeKind::Start) {
      tailsOfEnds[node] = 0;
      for (NodeId waiter : waiters[node])
        tailsOfEnds[node] = std::max(tailsOfEnds[node], tailsOfWaiters[waiter]);
    }
    Ns before = tails[at];
    playBackward(node, tail, lanesNow);
    tails[at] = tail;
    // What waits decides the tails of starts that may be far ahead.
    if (step.kind == NodeKind::Wait && step.start != kNone && std::exchange(tailsOfWaiters[node], tail) != tail)
      first = std::min(first, positions[step.start]);
    if (step.region != kNone && std::exchange(tailsOfWaiters[node], tail) != tail)
      for (NodeId start : problem.regions[step.region].starts)
        first = std::min(first, positions[start]);
    if (at % spacing != 0)
      continue;
    llvm::MutableArrayRef<Ns> kept = tailsBefore(blockOf(at));
    if (at <= first && before == tail && llvm::ArrayRef<Ns>(kept) == llvm::ArrayRef<Ns>(lanesNow))
      return;
    std::copy(lanesNow.begin(), lanesNow.end(), kept.begin());
  }
}

Ns IncrementalTimeline::makespanIfReplaced(int32_t first, llvm::ArrayRef<NodeId> window, Ns cutoff) {
  const int32_t size = static_cast<int32_t>(current.size()), last = first + static_cast<int32_t>(window.size());
  const int32_t block = blockOf(first), end = std::min((blockOf(last - 1) + 1) * spacing, size);
  llvm::ArrayRef<Ns> begin = lanesBefore(block);
  std::copy(begin.begin(), begin.end(), lanesNow.begin());
  Ns compute = clocks[block * spacing];
  played.clear();
  ++trial;
  auto playNow = [&](NodeId node) {
    const Step &step = steps[node];
    if (step.kind == NodeKind::Start)
      played.push_back({node, ends[node]});
    else if (step.start != kNone)
      waitedIn[step.start] = trial;
    else if (step.region != kNone)
      for (NodeId start : problem.regions[step.region].starts)
        waitedIn[start] = trial;
    play(node, compute, lanesNow);
  };
  for (int32_t at = block * spacing; at < first; ++at)
    playNow(current[at]);
  for (NodeId node : window)
    playNow(node);
  Ns result = 0;
  bool isLate = false;
  for (int32_t at = last; at < end; ++at) {
    if (compute + tails[at] > cutoff) {
      result = compute + tails[at];
      isLate = true;
      break;
    }
    playNow(current[at]);
  }
  if (!isLate) {
    result = compute + tails[end];
    if (end == size) {
      for (Ns lane : lanesNow)
        result = std::max(result, lane);
    } else {
      llvm::ArrayRef<Ns> after = tailsBefore(blockOf(end));
      for (int32_t lane = 1; lane < numLanes; ++lane)
        result = std::max(result, lanesNow[lane] + after[lane]);
    }
    // What is in flight at the end of the window. A node that waits for it and was played has seen its end.
    for (auto [start, before] : played)
      if (waitedIn[start] != trial)
        result = std::max(result, ends[start] + tailsOfEnds[start]);
  }
  for (auto [start, before] : played)
    ends[start] = before;
  return result;
}

void IncrementalTimeline::setNode(NodeId id, const Node &node) {
  Step &step = steps[id];
  if (step.start != node.start) {
    if (step.start != kNone)
      llvm::erase(waiters[step.start], id);
    if (node.start != kNone)
      waiters[node.start].push_back(id);
  }
  step = {node.kind, node.lane, node.start, node.region, node.cost, node.issue, node.ready};
}

void IncrementalTimeline::replace(int32_t first, llvm::ArrayRef<NodeId> window) {
  const int32_t last = first + static_cast<int32_t>(window.size());
  for (int32_t at = first; at < last; ++at) {
    current[at] = window[at - first];
    positions[current[at]] = at;
  }
  updateClocks(first, last);
  updateTails(first, last);
  measure();
}

bool IncrementalTimeline::isCritical(int32_t position) const {
  NodeId node = current[position];
  const Step &step = steps[node];
  if (step.kind == NodeKind::Start)
    return ends[node] + tailsThrough[node] == longest;
  return step.cost > 0 && clocks[position + 1] + tails[position + 1] == longest &&
         clocks[position] + tails[position] == longest;
}
