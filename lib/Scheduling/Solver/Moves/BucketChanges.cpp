//===- BucketChanges.cpp - Changes of the buckets of an order ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A change gives its slots new work first, then new places where they need some, then asks the clocks, then memory.
// Whatever refuses, the slots get back what they had.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketedOrder.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Keys between two positions: what is put behind a slot is kBehind apart, what is put before one is 1 apart and less
/// than kBefore before it. A change moves at most kMaxShifts slots, so that the two never meet.
static constexpr int64_t kBehind = 1024, kBefore = 512;
static constexpr int32_t kMaxShifts = 500;
/// One of so many changes that do not look promising is tried all the same.
static constexpr int64_t kTriedUnpromising = 16;

//===-----------------------------------------------------------------------------------------===//
// Places
//===-----------------------------------------------------------------------------------------===//

void BucketedOrder::shiftTo(NodeId slot, Key key) {
  if (keys[slot] == kUnmoved)
    moved.push_back(slot);
  keys[slot] = key;
  ++numShifts;
}

void BucketedOrder::shiftBefore(NodeId slot, NodeId anchor) {
  if (slot != anchor)
    shiftTo(slot, keyOf(anchor) - kBefore + numShifts);
}

void BucketedOrder::shiftBehind(NodeId slot, NodeId anchor) {
  if (slot != anchor)
    shiftTo(slot, keyOf(anchor) + kBehind * (numShifts + 1));
}

/// Moves the unpacks that would come before the start to their first users, and the wait to the first unpack.
void BucketedOrder::placeUnpacks(const LiveBucket &bucket) {
  NodeId firstUnpack = kNone;
  for (const BucketShape::Unpack &unpack : bucket.shape.unpacks) {
    NodeId slot = slotOf(bucket, unpack);
    Key behind = keyBehind(slot);
    if (keyOf(slot) <= keyOf(bucket.leader) || keyOf(slot) >= behind)
      shiftTo(slot, behind - kBefore + numShifts);
    if (firstUnpack == kNone || keyOf(slot) < keyOf(firstUnpack))
      firstUnpack = slot;
  }
  NodeId wait = waitOf(bucket);
  if (keyOf(wait) <= keyOf(bucket.leader) || keyOf(wait) >= keyOf(firstUnpack))
    shiftBefore(wait, firstUnpack);
}

/// Moves the wait of a bucket without unpacks where it is legal: to the last place of a member's wait, or to the first
/// user if that comes earlier.
void BucketedOrder::placeWait(const LiveBucket &bucket) {
  NodeId wait = waitOf(bucket);
  if (keyOf(wait) <= keyOf(bucket.leader)) {
    NodeId last = wait;
    for (NodeId member : bucket.what.members)
      if (NodeId other = given.members[member].wait; keyOf(other) > keyOf(last))
        last = other;
    shiftBehind(wait, last);
    if (keyOf(wait) <= keyOf(bucket.leader))
      shiftBehind(wait, bucket.leader);
  }
  if (Key behind = keyBehind(wait); keyOf(wait) >= behind)
    shiftTo(wait, behind - kBefore + numShifts);
}

/// Moves the slots of a new bucket to legal places, if there are some. `base`: the bucket with the same leader that was
/// dissolved, or null.
void BucketedOrder::placeBucket(const LiveBucket &bucket, const LiveBucket *base, NodeId place) {
  NodeId start = bucket.leader, first = bucket.shape.packs ? packSlot(start) : start;
  if (place != kNone)
    shiftBehind(start, place);
  if (bucket.shape.packs && (!base || !base->shape.packs || place != kNone))
    shiftBefore(first, start);
  if (Key before = keyBefore(first); keyOf(first) <= before)
    shiftTo(first, before + kBehind * (numShifts + 1));
  if (keyOf(start) < keyOf(first))
    shiftBehind(start, first);
  if (bucket.shape.unpacksOutputs)
    placeUnpacks(bucket);
  else
    placeWait(bucket);
}

