//===- BucketCandidates.cpp - Candidates for merging ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A bucket grows greedily by due time as long as each further member pays: the lane time that it saves has to exceed
// its copies, and the first member must not become late.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketCandidates.h"
#include <algorithm>

using namespace commsched;

/// Limit on the number of ready starts that are looked at to fill one bucket.
static constexpr int32_t kMaxBucketTrials = 400;
/// A bucket that a compute needs may miss its first member's deadline if it has at most this many bytes.
static constexpr Bytes kFreeNeeded = Bytes(32) << 20;

/// Lane time and copies together, ns. Prices saturate, so that the sum of two does not overflow.
static Ns priceOf(const MergeCost &cost) {
  return std::clamp(cost.lane + cost.copies, -kLargestAmount, kLargestAmount);
}

CopyWork commsched::withMember(CopyWork work, const ScheduleFacts &facts, NodeId start) {
  const Problem &problem = facts.problem;
  NodeId cast = facts.fused[start];
  work.copies.add(problem, start, cast);
  work.casts += cast == kNone ? 0 : problem.nodes[cast].cost;
  ++work.members;
  if (!BucketCopies::sharesUnpack(problem, start))
    work.unpacks += facts.ownUnpack[start];
  return work;
}

/// How much longer the compute lane is busy with a packed bucket than with its members alone; may be negative.
static Ns extraCompute(const Problem &problem, const CopyWork &work) {
  if (work.members < 2)
    return 0;
  return work.copies.packCost(problem) + work.unpacks + work.copies.sharedUnpackCost(problem) - work.casts;
}

MergeCost commsched::mergeCost(const ScheduleFacts &facts, const MergeKey &key, Bytes bytes, const CopyWork &work) {
  auto coalesce = [&]() -> MergeCost { return {BucketForm::Coalesced, key.coalescedCost(bytes, work.members), 0}; };
  if (!facts.problem.copyCost)
    return coalesce();
  MergeCost packed = {BucketForm::Packed, key.cost(bytes), extraCompute(facts.problem, work)};
  // The same bytes in one collective take no longer than in several.
  if (packed.copies <= 0)
    return packed;
  MergeCost coalesced = coalesce();
  return priceOf(packed) < priceOf(coalesced) ? packed : coalesced;
}

BucketCandidate commsched::singleCandidate(const MergeContext &context, NodeId start) {
  const Node &info = context.facts.problem.nodes[start];
  return {{start}, info.bytes, info.cost, context.queues.dueOf(start), context.reference.terminal[start]};
}

/// The candidate behind `last`, or kNone: the next ready start of the queue, whose rank is updated; or, if collectives
/// keep their order, the start that comes next in that order, provided that nothing else holds it back.
static NodeId nextMember(const MergeContext &context, const LaneQueue &queue, NodeId last, int32_t &rank) {
  const ScheduleFacts &facts = context.facts;
  NodeId next = facts.nextIssue[last];
  if (next != kNone) {
    bool follows = facts.mergeable[next] && context.queues.shareQueue(next, last) && facts.issuesBefore[next] == 1 &&
                   context.pendingEdges[next] == 1;
    return follows ? next : kNone;
  }
  if (facts.issuesBefore[last] > 0)
    return kNone;
  rank = queue.ready.next(rank + 1);
  return rank < 0 ? kNone : queue.byRank[rank];
}

int32_t commsched::addMembers(const MergeContext &context, const LaneQueue &queue, Ns begin, Ns deadline,
                              BucketCandidate &candidate) {
  const ScheduleFacts &facts = context.facts;
  const Problem &problem = facts.problem;
  const Policy &policy = context.policy;
  NodeId first = candidate.members.front();
  const MergeKey &key = problem.mergeKeys[problem.nodes[first].mergeKey];
  Bytes largest = candidate.terminal ? policy.maxTerminal : policy.maxNeeded;
  if (key.cap >= 0)
    largest = std::min(largest, key.cap);
  Ns apart = candidate.cost;
  CopyWork copied = withMember({}, facts, first);
  Ns price = candidate.cost;
  int32_t rank = context.queues.rankOf(first), tried = 0;
  for (; tried < kMaxBucketTrials; ++tried) {
    NodeId start = nextMember(context, queue, candidate.members.back(), rank);
    if (start == kNone)
      break;
    const Node &info = problem.nodes[start];
    bool keepsOrder = facts.issuesBefore[start] > 0;
    if (context.reference.terminal[start] != candidate.terminal && !keepsOrder)
      continue;
    Bytes bytes = candidate.bytes + info.bytes;
    if (bytes > largest)
      break;
    CopyWork withIt = withMember(copied, facts, start);
    MergeCost merged = mergeCost(facts, key, bytes, withIt);
    // A coalesced pair has two latencies, as the two apart; the third member is the first one that saves a latency.
    bool mayPayLater = merged.form == BucketForm::Coalesced && candidate.members.size() == 1;
    if (!mayPayLater && priceOf(merged) > price + info.cost) {
      if (keepsOrder)
        break;
      continue;
    }
    if (!candidate.terminal && begin + merged.lane > deadline && bytes > kFreeNeeded)
      break;
    candidate.members.push_back(start);
    candidate.bytes = bytes;
    candidate.cost = merged.lane;
    apart += info.cost;
    copied = withIt;
    price = priceOf(merged);
  }
  if (price >= apart)
    candidate = singleCandidate(context, first);
  return tried;
}
