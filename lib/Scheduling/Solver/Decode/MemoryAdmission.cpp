//===- MemoryAdmission.cpp - Admission control under a hard memory limit ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Three parts: the lists of touches and the spans that follow from them; the life of a move from its beginning to its
// verdict; and the moves themselves: what a placement does to lists, and what the description of a bucket does.
//
//===------------------------------------------------------------------------------------------===//

#include "MemoryAdmission.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cassert>

using namespace commsched;

namespace {

/// Added to the positions of nodes that have been placed, so that no maximum is found there.
constexpr Bytes kPlaced = MemoryTree::kEmpty;

} // namespace

//===-----------------------------------------------------------------------------------------===//
// Lists and spans
//===-----------------------------------------------------------------------------------------===//

bool MemoryAdmission::reset(llvm::ArrayRef<NodeId> reference, llvm::ArrayRef<int32_t> inverse, Bytes newLimit) {
  positions = inverse;
  limit = newLimit;
  NodeId size = problem.size();
  touches.clear();
  touches.reserve(problem.touches.numValues());
  firstTouch.resize(size + 1);
  addedTouches.assign(size, -1);
  lastRefusal.assign(size, -1);
  buffers.clear();
  buffers.reserve(problem.buffers.size());
  for (const Buffer &buffer : problem.buffers) {
    BufferState state;
    state.bytes = buffer.bytes;
    state.liveOut = buffer.liveOut;
    buffers.push_back(state);
  }
  for (NodeId node = 0; node < size; ++node) {
    firstTouch[node] = static_cast<int32_t>(touches.size());
    for (BufferId buffer : problem.touches[node]) {
      Touch touch;
      touch.node = node;
      touch.buffer = buffer;
      touch.linked = true;
      touches.push_back(touch);
    }
  }
  firstTouch[size] = static_cast<int32_t>(touches.size());
  for (NodeId node : reference)
    for (int32_t index = firstTouch[node]; index < firstTouch[node + 1]; ++index) {
      BufferState &buffer = buffers[touches[index].buffer];
      touches[index].prev = buffer.tail;
      (buffer.tail < 0 ? buffer.head : touches[buffer.tail].next) = index;
      buffer.tail = index;
    }

  liveBytes = peakBytes = 0;
  std::vector<Bytes> profile(size + 1, 0);
  for (BufferId id = 0; id < static_cast<BufferId>(buffers.size()); ++id) {
    BufferState &buffer = buffers[id];
    if (problem.buffers[id].def == kNone && buffer.head >= 0) {
      buffer.live = true;
      liveBytes += buffer.bytes;
    }
    Span where = span(id);
    if (where.first < where.last) {
      profile[where.first] += buffer.bytes;
      profile[where.last] -= buffer.bytes;
    }
  }
  profile.pop_back();
  for (int32_t position = 1; position < size; ++position)
    profile[position] += profile[position - 1];
  for (int32_t position = 0; position < size; ++position)
    profile[position] += problem.nodes[reference[position]].workspace;
  tree = MemoryTree(profile);
  return tree.max() <= limit;
}

template <typename Function> void MemoryAdmission::forEachTouch(NodeId node, Function function) {
  for (int32_t index = firstTouch[node]; index < firstTouch[node + 1]; ++index)
    if (touches[index].linked)
      function(index);
  for (int32_t index = addedTouches[node]; index >= 0; index = touches[index].nextAdded)
    if (touches[index].linked)
      function(index);
}

MemoryAdmission::Span MemoryAdmission::span(BufferId id) const {
  const BufferState &buffer = buffers[id];
  bool pending = buffer.head >= 0;
  if (!pending && !(buffer.live && buffer.liveOut))
    return {0, 0};
  int32_t first = buffer.live ? 0 : positions[touches[buffer.head].node];
  int32_t last = buffer.liveOut ? problem.size() : positions[touches[buffer.tail].node] + 1;
  return {first, last};
}

