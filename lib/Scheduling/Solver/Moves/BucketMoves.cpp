//===- BucketMoves.cpp - Moves of members between buckets -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each kind of change is a few draws. Whether a change is legal and pays is for the order to say.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketMoves.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// A start of the same key is looked for among so many positions on either side. Looking at a position takes about a
/// nanosecond.
static constexpr int32_t kMaxScan = 2048;
/// Up to this many neighbours on the way are passed.
static constexpr int64_t kMaxPassed = 3;

/// One of so many changes of a bucket, and some of the others, drop members: these shorten orders most for their cost.
static constexpr int64_t kChangesPerDrop = 2;
/// A start with more producers than this moves without them.
static constexpr size_t kMaxCarried = 64;
/// Limit on the exponent of the distance, spread over the powers of two, from which a start is put off.
static constexpr int64_t kMaxPutOffShift = 13;
/// Limit on the exponent of the number of starts that are put off together.
static constexpr int64_t kMaxTakenShift = 5;

BucketMoves::BucketMoves(const ScheduleFacts &facts, const BucketedOrder &order, SplitMix64 &random)
    : problem(facts.problem), startOfProducer(facts.exclusiveStart), order(order), random(random) {
  std::vector<std::vector<NodeId>> lists(problem.size());
  for (NodeId node = 0; node < problem.size(); ++node)
    if (NodeId start = facts.exclusiveStart[node]; start != kNone)
      lists[start].push_back(node);
  for (const std::vector<NodeId> &list : lists)
    producers.append(list);
  for (NodeId node = problem.size() - 1; node >= 0; --node)
    if (!facts.isNeeded[node] && !lists[node].empty())
      withProducers.push_back(node);
}

/// Lets what only `start` needs move along.
void BucketMoves::carry(NodeId start, BucketChange &change) {
  if (change.carried.size() + producers[start].size() > kMaxCarried)
    return;
  for (NodeId node : producers[start])
    if (!order.isEmpty(node))
      change.carried.push_back(node);
}

/// Says that what moves along goes before the slots of `destination`, a start that is alone or leads a bucket.
void BucketMoves::carryBefore(NodeId destination, BucketChange &change) {
  llvm::sort(change.carried, [&](NodeId a, NodeId b) { return order.position(a) < order.position(b); });
  change.anchor = order.firstSlotOf(destination);
}

/// Moves a start, with what only it needs, to another one: behind it, or before it. It leaves its bucket.
bool BucketMoves::moveAlone(NodeId start, NodeId other, BucketChange &change) {
  carry(start, change);
  carryBefore(other, change);
  change.carried.push_back(start);
  change.isBehind = random.below(2) == 0;
  if (change.isBehind)
    change.anchor = other;
  return true;
}

/// A start or a bucket's leader of the same key, or else of the same lane, nearby in the order, or kNone.
NodeId BucketMoves::neighbourOf(NodeId start, bool sameKey, int64_t &work) {
  const Node &node = problem.nodes[start];
  const int32_t step = random.below(2) == 0 ? -1 : 1;
  int64_t passed = random.below(kMaxPassed);
  int32_t at = order.position(start);
  llvm::ArrayRef<NodeId> slots = order.order();
  for (int32_t scanned = 0; scanned < kMaxScan; ++scanned, ++work) {
    at += step;
    if (at < 0 || at >= order.size())
      return kNone;
    // A bucket is met at the slot of its start alone.
    NodeId other = slots[at];
    if (!order.isStart(other) || other == start)
      continue;
    const Node &candidate = problem.nodes[other];
    if (sameKey ? candidate.mergeKey != node.mergeKey || !order.mayMerge(other) : candidate.lane != node.lane)
      continue;
    if (passed-- == 0)
      return other;
  }
  return kNone;
}

bool BucketMoves::fits(llvm::ArrayRef<NodeId> members) const {
  Bytes bytes = 0, cap = problem.mergeKeys[problem.nodes[members.front()].mergeKey].cap;
  for (NodeId member : members)
    bytes += problem.nodes[member].bytes;
  return cap < 0 || bytes <= cap;
}

/// Forms a bucket where the bucket `base` is, unless there are too few members.
void BucketMoves::form(BucketChange &change, int32_t base, llvm::ArrayRef<NodeId> members, BucketForm form) {
  if (members.size() < 2)
    return;
  FormedBucket next;
  next.bucket.members.assign(members.begin(), members.end());
  next.bucket.form = form;
  NodeId leader = order.leaderOf(base);
  bool keepsLeader = llvm::is_contained(members, leader);
  next.leader = keepsLeader ? leader : members.front();
  next.place = keepsLeader ? kNone : leader;
  change.formed.push_back(std::move(next));
}

