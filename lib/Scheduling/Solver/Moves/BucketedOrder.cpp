//===- BucketedOrder.cpp - An order whose buckets can be changed one by one -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What slots do, the dependences between them, and the order in terms of the given problem. BucketChanges.cpp has the
// changes of buckets.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketedOrder.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cassert>

using namespace commsched;

BucketedOrder::BucketedOrder(const Problem &problem, bool bucketing, const DecodedSchedule &decoded, Bytes limit,
                             llvm::ArrayRef<TimeGuard> guards)
    : given(problem), limit(limit), indexOf(problem.size(), kNone), bucketOfNode(problem.size(), kNone),
      before(identityOrder(problem)), after(before), image(problem.buffers.size()), afterUntilNow(before) {
  for (NodeId node = 0; bucketing && node < given.size(); ++node)
    if (given.nodes[node].kind == NodeKind::Start && isMergeable(given, node)) {
      const Bytes gathered = given.members[node].outputBytes;
      const bool unpacks = given.copyCost && given.nodes[node].collective == CollectiveKind::AllGather &&
                           !BucketCopies::sharesUnpack(given, node);
      indexOf[node] = static_cast<int32_t>(mergeable.size());
      mergeable.push_back(node);
      castOf.push_back(fusedCast(given, node));
      ownUnpack.push_back(unpacks ? given.copyCost(gathered, gathered) : 0);
    }
  for (auto [index, buffer] : llvm::enumerate(image))
    buffer = static_cast<BufferId>(index);
  size_t numSlots = problem.nodes.size() + 2 * mergeable.size();
  roles.assign(numSlots, Role::Empty);
  std::fill_n(roles.begin(), problem.nodes.size(), Role::Own);
  isGivenStart.assign(numSlots, 0);
  for (NodeId node = 0; node < given.size(); ++node)
    isGivenStart[node] = given.nodes[node].kind == NodeKind::Start;
  bucketAt.assign(numSlots, kNone);
  unpackAt.assign(numSlots, kNone);
  keys.assign(numSlots, kUnmoved);
  collectedIn.assign(numSlots, 0);
  for (const Bucket &bucket : decoded.buckets)
    activate(describe({bucket, bucket.members.front(), kNone}, priceOf(bucket)));
  makeSlots();
  Order order = initialOrder(decoded);
  memory.emplace(slots, order);
  timeline.emplace(slots, order);
  focusEnd = size();
  for (const TimeGuard &guard : guards)
    makeGuard(guard, order);
}

/// Adds the clocks with the costs of a guard.
void BucketedOrder::makeGuard(const TimeGuard &guard, llvm::ArrayRef<NodeId> order) {
  auto line = std::make_unique<GuardedLine>();
  line->guard = guard;
  line->slots.laneNames = given.laneNames;
  line->slots.busyUntil = guard.problem->busyUntil;
  line->slots.regions = given.regions;
  for (NodeId slot = 0; slot < static_cast<NodeId>(roles.size()); ++slot)
    line->slots.nodes.push_back(nodeOf(slot, *guard.problem));
  line->timeline.emplace(line->slots, order);
  assert(line->timeline->makespan() <= guard.most && "a first order has to meet the guards");
  guarded.push_back(std::move(line));
}

/// Fills the problem of the slots: nodes, touches, and buffers, but no edges.
void BucketedOrder::makeSlots() {
  slots.laneNames = given.laneNames;
  slots.busyUntil = given.busyUntil;
  slots.regions = given.regions;
  slots.buffers = given.buffers;
  slots.buffers.resize(given.buffers.size() + 2 * mergeable.size());
  for (const LiveBucket &bucket : buckets)
    setBuffers(bucket);
  for (NodeId slot = 0; slot < static_cast<NodeId>(roles.size()); ++slot) {
    slots.nodes.push_back(nodeOf(slot));
    slots.touches.append(touchesOf(slot));
    slots.preds.append({});
  }
  slots.finalize();
}

