//===- GroupWalk.cpp - Move a group of nodes within dependences and memory --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Bookkeeping of a walk. Two heaps hold the positions ahead at which something changes: nodes in the way, and nodes
// whose passing changes the effect of a buffer. Between two such positions a whole range is passed in O(log N).
//
//===------------------------------------------------------------------------------------------===//

#include "GroupWalk.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// The items of the tree: live bytes of each node, and those that are live on the side that faces the moves.
std::vector<OrderTreeItem> makeItems(const Problem &problem, llvm::ArrayRef<NodeId> order, WalkDirection direction,
                                     llvm::ArrayRef<int64_t> work, llvm::ArrayRef<uint8_t> tags) {
  int32_t size = problem.size();
  std::vector<int32_t> position(size);
  for (int32_t at = 0; at < size; ++at)
    position[order[at]] = at;
  std::vector<Bytes> live(size + 1, 0), edge(size + 1, 0);
  auto add = [](std::vector<Bytes> &steps, int32_t first, int32_t last, Bytes bytes) {
    if (first < last)
      steps[first] += bytes, steps[last] -= bytes;
  };
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
    const Buffer &buffer = problem.buffers[id];
    llvm::ArrayRef<NodeId> users = problem.users[id];
    if (users.empty())
      continue;
    int32_t from = size, to = 0;
    for (NodeId user : users)
      from = std::min(from, position[user]), to = std::max(to, position[user]);
    int32_t end = buffer.liveOut ? size : to + 1;
    add(live, buffer.def == kNone ? 0 : from, end, buffer.bytes);
    if (direction == WalkDirection::Left)
      add(edge, buffer.def == kNone ? 0 : from + 1, end, buffer.bytes);
    else
      add(edge, buffer.def == kNone ? 0 : from, buffer.liveOut ? size : to, buffer.bytes);
  }
  std::vector<OrderTreeItem> items(size);
  Bytes liveNow = 0, edgeNow = 0;
  for (int32_t at = 0; at < size; ++at) {
    liveNow += live[at];
    edgeNow += edge[at];
    NodeId node = order[at];
    items[node] = {liveNow + problem.nodes[node].workspace, edgeNow, work[node], tags[node]};
  }
  return items;
}

} // namespace

GroupWalk::GroupWalk(const Problem &problem, llvm::ArrayRef<NodeId> order, WalkDirection direction,
                     llvm::ArrayRef<int64_t> work, llvm::ArrayRef<uint8_t> tags)
    : problem(&problem), direction(direction), positions(order, makeItems(problem, order, direction, work, tags)),
      inGroup(problem.size(), 0), touched(problem.buffers.size()), rowBegin(problem.buffers.size(), 0) {
  for (size_t id = 1; id < rowBegin.size(); ++id)
    rowBegin[id] = rowBegin[id - 1] + static_cast<int32_t>(problem.users[id - 1].size());
  rows.resize(problem.users.numValues());
  std::vector<int32_t> rowEnd = rowBegin;
  for (NodeId node : order)
    for (BufferId buffer : problem.touches[node])
      rows[rowEnd[buffer]++] = node;
}

void GroupWalk::pushEvent(std::vector<Event> &heap, Event event) {
  heap.push_back(event);
  std::push_heap(heap.begin(), heap.end(), [this](const Event &a, const Event &b) {
    return left() ? a.position < b.position : a.position > b.position;
  });
}

void GroupWalk::popEvent(std::vector<Event> &heap) {
  std::pop_heap(heap.begin(), heap.end(), [this](const Event &a, const Event &b) {
    return left() ? a.position < b.position : a.position > b.position;
  });
  heap.pop_back();
}

void GroupWalk::begin(NodeId node) {
  beganAt = first = positions.position(node);
  last = first + 1;
  take(node);
}