/// Drops a member, or a few.
void BucketMoves::dropMembers(int32_t index, BucketChange &change) {
  const Bucket &bucket = order.bucket(index);
  std::vector<NodeId> members = bucket.members;
  int64_t number = random.below(4) == 0 ? 1 + random.below(static_cast<int64_t>(members.size())) : 1;
  for (; number > 0 && !members.empty(); --number)
    members.erase(members.begin() + random.below(static_cast<int64_t>(members.size())));
  change.dissolved.push_back(index);
  form(change, index, members, bucket.form);
  change.place = static_cast<BucketChange::Place>(random.below(3));
}

/// Splits a bucket in the order of the places that its members had before, so that neighbours stay together.
void BucketMoves::split(int32_t index, BucketChange &change) {
  const Bucket &bucket = order.bucket(index);
  std::vector<NodeId> members = bucket.members;
  llvm::sort(members);
  auto cut = members.begin() + 1 + random.below(static_cast<int64_t>(members.size()) - 1);
  change.dissolved.push_back(index);
  form(change, index, llvm::ArrayRef<NodeId>(members).take_front(cut - members.begin()), bucket.form);
  form(change, index, llvm::ArrayRef<NodeId>(members).drop_front(cut - members.begin()), bucket.form);
  change.place = static_cast<BucketChange::Place>(random.below(3));
}

/// Makes one bucket of two buckets, of two starts, or of one and the other.
bool BucketMoves::join(NodeId start, NodeId other, BucketChange &change) {
  if (random.below(2) == 0)
    std::swap(start, other);
  int32_t one = order.bucketOf(start), two = order.bucketOf(other);
  if (one == kNone && two != kNone) {
    std::swap(one, two);
    std::swap(start, other);
  }
  FormedBucket next;
  std::vector<NodeId> &members = next.bucket.members;
  next.leader = start;
  next.bucket.form = anyForm();
  members = one == kNone ? std::vector<NodeId>{start} : order.bucket(one).members;
  if (two == kNone)
    members.push_back(other);
  else
    llvm::append_range(members, order.bucket(two).members);
  if (!fits(members))
    return false;
  for (int32_t old : {one, two})
    if (old != kNone) {
      change.dissolved.push_back(old);
      if (old == one && random.below(4) != 0)
        next.bucket.form = order.bucket(old).form;
    }
  change.formed.push_back(std::move(next));
  if (random.below(2) == 0) {
    llvm::ArrayRef<NodeId> joining = other;
    if (two != kNone)
      joining = order.bucket(two).members;
    for (NodeId member : joining)
      carry(member, change);
    carryBefore(start, change);
  }
  return true;
}

/// Moves a member of a bucket to another one, or to a start that is alone.
bool BucketMoves::transfer(int32_t from, NodeId other, BucketChange &change) {
  const Bucket &bucket = order.bucket(from);
  std::vector<NodeId> members = bucket.members;
  size_t chosen = static_cast<size_t>(random.below(static_cast<int64_t>(members.size())));
  NodeId member = members[chosen];
  members.erase(members.begin() + static_cast<int64_t>(chosen));
  int32_t to = order.bucketOf(other);
  FormedBucket next;
  next.leader = other;
  next.bucket = to == kNone ? Bucket{{other}, bucket.form} : order.bucket(to);
  next.bucket.members.push_back(member);
  if (!fits(next.bucket.members))
    return false;
  change.dissolved.push_back(from);
  if (to != kNone)
    change.dissolved.push_back(to);
  form(change, from, members, bucket.form);
  change.formed.push_back(std::move(next));
  change.place = static_cast<BucketChange::Place>(random.below(3));
  if (random.below(2) == 0) {
    carry(member, change);
    carryBefore(other, change);
  }
  return true;
}

/// Drops a member, and moves it to another start with what only it needs.
bool BucketMoves::dropTo(int32_t index, NodeId other, BucketChange &change) {
  const Bucket &bucket = order.bucket(index);
  std::vector<NodeId> members = bucket.members;
  auto chosen = members.begin() + random.below(static_cast<int64_t>(members.size()));
  NodeId member = *chosen;
  members.erase(chosen);
  change.dissolved.push_back(index);
  form(change, index, members, bucket.form);
  return moveAlone(member, other, change);
}

/// Lets what depends on a start move along, as far as it stands before the position `before`. Fails if that is much.
bool BucketMoves::carryFollowers(NodeId start, int32_t before, BucketChange &change) {
  size_t first = change.carried.size();
  change.carried.push_back(start);
  for (size_t at = first; at < change.carried.size(); ++at)
    for (NodeId node : problem.succs[change.carried[at]]) {
      bool isBehind = !order.isEmpty(node) && order.position(node) > before;
      if (isBehind || llvm::is_contained(llvm::ArrayRef(change.carried).drop_front(first), node))
        continue;
      bool isElsewhere = order.bucketOf(node) != kNone && node != problem.members[start].wait;
      if (isElsewhere || change.carried.size() >= kMaxCarried)
        return false;
      change.carried.push_back(node);
    }
  std::sort(change.carried.begin() + static_cast<int64_t>(first) + 1, change.carried.end());
  return true;
}

