//===- MoveEvaluator.cpp - Peaks behind moves within an order ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A move swaps two neighbouring blocks of the order: the group G and the segment S that it passes. Seen from a node of
// S only the buffers that G touches change, and they change at no more than two places each. Seen from a node of G the
// buffers that G touches change likewise, and all others by one number: what S allocates less what S frees.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <array>
#include <cassert>

using namespace commsched;

/// What a move does. The window is [windowFirst, windowLast); the segment stands in it where it stood before.
struct MoveEvaluator::Change {
  int32_t windowFirst, windowLast, segmentFirst, segmentLast;
  /// Ascending (position, bytes): from that position on, to the end of the segment, that much more is live.
  llvm::SmallVector<std::pair<int32_t, Bytes>, 16> steps;
  /// Live bytes of the group's nodes afterwards, in their order.
  llvm::SmallVector<Bytes, 8> groupLive;
};

MoveEvaluator::MoveEvaluator(const Problem &problem, llvm::ArrayRef<NodeId> order)
    : problem(&problem), current(order.begin(), order.end()), positions(order.size()),
      tree(memoryProfile(problem, order).live) {
  rows.assign(problem.buffers.size() + 1, 0);
  for (size_t buffer = 0; buffer < problem.buffers.size(); ++buffer)
    rows[buffer + 1] = rows[buffer] + static_cast<int32_t>(problem.users[buffer].size());
  touching.resize(rows.back());
  std::vector<int32_t> cursor(rows.begin(), rows.end() - 1);
  for (auto [position, node] : llvm::enumerate(current)) {
    positions[node] = static_cast<int32_t>(position);
    for (BufferId buffer : problem.touches[node])
      touching[cursor[buffer]++] = node;
  }
}

Bytes MoveEvaluator::liveBefore(int32_t position) const {
  if (current.empty())
    return 0;
  bool atEnd = position == static_cast<int32_t>(current.size());
  int32_t at = atEnd ? position - 1 : position;
  NodeId node = current[at];
  Bytes live = tree.value(at) - workspaceOf(node);
  for (BufferId id : touchesOf(node)) {
    const Buffer &buffer = problem->buffers[id];
    if (atEnd ? !buffer.liveOut && rowOf(id).back() == node : buffer.def != kNone && rowOf(id).front() == node)
      live -= buffer.bytes;
  }
  return live;
}

int32_t MoveEvaluator::earliest(int32_t first, int32_t last) const {
  int32_t result = 0;
  for (int32_t at = first; at < last; ++at)
    for (NodeId pred : problem->preds[current[at]])
      if (positions[pred] < first)
        result = std::max(result, positions[pred] + 1);
  return result;
}

int32_t MoveEvaluator::latest(int32_t first, int32_t last) const {
  int32_t result = static_cast<int32_t>(current.size());
  for (int32_t at = first; at < last; ++at)
    for (NodeId succ : problem->succs[current[at]])
      if (positions[succ] >= last)
        result = std::min(result, positions[succ]);
  return result - (last - first);
}

/// Where a buffer of the group is touched outside the group.
struct MoveEvaluator::Around {
  /// Whether it is live when the window begins, and when it ends, whatever happens within.
  bool before, after;
  /// Whether the segment touches it, and if so at which positions first and last.
  bool inSegment;
  int32_t firstInSegment, lastInSegment;
};

MoveEvaluator::Around MoveEvaluator::touchesAround(BufferId id, const Change &change) const {
  const Buffer &buffer = problem->buffers[id];
  const NodeId *row = rowOf(id).begin(), *rowEnd = rowOf(id).end();
  auto from = [&](int32_t position) {
    return std::lower_bound(row, rowEnd, position, [&](NodeId node, int32_t p) { return positions[node] < p; });
  };
  const NodeId *segmentRow = from(change.segmentFirst), *segmentRowEnd = from(change.segmentLast);
  Around around;
  around.before = buffer.def == kNone || positions[*row] < change.windowFirst;
  around.after = buffer.liveOut || positions[*(rowEnd - 1)] >= change.windowLast;
  around.inSegment = segmentRow != segmentRowEnd;
  around.firstInSegment = around.inSegment ? positions[*segmentRow] : kNone;
  around.lastInSegment = around.inSegment ? positions[*(segmentRowEnd - 1)] : kNone;
  return around;
}