/// Moves a start that leaves a bucket to a legal place, with its cast and its wait.
void BucketedOrder::placeAlone(NodeId start, const LiveBucket &from, BucketChange::Place place) {
  NodeId wait = given.members[start].wait, cast = fusedCast(given, start);
  bool castReturns = from.shape.packs && cast != kNone;
  if (start != from.leader) {
    if (place == BucketChange::BeforePack)
      shiftBefore(start, from.shape.packs ? packSlot(from.leader) : from.leader);
    // The cast follows its start, so its own place does not bind the start.
    Key before = keyBefore(castReturns ? cast : start);
    if (place == BucketChange::BehindStart || keyOf(start) <= before || keyOf(start) >= keyBehind(start))
      shiftBehind(start, from.leader);
  }
  if (castReturns && (keyOf(cast) <= keyBefore(cast) || keyOf(cast) >= keyOf(start)))
    shiftBefore(cast, start);
  // A wait that moves along has its place.
  bool isCarried = keys[wait] != kUnmoved && keyOf(wait) > keyOf(start);
  if (afterUntilNow[wait] != wait && !isCarried)
    shiftBehind(wait, afterUntilNow[wait]);
  if (keyOf(wait) <= keyOf(start))
    shiftBehind(wait, waitOf(from));
  if (Key behind = keyBehind(wait); keyOf(wait) >= behind)
    shiftTo(wait, behind - kBefore + numShifts);
}

bool BucketedOrder::isLegal() const {
  return numShifts < kMaxShifts && llvm::all_of(
                                       changing,
                                       [&](NodeId slot) {
                                         return roles[slot] == Role::Empty ||
                                                (keyBefore(slot) < keyOf(slot) && keyOf(slot) < keyBehind(slot));
                                       });
}

/// Whether a timeline takes two nodes for the same.
static bool areEqual(const Node &a, const Node &b) {
  return a.kind == b.kind && a.cost == b.cost && a.lane == b.lane && a.start == b.start && a.issue == b.issue;
}

/// Whether some clocks take a slot for another one than before.
bool BucketedOrder::takesOtherTime(NodeId slot) const {
  return !areEqual(nodeOf(slot), slots.nodes[slot]) ||
         llvm::any_of(guarded, [&](const std::unique_ptr<GuardedLine> &line) {
           return !areEqual(nodeOf(slot, *line->guard.problem), line->slots.nodes[slot]);
         });
}

/// Finds the positions that the change concerns, and the order that the slots will have there.
void BucketedOrder::findWindow() {
  int32_t first = size(), last = 0;
  auto cover = [&](int64_t position) {
    int32_t at = static_cast<int32_t>(std::clamp<int64_t>(position, 0, size() - 1));
    first = std::min(first, at);
    last = std::max(last, at + 1);
  };
  for (NodeId slot : changing)
    if (takesOtherTime(slot)) {
      changed.push_back(slot);
      cover(position(slot));
    }
  for (NodeId slot : moved) {
    cover(position(slot));
    cover(keys[slot] >> kKeyBits);
  }
  windowFirst = std::min(first, last);
  left.clear();
  for (NodeId slot : moved)
    left.push_back(position(slot));
  llvm::sort(left);
  llvm::sort(moved, [&](NodeId a, NodeId b) { return keys[a] < keys[b]; });
  // What does not move comes in stretches between the positions that are left and those at which something arrives.
  window.clear();
  auto nextLeft = left.begin();
  int32_t at = windowFirst;
  auto stayUntil = [&](int32_t end) {
    for (; nextLeft != left.end() && *nextLeft < end; at = *nextLeft++ + 1)
      window.insert(window.end(), order().begin() + at, order().begin() + *nextLeft);
    if (at < end)
      window.insert(window.end(), order().begin() + at, order().begin() + end);
    at = std::max(at, end);
  };
  for (NodeId slot : moved) {
    stayUntil(static_cast<int32_t>(std::min<Key>((keys[slot] >> kKeyBits) + 1, last)));
    window.push_back(slot);
  }
  stayUntil(last);
}

//===-----------------------------------------------------------------------------------------===//
// The change
//===-----------------------------------------------------------------------------------------===//

/// Adds a slot that this change has not collected yet.
void BucketedOrder::collect(NodeId slot, std::vector<NodeId> &slots) {
  if (std::exchange(collectedIn[slot], numChanges) != numChanges)
    slots.push_back(slot);
}