/// The order of a decode, with each slot that does nothing beside the one that does its work.
Order BucketedOrder::initialOrder(const DecodedSchedule &decoded) const {
  Order order;
  order.reserve(roles.size());
  std::vector<char> placed(roles.size(), 0);
  auto place = [&](NodeId slot) {
    if (!std::exchange(placed[slot], 1))
      order.push_back(slot);
  };
  auto placeStart = [&](NodeId start) {
    if (indexOf[start] != kNone && !placed[start]) {
      place(packSlot(start));
      if (roles[waitSlot(start)] == Role::Empty)
        place(waitSlot(start));
    }
    place(start);
  };
  for (DecodeStep step : decoded.steps) {
    if (step.what == DecodeStep::Run || step.what == DecodeStep::Unpack) {
      NodeId slot = after[step.id];
      if (given.nodes[slot].kind == NodeKind::Start)
        placeStart(slot);
      else
        place(slot);
      continue;
    }
    const LiveBucket &bucket = buckets[step.id];
    if (step.what == DecodeStep::Pack) {
      place(packSlot(bucket.leader));
      for (NodeId cast : bucket.shape.casts)
        place(cast);
    } else if (step.what == DecodeStep::Start) {
      placeStart(bucket.leader);
      for (NodeId member : bucket.what.members)
        placeStart(member);
    } else if (step.what == DecodeStep::Wait) {
      place(waitOf(bucket));
      for (NodeId member : bucket.what.members)
        if (roles[given.members[member].wait] == Role::Empty)
          place(given.members[member].wait);
    }
  }
  return order;
}

DecodedSchedule BucketedOrder::decoded() const {
  DecodedSchedule result;
  std::vector<int32_t> numbers(buckets.size(), kNone);
  auto numberOf = [&](int32_t index) {
    if (numbers[index] == kNone) {
      numbers[index] = static_cast<int32_t>(result.buckets.size());
      result.buckets.push_back(buckets[index].what);
    }
    return numbers[index];
  };
  for (NodeId slot : order())
    switch (roles[slot]) {
    case Role::Empty:
      break;
    case Role::Own:
      result.steps.push_back({DecodeStep::Run, slot});
      break;
    case Role::Unpack:
      numberOf(bucketAt[slot]);
      result.steps.push_back({DecodeStep::Unpack, slot});
      break;
    case Role::Pack:
      result.steps.push_back({DecodeStep::Pack, numberOf(bucketAt[slot])});
      break;
    case Role::Start:
      result.steps.push_back({DecodeStep::Start, numberOf(bucketAt[slot])});
      break;
    case Role::Wait:
      result.steps.push_back({DecodeStep::Wait, numberOf(bucketAt[slot])});
      if (buckets[bucketAt[slot]].shape.mergesOutputs)
        result.steps.push_back({DecodeStep::View, numberOf(bucketAt[slot])});
      break;
    }
  result.makespan = makespan();
  result.peak = memory->peak();
  return result;
}

//===-----------------------------------------------------------------------------------------===//
// What slots do
//===-----------------------------------------------------------------------------------------===//

/// The duration of a bucket's collective with the costs of `priced`.
Ns BucketedOrder::startCost(const Problem &priced, const Bucket &bucket) const {
  const MergeKey &key = priced.mergeKeys[given.nodes[bucket.members.front()].mergeKey];
  Bytes bytes = 0;
  for (NodeId member : bucket.members)
    bytes += given.nodes[member].bytes;
  return bucket.form == BucketForm::Packed ? key.cost(bytes)
                                           : key.coalescedCost(bytes, static_cast<int32_t>(bucket.members.size()));
}

/// What describeBucket() says of its costs, without its lists: most changes are judged by that alone.
BucketedOrder::Price BucketedOrder::priceOf(const Bucket &bucket) const {
  const bool packs = bucket.form == BucketForm::Packed;
  Price price;
  BucketCopies copies;
  for (NodeId member : bucket.members) {
    price.extraLane -= given.nodes[member].cost;
    if (!packs)
      continue;
    const NodeId cast = castOf[indexOf[member]];
    copies.add(given, member, cast);
    price.extraCompute += ownUnpack[indexOf[member]] - (cast == kNone ? 0 : given.nodes[cast].cost);
  }
  price.start = startCost(given, bucket);
  price.extraLane += price.start;
  if (packs)
    price.extraCompute += copies.packCost(given) + copies.sharedUnpackCost(given);
  return price;
}

