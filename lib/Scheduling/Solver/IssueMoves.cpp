//===- IssueMoves.cpp - How a decode issues starts and buckets --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The moves of PartialSchedule on communication lanes. A bucket is described to MemoryAdmission in terms of its form:
// which nodes run before it, which casts its pack absorbs, and what its waits become.
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

bool PartialSchedule::tryIssue(const BucketCandidate &candidate, BucketForm form) {
  CollectiveKind kind = problem.nodes[candidate.members.front()].collective;
  bool packs = form == BucketForm::Packed, gathers = kind == CollectiveKind::AllGather;
  bool inPlace = kind == CollectiveKind::AllReduce;
  llvm::SmallVector<NodeId, 16> prelude, fused;
  IssuedBucket bucket;
  Bytes inputBytes = 0, outputBytes = 0;
  for (NodeId start : candidate.members) {
    for (NodeId feeder : facts.feeders[start])
      if (!placed[feeder])
        (packs && feeder == facts.fused[start] ? fused : prelude).push_back(feeder);
    bucket.waits.push_back(problem.members[start].wait);
    inputBytes += problem.members[start].inputBytes;
    outputBytes += problem.members[start].outputBytes;
  }
  llvm::sort(bucket.waits, [&](NodeId a, NodeId b) { return theReference->position[a] < theReference->position[b]; });
  bucket.unpacks = packs && gathers;
  if (bucket.unpacks)
    llvm::copy_if(bucket.waits, std::back_inserter(bucket.shared), [&](NodeId wait) {
      return problem.members[problem.nodes[wait].start].outputBytes <= kSmallUnpackBytes;
    });

  BucketMove move = {prelude, fused, candidate.members, bucket.waits};
  bool admitted = !packs    ? memory.tryCoalesced(move)
                  : gathers ? memory.tryPackedGather(move, outputBytes, bucket.shared)
                            : memory.tryPackedReduction(move, inputBytes, inPlace ? 0 : outputBytes);
  if (admitted)
    issue(candidate, form, prelude, std::move(bucket));
  return admitted;
}

/// Places the pack of a bucket, and sets what its unpacks will take.
void PartialSchedule::pack(const BucketCandidate &candidate, const IssuedBucket &bucket) {
  CopyWork work;
  for (NodeId start : candidate.members) {
    work = withMember(work, facts, start);
    if (NodeId cast = facts.fused[start]; cast != kNone) {
      clock.skipCompute(cast);
      markPlaced(cast);
    }
  }
  Ns cost = problem.copyCost(work.read, work.written);
  clock.runCopy(cost);
  packTime[problem.nodes[candidate.members.front()].lane] = mulDiv(cost, thePolicy.packAhead, kPermille);
  emit(DecodeStep::Pack, static_cast<int32_t>(issued.size()));
  if (!bucket.unpacks)
    return;
  for (NodeId wait : bucket.waits) {
    NodeId start = problem.nodes[wait].start;
    unpackCost[wait] = problem.members[start].outputBytes > kSmallUnpackBytes ? facts.ownUnpack[start] : 0;
  }
  if (!bucket.shared.empty())
    unpackCost[bucket.shared.front()] = problem.copyCost(work.sharedUnpack, work.sharedUnpack);
  for (NodeId wait : bucket.waits)
    clock.addUnpack(unpackCost[wait]);
}

/// Issues a bucket that memory has admitted.
void PartialSchedule::issue(const BucketCandidate &candidate, BucketForm form, llvm::ArrayRef<NodeId> prelude,
                            IssuedBucket bucket) {
  int32_t index = static_cast<int32_t>(issued.size());
  for (NodeId node : prelude)
    placeCompute(node);
  result->buckets.push_back({candidate.members, form});
  if (form == BucketForm::Packed)
    pack(candidate, bucket);
  emit(DecodeStep::Start, index);
  const Node &first = problem.nodes[candidate.members.front()];
  Demand demand;
  if (problem.hasContention())
    demand = problem.mergeKeys[first.mergeKey].demandOf(candidate.bytes, candidate.cost);
  Ns end = clock.occupy(first.lane, candidate.cost, demand);

  // One wait stands for all members, or one unpack for those that share it; the others are absorbed.
  for (NodeId wait : bucket.waits)
    bucketOf[wait] = index;
  llvm::ArrayRef<NodeId> joined = bucket.unpacks ? bucket.shared : bucket.waits;
  for (NodeId wait : joined.empty() ? joined : joined.drop_front())
    markPlaced(wait);
  clock.addInFlight(end, bucket.unpacks ? kNone : bucket.waits.front(), index);
  issued.push_back(std::move(bucket));

  Ns issueCost = 0;
  for (NodeId start : candidate.members) {
    bucketOf[start] = index;
    issueCost = std::max(issueCost, problem.nodes[start].issue);
    leaveQueue(start, end);
  }
  clock.spend(issueCost);
}