void BucketedOrder::collectSlots(const LiveBucket &bucket) {
  for (NodeId member : bucket.what.members) {
    collect(member, changing);
    collect(given.members[member].wait, changing);
  }
  for (NodeId cast : bucket.shape.casts)
    collect(cast, changing);
  collect(packSlot(bucket.leader), changing);
  collect(waitSlot(bucket.leader), changing);
}

/// Adds the slots that touch the outputs of a bucket that merges them: their touches change with it.
void BucketedOrder::collectTouchers(const LiveBucket &bucket) {
  if (!bucket.shape.mergesOutputs)
    return;
  for (NodeId member : bucket.what.members)
    for (NodeId user : given.users[given.members[member].output]) {
      if (bucketOfNode[user] == kNone) {
        collect(user, retouched);
        continue;
      }
      const LiveBucket &other = buckets[bucketOfNode[user]];
      collect(other.shape.packs ? packSlot(other.leader) : other.leader, retouched);
      if (!other.shape.packs)
        collect(waitOf(other), retouched);
    }
}

/// Whether a slot that touches `touches` from now on is the same as before for memory.
bool BucketedOrder::staysInMemory(NodeId slot, llvm::ArrayRef<BufferId> touches) const {
  // The buffers of buckets may have other sizes.
  const auto numGiven = static_cast<BufferId>(given.buffers.size());
  return keys[slot] == kUnmoved && touches == memory->touchesOf(slot) &&
         (touches.empty() || touches.back() < numGiven) && nodeOf(slot).workspace == slots.nodes[slot].workspace;
}

/// Tells memory what the slots do now, with `order` in the window. `active`: the buckets that were formed.
void BucketedOrder::retouch(llvm::ArrayRef<NodeId> order, llvm::ArrayRef<int32_t> active) {
  // Three of four slots do what they did, most of them nothing.
  llvm::SmallVector<NodeId, 32> lifted;
  std::vector<llvm::SmallVector<BufferId, 4>> touches;
  for (NodeId slot : retouched) {
    llvm::SmallVector<BufferId, 4> next = touchesOf(slot);
    if (staysInMemory(slot, next))
      continue;
    lifted.push_back(slot);
    touches.push_back(std::move(next));
  }
  memory->lift(lifted);
  for (NodeId slot : changing) {
    slots.nodes[slot] = nodeOf(slot);
    for (const std::unique_ptr<GuardedLine> &line : guarded)
      line->slots.nodes[slot] = nodeOf(slot, *line->guard.problem);
  }
  for (int32_t index : active)
    setBuffers(buckets[index]);
  if (!moved.empty())
    memory->permute(windowFirst, order);
  memory->settle(lifted, touches);
}

/// Gives slots new work: those of the buckets in `out` become alone, those of the buckets in `in` serve these.
void BucketedOrder::exchange(llvm::ArrayRef<int32_t> out, llvm::ArrayRef<int32_t> in) {
  for (int32_t index : out)
    deactivate(index);
  for (int32_t index : in)
    activate(index);
}

/// Moves slots that have new work to where it is legal, as far as possible.
void BucketedOrder::placeAll(const BucketChange &change, llvm::ArrayRef<int32_t> formed) {
  for (NodeId slot : change.carried)
    change.isBehind ? shiftBehind(slot, change.anchor) : shiftBefore(slot, change.anchor);
  for (auto [index, next] : llvm::zip_equal(formed, change.formed)) {
    const LiveBucket *base = nullptr;
    for (int32_t old : change.dissolved)
      base = buckets[old].leader == next.leader ? &buckets[old] : base;
    placeBucket(buckets[index], base, next.place);
  }
  for (int32_t old : change.dissolved)
    for (NodeId member : buckets[old].what.members)
      if (bucketOfNode[member] == kNone)
        placeAlone(member, buckets[old], change.place);
}

/// Whether the order takes at most `allowed` with the new work of the slots, in the window's order.
bool BucketedOrder::takesAtMost(Ns allowed) {
  retime(changed);
  return window.empty() ||
         (timeline->makespanIfReplaced(windowFirst, window, allowed) <= allowed && meetsGuards(windowFirst));
}

