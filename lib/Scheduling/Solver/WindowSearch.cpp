//===- WindowSearch.cpp - Exact orders of a few neighbours in a long order --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A window as a problem: the clocks before it count from the compute lane's, so lanes are busy for a while at the
// beginning, collectives in flight are futures that came in, buffers that are live are donated arguments, and buffers
// that are touched behind it are live to the end.
//
//===------------------------------------------------------------------------------------------===//

#include "WindowSearch.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Nodes that are played in the time of one step of a decode.
static constexpr int64_t kPlayedPerStep = 20;
/// Limit on the steps of one window. Nearly all windows of 16 positions take less.
static constexpr int64_t kStepsPerWindow = 10000;

struct WindowSearch::Window {
  Problem problem;
  FinalTails tails;
  /// What the limit leaves for the window's own buffers.
  Bytes limit = 0;
  /// Indexed by lane of the window's problem: the lane. Lanes that the window does not use are not part of it.
  llvm::SmallVector<LaneId, 8> lanes;
};

WindowSearch::WindowSearch(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit)
    : problem(problem), limit(limit), timeline(problem, order), positions(order.size()), liveBefore(order.size() + 1),
      lastUse(problem.buffers.size(), kNone) {
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
    if (problem.buffers[id].def == kNone && !problem.users[id].empty())
      liveBefore[0] += problem.buffers[id].bytes;
  replace(0, order);
}

/// Makes the order at the positions from `first` on known to memory and clocks.
void WindowSearch::replace(int32_t first, llvm::ArrayRef<NodeId> nodes) {
  if (nodes.empty())
    return;
  const auto last = first + static_cast<int32_t>(nodes.size());
  for (auto [offset, node] : llvm::enumerate(nodes))
    positions[node] = first + static_cast<int32_t>(offset);
  // A buffer that is not touched behind these positions is touched last by one of their nodes.
  for (NodeId node : nodes)
    for (BufferId id : problem.touches[node])
      if (lastUse[id] < last)
        lastUse[id] = kNone;
  for (NodeId node : nodes)
    for (BufferId id : problem.touches[node])
      lastUse[id] = std::max(lastUse[id], positions[node]);
  for (int32_t at = first; at < last; ++at) {
    NodeId node = nodes[at - first];
    Bytes live = liveBefore[at];
    for (BufferId id : problem.touches[node]) {
      const Buffer &buffer = problem.buffers[id];
      live += buffer.def == node ? buffer.bytes : 0;
      live -= lastUse[id] == at && !buffer.liveOut ? buffer.bytes : 0;
    }
    liveBefore[at + 1] = live;
  }
  if (order().slice(first, nodes.size()) != nodes)
    timeline.replace(first, nodes);
}

/// Whether another order of a window may shorten the whole: the makespan depends on it, and the compute lane's work is
/// not all that it depends on.
bool WindowSearch::mayGain(int32_t first, int32_t last, int64_t &steps) {
  Ns work = 0;
  for (int32_t at = first; at < last; ++at) {
    const Node &node = problem.nodes[order()[at]];
    work += node.kind == NodeKind::Start ? node.issue : node.cost;
  }
  steps -= 1 + (last - first) / kPlayedPerStep;
  if (timeline.clockAt(first) + work + timeline.tailAt(last) >= makespan())
    return false;
  timeline.lanesAt(first, lanesBefore);
  timeline.lanesAt(last, lanesBehind);
  timeline.laneTailsAt(last, laneTails);
  steps -= static_cast<int64_t>(problem.numLanes()) / kPlayedPerStep;
  Ns longest = timeline.clockAt(last) + timeline.tailAt(last);
  for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
    longest = std::max(longest, lanesBehind[lane] + laneTails[lane]);
  for (int32_t at = first; at < last; ++at)
    if (NodeId node = order()[at]; problem.nodes[node].kind == NodeKind::Start)
      longest = std::max(longest, timeline.endOf(node) + timeline.tailOfWaiters(node));
  return longest == makespan();
}