MoveEvaluator::Change MoveEvaluator::evaluate(int32_t first, int32_t last, int32_t to) const {
  assert(0 <= first && first < last && last <= static_cast<int32_t>(current.size()) && "no group");
  assert(0 <= to && to + (last - first) <= static_cast<int32_t>(current.size()) && "no such place");
  const bool left = to < first;
  const int32_t length = last - first;
  Change change;
  change.windowFirst = std::min(first, to);
  change.windowLast = std::max(last, to + length);
  change.segmentFirst = left ? to : last;
  change.segmentLast = left ? first : to + length;

  // The buffers of the group, each with where in the group it is touched.
  llvm::SmallVector<std::pair<BufferId, int32_t>, 32> touched;
  for (int32_t at = first; at < last; ++at)
    for (BufferId buffer : touchesOf(current[at]))
      touched.push_back({buffer, at - first});
  llvm::sort(touched);

  // Bytes of the group's buffers that are live on the boundary where the group stands and on the one where it will.
  Bytes heldHere = 0, heldThere = 0;
  // By place in the group: how much more of the group's own buffers is live from there on.
  llvm::SmallVector<Bytes, 8> groupSteps(length + 1, 0);
  for (size_t index = 0; index < touched.size();) {
    BufferId id = touched[index].first;
    int32_t firstInGroup = touched[index].second, lastInGroup = firstInGroup;
    for (; index < touched.size() && touched[index].first == id; ++index)
      lastInGroup = touched[index].second;

    const Buffer &buffer = problem->buffers[id];
    auto [before, after, inSegment, firstInSegment, lastInSegment] = touchesAround(id, change);

    // Seen from S and from G, once with S in front of G and once with G in front of S, as half-open ranges.
    const int32_t none = change.segmentLast;
    int32_t behindS = before ? change.segmentFirst : inSegment ? firstInSegment : none;
    int32_t behindG = after ? change.segmentLast : inSegment ? lastInSegment + 1 : change.segmentFirst;
    Bytes sign = left ? buffer.bytes : -buffer.bytes;
    change.steps.push_back({change.segmentFirst, sign});
    change.steps.push_back({behindG, -sign});
    change.steps.push_back({behindS, -sign});
    // With S in front, a touch in S makes the buffer live at G's beginning; with G in front, at G's end.
    groupSteps[before ? 0 : firstInGroup] += sign;
    groupSteps[after || inSegment ? length : lastInGroup + 1] -= sign;
    groupSteps[before || inSegment ? 0 : firstInGroup] -= sign;
    groupSteps[after ? length : lastInGroup + 1] += sign;

    Bytes atWindowFirst = before ? buffer.bytes : 0;
    heldHere += left ? (before || inSegment ? buffer.bytes : 0) : atWindowFirst;
    heldThere += left ? atWindowFirst : (after ? buffer.bytes : 0);
  }
  llvm::sort(change.steps, llvm::less_first());

  int32_t boundary = left ? to : to + length;
  Bytes shift = (liveBefore(boundary) - heldThere) - (liveBefore(first) - heldHere);
  change.groupLive.resize(length);
  for (int32_t index = 0; index < length; ++index) {
    shift += groupSteps[index];
    change.groupLive[index] = tree.value(first + index) + shift;
  }
  return change;
}

Bytes MoveEvaluator::windowPeakIfMoved(int32_t first, int32_t last, int32_t to) const {
  if (first == to || first == last)
    return tree.max(first, last);
  Change change = evaluate(first, last, to);
  Bytes peak = *std::max_element(change.groupLive.begin(), change.groupLive.end());
  Bytes more = 0;
  int32_t at = change.segmentFirst;
  for (auto [position, step] : change.steps) {
    if (position > at) {
      peak = std::max(peak, tree.max(at, position) + more);
      at = position;
    }
    more += step;
  }
  if (at < change.segmentLast)
    peak = std::max(peak, tree.max(at, change.segmentLast) + more);
  return peak;
}

