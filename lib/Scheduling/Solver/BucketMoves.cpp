//===- BucketMoves.cpp - Which changes of buckets a local search tries ------------------------===//
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

/// A start or a bucket's leader of the same key nearby in the order, or kNone.
NodeId BucketMoves::neighbourOf(NodeId start, int64_t &work) {
  const int32_t step = random.below(2) == 0 ? -1 : 1, key = problem.nodes[start].mergeKey;
  int64_t passed = random.below(kMaxPassed);
  int32_t at = order.position(start);
  for (int32_t scanned = 0; scanned < kMaxScan; ++scanned, ++work) {
    at += step;
    if (at < 0 || at >= order.size())
      return kNone;
    NodeId other = order.startAt(at);
    // A bucket is met at the slot of its start alone.
    if (other == kNone || other == start || order.position(other) != at || problem.nodes[other].mergeKey != key)
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
  return true;
}

bool BucketMoves::choose(NodeId start, BucketChange &change, int64_t &work) {
  int32_t index = order.bucketOf(start);
  int64_t kind = index == kNone ? 0 : random.below(10);
  if (kind < 5) {
    NodeId other = neighbourOf(start, work);
    if (other == kNone)
      return false;
    return kind < 3 ? join(start, other, change) : transfer(index, other, change);
  }
  if (kind < 8) {
    dropMembers(index, change);
    return true;
  }
  if (kind == 8) {
    split(index, change);
    return true;
  }
  const Bucket &bucket = order.bucket(index);
  change.dissolved.push_back(index);
  form(change, index, bucket.members, bucket.form == BucketForm::Packed ? BucketForm::Coalesced : BucketForm::Packed);
  return true;
}