/// Saves the span of a buffer before the move in progress changes it.
void MemoryAdmission::save(BufferId id) {
  BufferState &buffer = buffers[id];
  if (buffer.savedBy == moveNumber)
    return;
  buffer.savedBy = moveNumber;
  saved.push_back({id, span(id), buffer.live});
}

void MemoryAdmission::setNeighbours(const Touch &touch, int32_t afterPrev, int32_t beforeNext) {
  BufferState &buffer = buffers[touch.buffer];
  (touch.prev < 0 ? buffer.head : touches[touch.prev].next) = afterPrev;
  (touch.next < 0 ? buffer.tail : touches[touch.next].prev) = beforeNext;
}

void MemoryAdmission::unlink(int32_t index) {
  Touch &touch = touches[index];
  edits.push_back({index, touch, /*linked=*/false});
  setNeighbours(touch, touch.next, touch.prev);
  touch.linked = false;
}

/// Inserts a touch into its buffer's list behind the touch `after`, or at the front if that is -1.
void MemoryAdmission::link(int32_t index, int32_t after) {
  Touch &touch = touches[index];
  edits.push_back({index, touch, /*linked=*/true});
  touch.prev = after;
  touch.next = after < 0 ? buffers[touch.buffer].head : touches[after].next;
  touch.linked = true;
  setNeighbours(touch, index, index);
}

int32_t MemoryAdmission::addTouch(NodeId node, BufferId buffer) {
  Touch touch;
  touch.node = node;
  touch.buffer = buffer;
  touch.nextAdded = addedTouches[node];
  touches.push_back(touch);
  return addedTouches[node] = static_cast<int32_t>(touches.size()) - 1;
}

/// Inserts a touch by its position in the reference, which is not behind that of the touch after `notAfter`.
void MemoryAdmission::linkByPosition(int32_t index, int32_t notAfter) {
  int32_t position = positions[touches[index].node], after = notAfter;
  while (after >= 0 && positions[touches[after].node] > position)
    after = touches[after].prev;
  link(index, after);
}

/// Moves the touches of all waits but the first to the first, which precedes the others in the reference.
void MemoryAdmission::absorb(llvm::ArrayRef<NodeId> waits) {
  for (NodeId from : waits.drop_front()) {
    forEachTouch(from, [&](int32_t index) {
      BufferId buffer = touches[index].buffer;
      save(buffer);
      unlink(index);
      linkByPosition(addTouch(waits.front(), buffer), touches[index].prev);
    });
    retired.push_back(from);
  }
}

BufferId MemoryAdmission::addBuffer(Bytes bytes) {
  BufferState state;
  state.bytes = bytes;
  buffers.push_back(state);
  BufferId id = static_cast<BufferId>(buffers.size()) - 1;
  save(id);
  return id;
}

//===-----------------------------------------------------------------------------------------===//
// The life of a move
//===-----------------------------------------------------------------------------------------===//

void MemoryAdmission::beginMove() {
  ++moveNumber;
  liveBefore = movePeak = liveBytes;
  touchesBefore = touches.size();
  buffersBefore = buffers.size();
  saved.clear();
  edits.clear();
  changes.clear();
  retired.clear();
}

/// Makes a buffer live. Returns whether live bytes stay within the limit.
bool MemoryAdmission::allocate(BufferId id) {
  save(id);
  buffers[id].live = true;
  liveBytes += buffers[id].bytes;
  movePeak = std::max(movePeak, liveBytes);
  return liveBytes <= limit;
}

void MemoryAdmission::freeUnused(BufferId id) {
  BufferState &buffer = buffers[id];
  if (!buffer.live || buffer.liveOut || buffer.head >= 0)
    return;
  buffer.live = false;
  liveBytes -= buffer.bytes;
}