Bytes MoveEvaluator::peakIfMoved(int32_t first, int32_t last, int32_t to) const {
  if (first == to || first == last)
    return peak();
  int32_t windowFirst = std::min(first, to), windowLast = std::max(last, to + (last - first));
  Bytes outside = std::max(tree.max(0, windowFirst), tree.max(windowLast, tree.size()));
  return std::max(outside, windowPeakIfMoved(first, last, to));
}

void MoveEvaluator::move(int32_t first, int32_t last, int32_t to) {
  if (first == to || first == last)
    return;
  Change change = evaluate(first, last, to);
  const int32_t middle = to < first ? first : last;
  // The touch lists of the group's buffers, while the positions are still the old ones; turned only when all are
  // known, so that no search sees a list half done.
  llvm::SmallVector<std::array<NodeId *, 3>, 16> turns;
  for (int32_t at = first; at < last; ++at)
    for (BufferId id : touchesOf(current[at])) {
      llvm::MutableArrayRef<NodeId> row = rowOf(id);
      auto from = [&](int32_t position) {
        return std::lower_bound(row.begin(), row.end(), position,
                                [&](NodeId node, int32_t p) { return positions[node] < p; });
      };
      // A buffer that several nodes of the group touch is turned with the first of them.
      if (*from(first) == current[at])
        turns.push_back({from(change.windowFirst), from(middle), from(change.windowLast)});
    }
  for (auto [begin, turnTo, end] : turns)
    std::rotate(begin, turnTo, end);

  llvm::MutableArrayRef<Bytes> bytes = tree.open(change.windowFirst, change.windowLast);
  Bytes more = 0;
  auto step = change.steps.begin();
  for (int32_t at = change.segmentFirst; at < change.segmentLast; ++at) {
    for (; step != change.steps.end() && step->first <= at; ++step)
      more += step->second;
    bytes[at - change.windowFirst] += more;
  }
  llvm::copy(change.groupLive, bytes.begin() + (first - change.windowFirst));
  std::rotate(bytes.begin(), bytes.begin() + (middle - change.windowFirst), bytes.end());
  tree.refresh(change.windowFirst, change.windowLast);
  std::rotate(current.begin() + change.windowFirst, current.begin() + middle, current.begin() + change.windowLast);
  for (int32_t at = change.windowFirst; at < change.windowLast; ++at)
    positions[current[at]] = at;
}

//===-----------------------------------------------------------------------------------------===//
// Changes of touches
//===-----------------------------------------------------------------------------------------===//

std::vector<NodeId> &MoveEvaluator::changedRow(BufferId buffer) {
  if (ownRow.empty())
    ownRow.assign(problem->buffers.size(), kNone);
  if (ownRow[buffer] == kNone) {
    llvm::ArrayRef<NodeId> row = rowOf(buffer);
    changedRows.emplace_back(row.begin(), row.end());
    ownRow[buffer] = static_cast<int32_t>(changedRows.size()) - 1;
  }
  return changedRows[ownRow[buffer]];
}

llvm::SmallVector<BufferId, 4> &MoveEvaluator::changedTouchesOf(NodeId node) {
  if (ownTouches.empty())
    ownTouches.assign(problem->nodes.size(), kNone);
  if (ownTouches[node] == kNone) {
    changedTouches.emplace_back(problem->touches[node]);
    ownTouches[node] = static_cast<int32_t>(changedTouches.size()) - 1;
  }
  return changedTouches[ownTouches[node]];
}

/// The positions at which a buffer is live.
MoveEvaluator::Life MoveEvaluator::lifeOf(BufferId id) const {
  const Buffer &buffer = problem->buffers[id];
  llvm::ArrayRef<NodeId> row = rowOf(id);
  if (row.empty())
    return {0, 0};
  return {buffer.def == kNone ? 0 : positions[row.front()],
          buffer.liveOut ? static_cast<int32_t>(current.size()) : positions[row.back()] + 1};
}