/// Adds the nodes, with their edges and lanes.
void WindowSearch::addNodes(Window &window, int32_t first, int32_t last) const {
  const Ns begin = timeline.clockAt(first);
  auto laneOf = [&](LaneId lane) {
    auto known = llvm::find(window.lanes, lane);
    if (known == window.lanes.end()) {
      window.lanes.push_back(lane);
      window.problem.busyUntil.push_back(lanesBefore[lane] - begin);
      window.problem.laneNames.emplace_back();
      return static_cast<LaneId>(window.lanes.size()) - 1;
    }
    return static_cast<LaneId>(known - window.lanes.begin());
  };
  auto isInside = [&](NodeId node) { return positions[node] >= first && positions[node] < last; };
  laneOf(kComputeLane);
  window.problem.busyUntil.front() = 0;
  for (int32_t at = first; at < last; ++at) {
    const Node &given = problem.nodes[order()[at]];
    Node node;
    node.kind = given.kind;
    node.lane = laneOf(given.lane);
    node.cost = given.cost;
    node.issue = given.issue;
    node.workspace = given.workspace;
    node.ready = given.ready - begin;
    if (given.kind == NodeKind::Wait && given.start != kNone) {
      if (isInside(given.start))
        node.start = positions[given.start] - first;
      else
        node.ready = timeline.endOf(given.start) - begin;
    }
    if (given.region != kNone) {
      const RegionWork &work = problem.regions[given.region];
      node.region = static_cast<int32_t>(window.problem.regions.size());
      RegionWork &region = window.problem.regions.emplace_back();
      for (LaneId lane : work.lanes)
        region.lanes.push_back(laneOf(lane));
      for (NodeId start : work.starts) {
        if (isInside(start))
          region.starts.push_back(positions[start] - first);
        else
          node.ready = std::max(node.ready, timeline.endOf(start) - begin);
      }
    }
    window.problem.nodes.push_back(node);
    llvm::SmallVector<NodeId, 8> preds;
    for (NodeId pred : problem.preds[order()[at]])
      if (isInside(pred))
        preds.push_back(positions[pred] - first);
    llvm::sort(preds);
    window.problem.preds.append(preds);
  }
}

/// Adds the buffers that the nodes touch.
void WindowSearch::addBuffers(Window &window, int32_t first, int32_t last) const {
  std::vector<BufferId> touched;
  for (int32_t at = first; at < last; ++at)
    llvm::append_range(touched, problem.touches[order()[at]]);
  llvm::sort(touched);
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  window.limit = limit - liveBefore[first];
  for (BufferId id : touched) {
    const Buffer &buffer = problem.buffers[id];
    const bool isInside = buffer.def != kNone && positions[buffer.def] >= first;
    window.problem.buffers.push_back(
        {buffer.bytes, isInside ? positions[buffer.def] - first : kNone, buffer.liveOut || lastUse[id] >= last});
    window.limit += isInside ? 0 : buffer.bytes;
  }
  for (int32_t at = first; at < last; ++at) {
    llvm::SmallVector<BufferId, 8> touches;
    for (BufferId id : problem.touches[order()[at]])
      touches.push_back(static_cast<BufferId>(llvm::lower_bound(touched, id) - touched.begin()));
    window.problem.touches.append(touches);
  }
}

/// Adds what follows the window.
void WindowSearch::addTails(Window &window, int32_t first, int32_t last) const {
  window.tails.compute = timeline.tailAt(last);
  for (LaneId lane : window.lanes)
    window.tails.lanes.push_back(lane == kComputeLane ? 0 : laneTails[lane]);
  for (int32_t at = first; at < last; ++at) {
    NodeId start = order()[at];
    Ns tail = -1;
    if (problem.nodes[start].kind == NodeKind::Start)
      for (NodeId user : problem.succs[start]) {
        const Node &node = problem.nodes[user];
        bool waits = node.region == kNone ? node.kind == NodeKind::Wait && node.start == start
                                          : llvm::is_contained(problem.regions[node.region].starts, start);
        if (waits && positions[user] >= last)
          tail = std::max(tail, timeline.tailAt(positions[user]));
      }
    window.tails.ends.push_back(tail);
  }
}

WindowSearch::Window WindowSearch::windowOf(int32_t first, int32_t last) const {
  Window window;
  addNodes(window, first, last);
  addBuffers(window, first, last);
  addTails(window, first, last);
  window.problem.finalize();
  return window;
}

bool WindowSearch::search(int32_t first, int32_t last, int64_t &steps) {
  if (!mayGain(first, last, steps))
    return true;
  Window window = windowOf(first, last);
  ExactSearch exact(window.problem, window.limit, makespan() - timeline.clockAt(first), std::move(window.tails));
  int64_t share = std::min(steps, kStepsPerWindow), before = share;
  bool isComplete = share > 0 && exact.run(share);
  steps -= std::max<int64_t>(before - share, 1) + (last - first);
  Order found;
  for (NodeId node : exact.order())
    found.push_back(order()[first + node]);
  replace(first, found);
  return isComplete;
}

bool WindowSearch::sweep(int32_t width, int64_t &steps, Ns target) {
  const Ns before = makespan();
  const auto size = static_cast<int32_t>(order().size());
  for (int32_t first = 0; first < size && steps > 0 && makespan() > target; first += std::max(width / 2, 1))
    search(first, std::min(first + width, size), steps);
  return makespan() < before;
}