/// Places a node within a move. Returns whether live bytes stay within the limit while it runs.
bool MemoryAdmission::runInMove(NodeId node) {
  bool within = true;
  forEachTouch(node, [&](int32_t index) {
    BufferId buffer = touches[index].buffer;
    save(buffer);
    if (!buffers[buffer].live)
      within &= allocate(buffer);
  });
  movePeak = std::max(movePeak, liveBytes + problem.nodes[node].workspace);
  within &= liveBytes + problem.nodes[node].workspace <= limit;
  retire(node);
  return within;
}

/// Removes a node from all lists. Frees the buffers that no remaining node touches.
void MemoryAdmission::detach(NodeId node) {
  forEachTouch(node, [&](int32_t index) {
    save(touches[index].buffer);
    unlink(index);
    freeUnused(touches[index].buffer);
  });
}

/// The same for a node that does not remain.
void MemoryAdmission::retire(NodeId node) {
  detach(node);
  retired.push_back(node);
}

/// Collects the differences between the saved spans and the present ones.
void MemoryAdmission::collectChanges() {
  auto add = [&](int32_t first, int32_t last, Bytes bytes) {
    if (first < last && bytes != 0)
      changes.push_back({first, last, bytes});
  };
  for (const Saved &entry : saved) {
    Span old = entry.span, now = span(entry.buffer);
    Bytes bytes = buffers[entry.buffer].bytes;
    if (old.last <= now.first || now.last <= old.first) {
      add(old.first, old.last, -bytes);
      add(now.first, now.last, bytes);
      continue;
    }
    add(now.first, old.first, bytes);
    add(old.first, now.first, -bytes);
    add(now.last, old.last, -bytes);
    add(old.last, now.last, bytes);
  }
}

/// Applies the move in progress to the tree if the state after it is safe. Returns whether it is.
bool MemoryAdmission::isSafeAfter(NodeId key) {
  collectChanges();
  bool rises = llvm::any_of(changes, [](const Change &change) { return change.bytes > 0; });
  int32_t refusedAt = lastRefusal[key];
  if (rises && refusedAt >= 0 && llvm::none_of(retired, [&](NodeId node) { return positions[node] == refusedAt; })) {
    Bytes there = tree.value(refusedAt);
    for (const Change &change : changes)
      if (change.first <= refusedAt && refusedAt < change.last)
        there += change.bytes;
    if (there > limit)
      return false;
  }
  for (const Change &change : changes)
    tree.add(change.first, change.last, change.bytes);
  for (NodeId node : retired)
    tree.add(positions[node], positions[node] + 1, kPlaced);
  if (!rises || tree.max() <= limit)
    return true;
  lastRefusal[key] = tree.argmax();
  for (const Change &change : changes)
    tree.add(change.first, change.last, -change.bytes);
  for (NodeId node : retired)
    tree.add(positions[node], positions[node] + 1, -kPlaced);
  return false;
}

/// Ends the move in progress: keeps it if live bytes were within the limit and the state after it is safe, or undoes
/// it.
bool MemoryAdmission::commitOrRollBack(bool withinLimit, NodeId key) {
  // Without a limit the tree is not needed, and not updated.
  if (withinLimit && (limit >= kUnlimited || isSafeAfter(key))) {
    peakBytes = std::max(peakBytes, movePeak);
    return true;
  }
  rollBack();
  return false;
}

void MemoryAdmission::rollBack() {
  for (const Edit &edit : llvm::reverse(edits)) {
    Touch &touch = touches[edit.touch];
    if (edit.linked) {
      setNeighbours(touch, touch.next, touch.prev);
      touch = edit.before;
    } else {
      touch = edit.before;
      setNeighbours(touch, edit.touch, edit.touch);
    }
  }
  for (const Saved &entry : saved)
    buffers[entry.buffer].live = entry.live;
  while (touches.size() > touchesBefore) {
    addedTouches[touches.back().node] = touches.back().nextAdded;
    touches.pop_back();
  }
  buffers.resize(buffersBefore);
  liveBytes = liveBefore;
}