/// Adds `more` bytes to the positions [first, last), or takes them away if last < first.
void MoveEvaluator::addAt(int32_t first, int32_t last, Bytes more) {
  if (last < first) {
    std::swap(first, last);
    more = -more;
  }
  tree.add(first, last, more);
}

/// Accounts for another life of a buffer: one of the two contains the other.
void MoveEvaluator::changeLife(BufferId id, Life before, Life after) {
  if (before.isEmpty())
    before = {after.first, after.first};
  if (after.isEmpty())
    after = {before.first, before.first};
  const Bytes size = problem->buffers[id].bytes;
  addAt(after.first, before.first, size);
  addAt(before.last, after.last, size);
}

void MoveEvaluator::lift(llvm::ArrayRef<NodeId> nodes) {
  if (isLifted.empty())
    isLifted.assign(problem->nodes.size(), 0);
  for (NodeId node : nodes) {
    addAt(positions[node], positions[node] + 1, -problem->nodes[node].workspace);
    isLifted[node] = 1;
    for (BufferId buffer : touchesOf(node)) {
      const Life before = lifeOf(buffer);
      std::vector<NodeId> &row = changedRow(buffer);
      row.erase(std::lower_bound(row.begin(), row.end(), node,
                                 [&](NodeId a, NodeId b) { return positions[a] < positions[b]; }));
      changeLife(buffer, before, lifeOf(buffer));
    }
    changedTouchesOf(node).clear();
  }
}

void MoveEvaluator::permute(int32_t first, llvm::ArrayRef<NodeId> window) {
  next.resize(window.size());
  const int32_t size = static_cast<int32_t>(window.size());
  // Live bytes in front of what was looked at last, from the back.
  Bytes behind = liveBefore(first + size);
  llvm::MutableArrayRef<Bytes> bytes = tree.open(first, first + size);
  for (int32_t end = size, begin; end > 0; end = begin) {
    // A stretch of nodes that follow each other as before, [begin, end) of the window, and where it stands now.
    begin = end - 1;
    int32_t from = positions[window[begin]];
    for (; begin > 0 && from > 0 && window[begin - 1] == current[from - 1]; --from)
      --begin;
    bool isTouching = false;
    for (int32_t at = end; at > begin && !isTouching; --at)
      isTouching = !touchesOf(window[at - 1]).empty();
    // Between two touches, live bytes are the same everywhere. So a node with touches keeps what it sees, and so does
    // what stands beside it. What comes to stand elsewhere sees what is live there.
    if (isTouching) {
      std::copy_n(bytes.begin() + (from - first), end - begin, next.begin() + begin);
      behind = liveBefore(from);
      continue;
    }
    for (int32_t at = begin; at < end; ++at)
      next[at] = behind + workspaceOf(window[at]);
  }
  llvm::copy(next, bytes.begin());
  tree.refresh(first, first + size);
  std::copy(window.begin(), window.end(), current.begin() + first);
  for (int32_t at = 0; at < size; ++at)
    positions[window[at]] = first + at;
}

void MoveEvaluator::settle(llvm::ArrayRef<NodeId> nodes, llvm::ArrayRef<llvm::SmallVector<BufferId, 4>> touches) {
  for (auto [node, list] : llvm::zip_equal(nodes, touches)) {
    addAt(positions[node], positions[node] + 1, problem->nodes[node].workspace);
    isLifted[node] = 0;
    changedTouchesOf(node).assign(list.begin(), list.end());
    for (BufferId buffer : list) {
      const Life before = lifeOf(buffer);
      std::vector<NodeId> &row = changedRow(buffer);
      row.insert(std::lower_bound(row.begin(), row.end(), node,
                                  [&](NodeId a, NodeId b) { return positions[a] < positions[b]; }),
                 node);
      changeLife(buffer, before, lifeOf(buffer));
    }
  }
}