/// Takes a few starts out of the order that one bucket can put off together: members of one bucket, or starts of one
/// key that are alone and near each other.
std::vector<NodeId> BucketMoves::takeSome(NodeId start, BucketChange &change, int64_t &work) {
  std::vector<NodeId> taken = {start};
  const size_t number = 1 + static_cast<size_t>(random.below(int64_t(1) << random.below(kMaxTakenShift)));
  if (int32_t index = order.bucketOf(start); index != kNone) {
    std::vector<NodeId> members = order.bucket(index).members;
    llvm::erase(members, start);
    for (; taken.size() < number && !members.empty();) {
      auto chosen = members.begin() + random.below(static_cast<int64_t>(members.size()));
      taken.push_back(*chosen);
      members.erase(chosen);
    }
    change.dissolved.push_back(index);
    form(change, index, members, order.bucket(index).form);
    return taken;
  }
  const int32_t step = random.below(2) == 0 ? -1 : 1, from = order.position(start);
  if (order.mayMerge(start))
    for (int32_t scanned = 1; scanned <= kMaxScan && taken.size() < number; ++scanned, ++work) {
      int32_t at = from + step * scanned;
      if (at < 0 || at >= order.size())
        break;
      NodeId other = order.order()[at];
      if (other < problem.size() && problem.nodes[other].kind == NodeKind::Start && order.startAt(at) == other &&
          order.bucketOf(other) == kNone && order.mayMerge(other) &&
          problem.nodes[other].mergeKey == problem.nodes[start].mergeKey)
        taken.push_back(other);
    }
  return taken;
}

bool BucketMoves::choosePutOff(NodeId last, BucketChange &change, int64_t &work) {
  if (withProducers.empty())
    return false;
  const int32_t to = order.position(last);
  NodeId start = withProducers[random.below(static_cast<int64_t>(withProducers.size()))];
  if (random.below(2) == 0) {
    auto distance = static_cast<int32_t>(1 + random.below(int64_t(1) << random.below(kMaxPutOffShift)));
    NodeId slot = order.order()[std::max(to - distance, 0)];
    start = slot < problem.size() ? startOfProducer[slot] : kNone;
  }
  if (start == kNone || start == last)
    return false;
  int32_t index = order.bucketOf(start);
  NodeId leader = index == kNone ? start : order.leaderOf(index);
  if (leader == last || order.position(leader) > to)
    return false;
  std::vector<NodeId> taken = takeSome(start, change, work);
  for (NodeId member : taken)
    carry(member, change);
  carryBefore(last, change);
  change.anchor = last;
  change.isBehind = true;
  if (taken.size() == 1)
    return carryFollowers(start, to, change);
  if (!fits(taken) || llvm::is_contained(taken, last))
    return false;
  change.formed.push_back({{std::move(taken), anyForm()}, start, last});
  return true;
}

void BucketMoves::changeForm(int32_t index, BucketChange &change) {
  const Bucket &bucket = order.bucket(index);
  change.dissolved.push_back(index);
  bool packs = bucket.form == BucketForm::Coalesced && problem.copyCost;
  form(change, index, bucket.members, packs ? BucketForm::Packed : BucketForm::Coalesced);
}

bool BucketMoves::chooseJoin(NodeId start, BucketChange &change, int64_t &work) {
  if (!order.mayMerge(start))
    return false;
  NodeId other = neighbourOf(start, /*sameKey=*/true, work);
  return other != kNone && join(start, other, change);
}

bool BucketMoves::choose(NodeId start, BucketChange &change, int64_t &work) {
  int32_t index = order.bucketOf(start);
  if (index == kNone) {
    bool merges = order.mayMerge(start) && random.below(3) != 0;
    NodeId other = neighbourOf(start, /*sameKey=*/merges, work);
    if (other == kNone)
      return false;
    return merges ? join(start, other, change) : moveAlone(start, other, change);
  }
  constexpr int64_t kDrop = 7;
  int64_t kind = random.below(kChangesPerDrop) == 0 ? kDrop : random.below(12);
  if (kind < kDrop) {
    NodeId other = neighbourOf(start, /*sameKey=*/kind < 5, work);
    if (other == kNone)
      return false;
    return kind < 3   ? join(start, other, change)
           : kind < 5 ? transfer(index, other, change)
                      : dropTo(index, other, change);
  }
  if (kind < 10)
    dropMembers(index, change);
  else if (kind == 10)
    split(index, change);
  else
    changeForm(index, change);
  return true;
}
