//===- IssueMoves.cpp - How a decode issues starts and buckets --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The moves of PartialSchedule on communication lanes. A bucket is played by its description (Model/BucketShape.h);
// what a decode adds is which nodes run before it, and which waits of the reference stand for its waits.
//
//===------------------------------------------------------------------------------------------===//

#include "PartialSchedule.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// A start has been issued, alone or in a bucket.
void PartialSchedule::leaveQueue(NodeId start, Ns end) {
  const Node &info = problem.nodes[start];
  starts.remove(start);
  updateDryness(info.lane);
  if (!theReference->terminal[start])
    prefetched += info.bytes;
  if (bucketOf[start] == kNone)
    clock.spend(info.issue);
  clock.setEnd(start, end);
  markPlaced(start);
  release(start);
}

bool PartialSchedule::tryIssue(NodeId start) {
  llvm::SmallVector<NodeId, 4> unit;
  llvm::copy_if(facts.feeders[start], std::back_inserter(unit), [&](NodeId feeder) { return !placed[feeder]; });
  unit.push_back(start);
  if (!memory.tryAdmit(unit))
    return false;
  for (NodeId feeder : llvm::ArrayRef<NodeId>(unit).drop_back())
    placeCompute(feeder);
  emit(DecodeStep::Run, start);
  const Node &info = problem.nodes[start];
  leaveQueue(start, clock.occupy(info.lane, info.cost, problem.demandOf(info)));
  return true;
}

void PartialSchedule::issueNextOfReference() {
  NodeId start = nextOfReference();
  memory.place(start);
  emit(DecodeStep::Run, start);
  const Node &info = problem.nodes[start];
  leaveQueue(start, clock.occupy(info.lane, info.cost, problem.demandOf(info)));
}

/// What does the work of the waits of a bucket.
PartialSchedule::IssuedBucket PartialSchedule::joinWaits(const Bucket &bucket, const BucketShape &shape) const {
  IssuedBucket result;
  result.unpacks = shape.unpacksOutputs;
  result.joined.reserve(std::max<size_t>(shape.unpacks.size(), 1));
  auto waitOf = [&](int32_t index) { return problem.members[bucket.members[index]].wait; };
  for (const BucketShape::Unpack &unpack : shape.unpacks) {
    result.joined.push_back({{}, unpack.cost});
    llvm::append_range(result.joined.back().waits, llvm::map_range(unpack.members, waitOf));
  }
  if (!shape.unpacksOutputs) {
    result.joined.emplace_back();
    result.joined.back().waits.reserve(bucket.members.size());
    for (int32_t index = 0; index < static_cast<int32_t>(bucket.members.size()); ++index)
      result.joined.back().waits.push_back(waitOf(index));
  }
  auto precedes = [&](NodeId a, NodeId b) { return theReference->position[a] < theReference->position[b]; };
  for (JoinedWaits &join : result.joined)
    llvm::sort(join.waits, precedes);
  llvm::sort(result.joined,
             [&](const JoinedWaits &a, const JoinedWaits &b) { return precedes(a.waits.front(), b.waits.front()); });
  return result;
}

bool PartialSchedule::tryIssue(const Bucket &bucket) {
  BucketShape shape = describeBucket(problem, bucket);
  llvm::SmallVector<NodeId, 16> prelude;
  for (NodeId start : bucket.members)
    for (NodeId feeder : facts.feeders[start])
      if (!placed[feeder] && !(shape.packs && feeder == facts.fused[start]))
        prelude.push_back(feeder);
  IssuedBucket waits = joinWaits(bucket, shape);
  if (!memory.tryBucket({shape, prelude, bucket.members, waits.joined}))
    return false;
  for (NodeId node : prelude)
    placeCompute(node);
  issue(bucket, shape, std::move(waits));
  return true;
}

/// Places the pack of a bucket, and sets what its unpacks will take.
void PartialSchedule::pack(const BucketShape &shape, const IssuedBucket &waits) {
  for (NodeId cast : shape.casts) {
    clock.skipCompute(cast);
    markPlaced(cast);
  }
  clock.runCopy(shape.packCost);
  packTime[shape.start.lane] = mulDiv(shape.packCost, thePolicy.packAhead, kPermille);
  emit(DecodeStep::Pack, static_cast<int32_t>(issued.size()));
  if (!shape.unpacksOutputs)
    return;
  for (const JoinedWaits &join : waits.joined) {
    unpackCost[join.waits.front()] = join.cost;
    clock.addUnpack(join.cost);
  }
}

/// Issues a bucket that memory has admitted, and whose prelude has been placed.
void PartialSchedule::issue(const Bucket &bucket, const BucketShape &shape, IssuedBucket waits) {
  int32_t index = static_cast<int32_t>(issued.size());
  result->buckets.push_back(bucket);
  if (shape.packs)
    pack(shape, waits);
  emit(DecodeStep::Start, index);
  Ns end = clock.occupy(shape.start.lane, shape.start.cost, shape.demand);

  // One wait or unpack stands for all that it joins; the others are absorbed.
  for (const JoinedWaits &join : waits.joined) {
    for (NodeId wait : join.waits)
      bucketOf[wait] = index;
    for (NodeId wait : llvm::drop_begin(join.waits))
      markPlaced(wait);
  }
  clock.addInFlight(end, waits.unpacks ? kNone : waits.joined.front().waits.front(), index);
  issued.push_back(std::move(waits));

  for (NodeId start : bucket.members) {
    bucketOf[start] = index;
    leaveQueue(start, end);
  }
  clock.spend(shape.start.issue);
}