/// Whether what a bucket takes, and what it adds to the compute lane, are what its shape says.
[[maybe_unused]] static bool agree(const Problem &problem, Ns start, Ns extraCompute, const BucketShape &shape) {
  Ns extra = shape.packCost;
  for (const BucketShape::Unpack &unpack : shape.unpacks)
    extra += unpack.cost;
  for (NodeId cast : shape.casts)
    extra -= problem.nodes[cast].cost;
  return start == shape.start.cost && extraCompute == extra;
}

int32_t BucketedOrder::describe(const FormedBucket &formed, const Price &price) {
  int32_t index = static_cast<int32_t>(buckets.size());
  if (unusedBuckets.empty()) {
    buckets.emplace_back();
  } else {
    index = unusedBuckets.back();
    unusedBuckets.pop_back();
  }
  LiveBucket &bucket = buckets[index];
  bucket.what = formed.bucket;
  bucket.shape = describeBucket(given, formed.bucket);
  bucket.leader = formed.leader;
  bucket.price = price;
  assert(agree(given, price.start, price.extraCompute, bucket.shape) && "two descriptions of one bucket");
  return index;
}

void BucketedOrder::setOwn(NodeId node) {
  roles[node] = Role::Own;
  bucketOfNode[node] = bucketAt[node] = kNone;
  before[node] = after[node] = node;
}

/// Lets slots do the work of a described bucket, whose members are alone.
void BucketedOrder::activate(int32_t index) {
  const LiveBucket &bucket = buckets[index];
  const BucketShape &shape = bucket.shape;
  auto setRole = [&](NodeId slot, Role role) {
    roles[slot] = role;
    bucketAt[slot] = index;
  };
  auto absorb = [&](NodeId node, NodeId comesAfter, NodeId comesBefore) {
    bucketOfNode[node] = index;
    before[node] = comesAfter;
    after[node] = comesBefore;
  };
  NodeId first = shape.packs ? packSlot(bucket.leader) : bucket.leader, wait = waitOf(bucket);
  for (NodeId member : bucket.what.members) {
    setEmpty(member);
    setEmpty(given.members[member].wait);
    absorb(member, first, bucket.leader);
    absorb(given.members[member].wait, wait, wait);
  }
  for (NodeId cast : shape.casts) {
    setEmpty(cast);
    absorb(cast, first, first);
  }
  setRole(first, shape.packs ? Role::Pack : Role::Start);
  setRole(bucket.leader, Role::Start);
  setRole(wait, Role::Wait);
  for (auto [number, unpack] : llvm::enumerate(shape.unpacks)) {
    NodeId slot = slotOf(bucket, unpack);
    setRole(slot, Role::Unpack);
    unpackAt[slot] = static_cast<int32_t>(number);
    for (int32_t place : unpack.members)
      absorb(given.members[bucket.what.members[place]].wait, slot, slot);
  }
  if (shape.mergesOutputs)
    for (NodeId member : bucket.what.members)
      image[given.members[member].output] = mergedBuffer(bucket);
}

/// Lets all members of a bucket stand alone.
void BucketedOrder::deactivate(int32_t index) {
  const LiveBucket &bucket = buckets[index];
  for (NodeId member : bucket.what.members) {
    setOwn(member);
    setOwn(given.members[member].wait);
    image[given.members[member].output] = given.members[member].output;
  }
  for (NodeId cast : bucket.shape.casts)
    setOwn(cast);
  for (NodeId slot : {packSlot(bucket.leader), waitSlot(bucket.leader)}) {
    setEmpty(slot);
    bucketAt[slot] = kNone;
  }
}