//===-----------------------------------------------------------------------------------------===//
// The moves
//===-----------------------------------------------------------------------------------------===//

bool MemoryAdmission::tryAdmit(llvm::ArrayRef<NodeId> nodes) {
  beginMove();
  bool within = llvm::all_of(nodes, [&](NodeId node) { return runInMove(node); });
  return commitOrRollBack(within, nodes.back());
}

void MemoryAdmission::place(NodeId node) {
  beginMove();
  bool within = runInMove(node);
  assert(within && "the first remaining node always fits");
  (void)within;
  peakBytes = std::max(peakBytes, movePeak);
  if (limit >= kUnlimited)
    return;
  collectChanges();
  for (const Change &change : changes)
    tree.add(change.first, change.last, change.bytes);
  tree.add(positions[node], positions[node] + 1, kPlaced);
  assert(tree.max() <= limit && "a step of the reference left the safe state");
}

/// The pack reads the inputs, so the collective does not need them: starts, fused casts, and the waits' touches of the
/// inputs are removed. The prelude has been placed, and the packed buffer is live.
void MemoryAdmission::readByPack(const BucketMove &move) {
  for (const JoinedWaits &join : move.joined)
    for (NodeId wait : join.waits) {
      BufferId output = problem.members[problem.nodes[wait].start].output;
      forEachTouch(wait, [&](int32_t index) {
        if (touches[index].buffer == output)
          return;
        save(touches[index].buffer);
        unlink(index);
      });
    }
  for (NodeId cast : move.shape.casts)
    retire(cast);
  for (NodeId start : move.starts)
    retire(start);
}

/// Moves the touches of all members' outputs to `merged`. The waits, which touched them, touch nothing any more.
void MemoryAdmission::mergeOutputs(const BucketMove &move, BufferId merged) {
  std::vector<int32_t> users;
  for (NodeId start : move.starts) {
    BufferId output = problem.members[start].output;
    save(output);
    detach(problem.members[start].wait);
    for (int32_t index = buffers[output].head; index >= 0; index = touches[index].next)
      users.push_back(index);
    buffers[merged].liveOut |= buffers[output].liveOut;
  }
  llvm::sort(users, [&](int32_t a, int32_t b) {
    return std::pair(positions[touches[a].node], a) < std::pair(positions[touches[b].node], b);
  });
  for (int32_t index : users) {
    unlink(index);
    touches[index].buffer = merged;
    link(index, buffers[merged].tail);
  }
}

/// Places the pack and the start of a packed bucket.
bool MemoryAdmission::pack(const BucketMove &move) {
  const BucketShape &shape = move.shape;
  BufferId packed = addBuffer(shape.packedBytes);
  if (!allocate(packed))
    return false;
  readByPack(move);
  BufferId merged = shape.definesMerged ? addBuffer(shape.mergedBytes) : packed;
  if (shape.mergesOutputs)
    mergeOutputs(move, merged);
  // From the last node to the first, so that each becomes the first one that touches the buffer.
  for (const JoinedWaits &join : llvm::reverse(move.joined)) {
    absorb(join.waits);
    link(addTouch(join.waits.front(), packed), -1);
    if (merged != packed)
      link(addTouch(join.waits.front(), merged), -1);
  }
  return merged == packed || allocate(merged);
}

bool MemoryAdmission::runBucket(const BucketMove &move) {
  auto runs = [&](NodeId node) { return runInMove(node); };
  if (!llvm::all_of(move.prelude, runs))
    return false;
  if (move.shape.packs)
    return pack(move);
  if (!llvm::all_of(move.starts, runs))
    return false;
  for (const JoinedWaits &join : move.joined)
    absorb(join.waits);
  return true;
}

bool MemoryAdmission::tryBucket(const BucketMove &move) {
  beginMove();
  return commitOrRollBack(runBucket(move), move.starts.front());
}