/// Tells all clocks what slots do now.
void BucketedOrder::retime(llvm::ArrayRef<NodeId> slots) {
  for (NodeId slot : slots)
    timeline->setNode(slot, nodeOf(slot));
  for (const std::unique_ptr<GuardedLine> &line : guarded)
    for (NodeId slot : slots)
      line->timeline->setNode(slot, nodeOf(slot, *line->guard.problem));
}

/// Whether a change may keep the order within `allowed`, as far as the clocks around its buckets tell. A guess: other
/// nodes that move along, or another place for a start, may make up for more.
bool BucketedOrder::isPromising(const BucketChange &change, llvm::ArrayRef<Price> prices, Ns allowed) const {
  Ns compute = 0, lane = 0;
  for (const Price &price : prices) {
    compute += price.extraCompute;
    lane += price.extraLane;
  }
  for (int32_t index : change.dissolved) {
    compute -= buckets[index].price.extraCompute;
    lane -= buckets[index].price.extraLane;
  }
  if (compute > 0 && compute + lane > 0 && change.carried.empty())
    return false;
  const Ns saved = std::min<Ns>(compute, 0);
  // What is longer on the lane in all delays what follows.
  for (int32_t index : change.dissolved) {
    NodeId start = buckets[index].leader;
    if (lane > 0 && timeline->endOf(start) + timeline->tailThrough(start) + lane + saved > allowed)
      return false;
  }
  // What is longer in one place delays what waits there.
  for (auto [price, next] : llvm::zip_equal(prices, change.formed)) {
    NodeId place = next.place == kNone ? next.leader : next.place;
    int32_t old = bucketOfNode[place];
    if (old != kNone)
      place = buckets[old].leader;
    Ns longer = price.start - slots.nodes[place].cost;
    if (longer > 0 && timeline->endOf(place) + timeline->tailOfWaiters(place) + longer + saved > allowed)
      return false;
  }
  return true;
}

bool BucketedOrder::tryChange(const BucketChange &change, Ns allowed, int64_t &work) {
  changing.clear();
  changed.clear();
  moved.clear();
  numShifts = 0;
  ++numChanges;
  llvm::SmallVector<Price, 2> prices;
  for (const FormedBucket &next : change.formed) {
    prices.push_back(priceOf(next.bucket));
    work += static_cast<int64_t>(next.bucket.members.size());
  }
  if (!isPromising(change, prices, allowed) && ++unpromising % kTriedUnpromising != 0)
    return false;
  llvm::SmallVector<int32_t, 2> formed;
  for (auto [next, price] : llvm::zip_equal(change.formed, prices))
    formed.push_back(describe(next, price));
  for (int32_t index : change.dissolved)
    collectSlots(buckets[index]);
  for (int32_t index : formed)
    collectSlots(buckets[index]);
  for (NodeId slot : change.carried)
    collect(slot, changing);
  for (NodeId slot : changing)
    if (slot < given.size())
      afterUntilNow[slot] = after[slot];
  work += static_cast<int64_t>(changing.size());

  exchange(change.dissolved, formed);
  placeAll(change, formed);
  bool isMade = isLegal(), isRestored = false;
  if (isMade) {
    findWindow();
    work += static_cast<int64_t>(window.size());
    const bool isInFocus = windowFirst >= focusFirst && windowFirst + static_cast<int32_t>(window.size()) <= focusEnd;
    isMade = (isInFocus || window.empty()) && takesAtMost(allowed);
  }
  if (isMade) {
    retouched = changing;
    for (int32_t index : change.dissolved)
      collectTouchers(buckets[index]);
    for (int32_t index : formed)
      collectTouchers(buckets[index]);
    work += static_cast<int64_t>(retouched.size() + window.size());
    retouch(window, formed);
    if (memory->peak() > limit) {
      exchange(formed, change.dissolved);
      // The timeline has not been told of the new places.
      retouch(order().slice(windowFirst, window.size()), change.dissolved);
      isMade = false;
      isRestored = true;
    }
  }
  for (NodeId slot : moved)
    keys[slot] = kUnmoved;
  if (isMade && !window.empty())
    replaceWindow(windowFirst);
  if (!isMade && !isRestored)
    exchange(formed, change.dissolved);
  if (!isMade)
    retime(changed);
  llvm::append_range(unusedBuckets, isMade ? llvm::ArrayRef<int32_t>(change.dissolved) : formed);
  return isMade;
}