Node BucketedOrder::nodeOf(NodeId slot, const Problem &priced) const {
  Node node;
  switch (roles[slot]) {
  case Role::Empty:
    break;
  case Role::Own:
    return priced.nodes[slot];
  case Role::Pack:
    node.cost = buckets[bucketAt[slot]].shape.packCost;
    break;
  case Role::Start:
    node = buckets[bucketAt[slot]].shape.start;
    if (&priced != &given)
      node.cost = startCost(priced, buckets[bucketAt[slot]].what);
    break;
  case Role::Wait:
    node.kind = NodeKind::Wait;
    node.start = buckets[bucketAt[slot]].leader;
    break;
  case Role::Unpack:
    node.cost = buckets[bucketAt[slot]].shape.unpacks[unpackAt[slot]].cost;
    break;
  }
  return node;
}

llvm::SmallVector<BufferId, 4> BucketedOrder::touchesOf(NodeId slot) const {
  llvm::SmallVector<BufferId, 4> result;
  auto add = [&](llvm::ArrayRef<BufferId> touches) {
    for (BufferId buffer : touches)
      result.push_back(image[buffer]);
  };
  if (roles[slot] == Role::Own) {
    add(given.touches[slot]);
  } else if (roles[slot] != Role::Empty) {
    const LiveBucket &bucket = buckets[bucketAt[slot]];
    if (roles[slot] == Role::Pack || !bucket.shape.packs)
      add(bucket.shape.touches);
    if (bucket.shape.packs)
      result.push_back(packedBuffer(bucket));
    if (bucket.shape.definesMerged && roles[slot] != Role::Pack)
      result.push_back(mergedBuffer(bucket));
    if (roles[slot] == Role::Unpack)
      for (int32_t place : bucket.shape.unpacks[unpackAt[slot]].members)
        result.push_back(given.members[bucket.what.members[place]].output);
  }
  llvm::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

/// Sets the sizes of a bucket's own buffers.
void BucketedOrder::setBuffers(const LiveBucket &bucket) {
  if (!bucket.shape.packs)
    return;
  slots.buffers[packedBuffer(bucket)] = {bucket.shape.packedBytes, bucket.leader, false};
  if (!bucket.shape.mergesOutputs)
    return;
  if (bucket.shape.definesMerged)
    slots.buffers[mergedBuffer(bucket)] = {bucket.shape.mergedBytes, bucket.leader, false};
  slots.buffers[mergedBuffer(bucket)].liveOut = llvm::any_of(
      bucket.what.members, [&](NodeId member) { return given.buffers[given.members[member].output].liveOut; });
}

//===-----------------------------------------------------------------------------------------===//
// Dependences
//===-----------------------------------------------------------------------------------------===//

void BucketedOrder::forEachBefore(NodeId slot, llvm::function_ref<void(NodeId)> visit) const {
  if (roles[slot] == Role::Own) {
    for (NodeId pred : given.preds[slot])
      visit(after[pred]);
    return;
  }
  if (roles[slot] == Role::Empty)
    return;
  const LiveBucket &bucket = buckets[bucketAt[slot]];
  bool isPack = roles[slot] == Role::Pack;
  switch (roles[slot]) {
  case Role::Pack:
  case Role::Start:
    if (!isPack && bucket.shape.packs)
      visit(packSlot(bucket.leader));
    // Edges from start to start are an order of issues, and do not concern the pack.
    for (NodeId member : bucket.what.members)
      for (NodeId pred : given.preds[member])
        if (!bucket.shape.packs || isPack != (isGivenStart[pred] != 0))
          visit(after[pred]);
    for (NodeId cast : bucket.shape.casts)
      for (NodeId pred : given.preds[cast])
        if (isPack)
          visit(after[pred]);
    return;
  case Role::Wait:
    return visit(bucket.leader);
  default:
    return visit(waitOf(bucket));
  }
}

/// The key of the last slot that has to come before `slot`.
BucketedOrder::Key BucketedOrder::keyBefore(NodeId slot) const {
  Key last = -(Key(1) << kKeyBits);
  forEachBefore(slot, [&](NodeId other) {
    if (other != slot)
      last = std::max(last, keyOf(other));
  });
  return last;
}

/// The key of the first slot that has to come behind `slot`.
BucketedOrder::Key BucketedOrder::keyBehind(NodeId slot) const {
  Key first = Key(size()) << kKeyBits;
  auto precede = [&](NodeId other) {
    if (other != slot)
      first = std::min(first, keyOf(other));
  };
  auto precedeUsers = [&](NodeId node) {
    for (NodeId user : given.succs[node])
      precede(isGivenStart[node] && isGivenStart[user] ? after[user] : before[user]);
  };
  if (roles[slot] == Role::Own)
    precedeUsers(slot);
  if (roles[slot] == Role::Own || roles[slot] == Role::Empty)
    return first;
  const LiveBucket &bucket = buckets[bucketAt[slot]];
  switch (roles[slot]) {
  case Role::Pack:
    precede(bucket.leader);
    break;
  case Role::Start:
    precede(waitOf(bucket));
    // Collectives that are to be issued later.
    for (NodeId member : bucket.what.members)
      for (NodeId user : given.succs[member])
        if (user != given.members[member].wait)
          precede(isGivenStart[user] ? after[user] : before[user]);
    break;
  case Role::Wait:
    for (const BucketShape::Unpack &unpack : bucket.shape.unpacks)
      precede(slotOf(bucket, unpack));
    if (!bucket.shape.unpacksOutputs)
      for (NodeId member : bucket.what.members)
        precedeUsers(given.members[member].wait);
    break;
  default:
    for (int32_t place : bucket.shape.unpacks[unpackAt[slot]].members)
      precedeUsers(given.members[bucket.what.members[place]].wait);
  }
  return first;
}

int32_t BucketedOrder::earliest(NodeId slot) const {
  if (roles[slot] != Role::Own)
    return static_cast<int32_t>((keyBefore(slot) >> kKeyBits) + 1);
  // Most slots: between changes, the keys are the positions.
  int32_t result = 0;
  for (NodeId pred : given.preds[slot])
    result = std::max(result, position(after[pred]) + 1);
  return result;
}

int32_t BucketedOrder::latest(NodeId slot) const {
  if (roles[slot] != Role::Own)
    return static_cast<int32_t>((keyBehind(slot) - 1) >> kKeyBits);
  int32_t result = size() - 1;
  for (NodeId user : given.succs[slot])
    result = std::min(result, position(isGivenStart[slot] && isGivenStart[user] ? after[user] : before[user]) - 1);
  return result;
}

void BucketedOrder::focus(int32_t first, int32_t last) {
  focusFirst = first;
  focusEnd = last;
  timeline->focus(first, last);
  for (const std::unique_ptr<GuardedLine> &line : guarded)
    line->timeline->focus(first, last);
}

bool BucketedOrder::tryMove(int32_t from, int32_t to, Ns allowed) {
  int32_t first = std::min(from, to), last = std::max(from, to) + 1;
  if (first < focusFirst || last > focusEnd)
    return false;
  llvm::ArrayRef<NodeId> current = order();
  window.assign(current.begin() + first, current.begin() + last);
  if (to < from)
    std::rotate(window.begin(), window.end() - 1, window.end());
  else
    std::rotate(window.begin(), window.begin() + 1, window.end());
  if (timeline->makespanIfReplaced(first, window, allowed) > allowed || !meetsGuards(first) ||
      memory->windowPeakIfMoved(from, from + 1, to) > limit)
    return false;
  replaceWindow(first);
  memory->move(from, from + 1, to);
  return true;
}

/// Whether the order meets the guards with `window` from `first` on.
bool BucketedOrder::meetsGuards(int32_t first) {
  return llvm::all_of(guarded, [&](const std::unique_ptr<GuardedLine> &line) {
    return line->timeline->makespanIfReplaced(first, window, line->guard.most) <= line->guard.most;
  });
}

/// Tells all clocks of the window.
void BucketedOrder::replaceWindow(int32_t first) {
  timeline->replace(first, window);
  for (const std::unique_ptr<GuardedLine> &line : guarded)
    line->timeline->replace(first, window);
}