void GroupWalk::end() {
  for (BufferId buffer : touchedList) {
    settleRow(buffer);
    touched[buffer] = {};
  }
  for (NodeId node : members)
    inGroup[node] = 0;
  members.clear();
  touchedList.clear();
  blockers.clear();
  events.clear();
  passing = 0;
}

int32_t GroupWalk::blocker() {
  while (!blockers.empty() && inGroup[blockers.front().id])
    popEvent(blockers);
  if (!blockers.empty())
    return blockers.front().position;
  return left() ? -1 : positions.size();
}

void GroupWalk::absorb() {
  NodeId node = neighbour();
  if (left())
    --first;
  else
    ++last;
  take(node);
}

void GroupWalk::take(NodeId node) {
  inGroup[node] = 1;
  members.push_back(node);
  for (BufferId id : problem->touches[node]) {
    TouchedBuffer &buffer = touched[id];
    ++buffer.numInGroup;
    if (!buffer.touched)
      touchedList.push_back(id);
    account(id, -1);
    buffer.touched = true;
    buffer.definedInGroup |= problem->buffers[id].def == node;
    if (buffer.lastInGroup == kNone || !left())
      buffer.lastInGroup = node;
    reconsider(id);
    account(id, 1);
  }
  for (NodeId other : left() ? problem->preds[node] : problem->succs[node])
    if (!inGroup[other])
      pushEvent(blockers, {positions.position(other), other});
}

/// Adds (sign 1) or removes (sign -1) the effect of a buffer on every passed node.
void GroupWalk::account(BufferId id, int sign) {
  Bytes bytes = problem->buffers[id].bytes * sign * (left() ? 1 : -1);
  if (touched[id].effect == Effect::Defined)
    passing += bytes;
  else if (touched[id].effect == Effect::Freed)
    passing -= bytes;
}

/// Finds the effect of a buffer from its touches outside of the group.
void GroupWalk::reconsider(BufferId id) {
  TouchedBuffer &buffer = touched[id];
  buffer.effect = Effect::None;
  buffer.eventPosition = kNone;
  bool liveOut = problem->buffers[id].liveOut;
  if (buffer.definedInGroup) {
    if (liveOut || hasOutside(id))
      buffer.effect = Effect::Defined;
    return;
  }
  if (liveOut)
    return;
  buffer.effect = Effect::Freed;
  if (!hasOutside(id))
    return;
  int32_t lastTouch = positions.position(lastOutside(id));
  if (bool inFront = left() == (lastTouch < first); !inFront) {
    if (left())
      buffer.effect = Effect::None;
    return;
  }
  if (!left())
    buffer.effect = Effect::Pending;
  buffer.eventPosition = lastTouch;
  pushEvent(events, {lastTouch, id});
}

/// Of the nodes outside of the group that touch the buffer, of which there is one: the last one. Amortised O(1) per
/// node that joins the group.
NodeId GroupWalk::lastOutside(BufferId id) {
  llvm::ArrayRef<NodeId> nodes = row(id);
  int32_t &end = touched[id].endOfOutside;
  if (end == kNone)
    end = static_cast<int32_t>(nodes.size());
  while (inGroup[nodes[end - 1]])
    --end;
  return nodes[end - 1];
}

/// Brings the row into the order in which its nodes stand now. Those between the group's beginning and its end are of
/// the group or passed by it. O(log^2 N + nodes of the row between).
void GroupWalk::settleRow(BufferId id) {
  int32_t low = left() ? first : beganAt, high = left() ? beganAt + 1 : last;
  if (high - low == static_cast<int32_t>(members.size()))
    return;
  llvm::MutableArrayRef<NodeId> nodes = row(id);
  auto before = [this](NodeId node, int32_t position) { return positions.position(node) < position; };
  auto *begin = llvm::lower_bound(nodes, low, before), *end = std::lower_bound(begin, nodes.end(), high, before);
  std::stable_partition(begin, end, [this](NodeId node) { return (inGroup[node] != 0) == left(); });
}

/// The position of the nearest event, or kNone.
int32_t GroupWalk::nextEvent() {
  while (!events.empty()) {
    Event event = events.front();
    if (touched[event.id].eventPosition == event.position)
      return event.position;
    popEvent(events);
  }
  return kNone;
}

/// Counts the node at `at` as passed for this buffer (sign 1), or as not passed (sign -1).
void GroupWalk::passEvent(BufferId id, int32_t at, int sign) {
  Bytes bytes = problem->buffers[id].bytes * sign;
  int32_t lastTouch = positions.position(touched[id].lastInGroup);
  passing += bytes;
  if (left()) {
    // The group frees the buffer no more: a passed node does.
    positions.addLive(lastTouch + 1, last, bytes);
    positions.addEdge(lastTouch + 1, last, bytes);
    return;
  }
  // The group frees the buffer instead of the passed node, at which it was live already.
  positions.addLive(first, lastTouch + 1, bytes);
  positions.addEdge(first, lastTouch, bytes);
  positions.addLive(at, at + 1, -bytes);
}

GroupWalk::Stop GroupWalk::advance(int32_t to, Bytes limit) {
  while (left() ? first > to : last <= to) {
    llvm::SmallVector<BufferId, 4> passed;
    int32_t near = neighbourPosition();
    while (nextEvent() == near) {
      BufferId id = events.front().id;
      popEvent(events);
      touched[id].eventPosition = kNone;
      touched[id].effect = left() ? Effect::None : Effect::Freed;
      passEvent(id, near, 1);
      passed.push_back(id);
    }
    int32_t far = to;
    if (int32_t event = nextEvent(); event != kNone && (left() ? event >= to : event <= to))
      far = left() ? event + 1 : event - 1;
    Stop stop = passRange(far, limit);
    if (stop.node == kNone)
      continue;
    // An unpassed neighbour leaves the buffers as they were. The walk ends here, so only the bytes have to be restored.
    if (neighbourPosition() == near)
      for (BufferId id : passed)
        passEvent(id, near, -1);
    return stop;
  }
  return {};
}

/// advance() over a range in which no buffer changes its last user.
GroupWalk::Stop GroupWalk::passRange(int32_t to, Bytes limit) {
  Bytes most = positions.maxLive(first, last);
  Bytes here = positions.edge(left() ? first : last - 1);
  Bytes liveLimit = limit - passing, edgeLimit = limit - most + here;
  int32_t refused = left() ? positions.lastAbove(to, first, liveLimit, edgeLimit)
                           : positions.firstAbove(last, to + 1, liveLimit, edgeLimit);
  Stop stop;
  if (refused != kNone) {
    stop.node = positions.at(refused);
    stop.reached = std::max(positions.live(refused) + passing, most + positions.edge(refused) - here);
    to = left() ? refused + 1 : refused - 1;
    if (left() ? to == first : to < last)
      return stop;
  }
  int32_t begin = left() ? to : last, end = left() ? first : to + 1;
  Bytes shift = positions.edge(to) - here;
  positions.addLive(begin, end, passing);
  positions.addEdge(begin, end, passing);
  positions.addLive(first, last, shift);
  positions.addEdge(first, last, shift);
  if (left()) {
    positions.rotate(begin, first, last);
    last -= first - begin;
    first = begin;
  } else {
    positions.rotate(first, last, end);
    first += end - last;
    last = end;
  }
  return stop;
}

std::string GroupWalk::recount() const {
  Order order = positions.order();
  MemoryProfile profile = memoryProfile(*problem, order);
  for (int32_t at = 0; at < positions.size(); ++at)
    if (Bytes counted = positions.live(at); counted != profile.live[at])
      return "memory recompute: " + std::to_string(profile.live[at]) + " bytes are live at position " +
             std::to_string(at) + ", the moves count " + std::to_string(counted);
  return {};
}
