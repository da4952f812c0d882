//===- BucketCandidates.cpp - Which starts to merge -------------------------------------------===//
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
/// What lane time counts beside copies on a lane that has time to spare, in permille.
static constexpr int64_t kIdleWeight = 60;

/// What lane time counts beside copies, in permille.
static int64_t laneWeightOf(const ScheduleFacts &facts, const Policy &policy, LaneId lane) {
  Ns busiest = std::max(facts.busiestLoad, facts.load[kComputeLane]);
  return facts.load[lane] < mulDiv(busiest, policy.idleShare, kPermille) ? kIdleWeight : kPermille;
}

/// Lane time and copies on one scale, in thousandths of ns. Prices saturate, so that the sum of two does not overflow.
static int64_t priceOf(const Policy &policy, const MergeCost &cost, int64_t laneWeight) {
  int64_t price = mulDiv(cost.lane, laneWeight, 1) + mulDiv(cost.copies, policy.copyWeight, 1);
  return std::clamp(price, -kLargestAmount, kLargestAmount);
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

MergeCost commsched::mergeCost(const ScheduleFacts &facts, const Policy &policy, const MergeKey &key, Bytes bytes,
                               const CopyWork &work) {
  auto coalesce = [&]() -> MergeCost { return {BucketForm::Coalesced, key.coalescedCost(bytes, work.members), 0}; };
  if (policy.form == FormChoice::Coalesced || !facts.problem.copyCost)
    return coalesce();
  MergeCost packed = {BucketForm::Packed, key.cost(bytes), extraCompute(facts.problem, work)};
  // The same bytes in one collective take no longer than in several.
  bool isBest = packed.copies <= 0 && policy.form == FormChoice::Cheaper;
  if (policy.form == FormChoice::Packed || isBest)
    return packed;
  MergeCost coalesced = coalesce();
  int64_t weight = laneWeightOf(facts, policy, key.lane);
  return priceOf(policy, packed, weight) < priceOf(policy, coalesced, weight) ? packed : coalesced;
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
  Bytes largest = candidate.terminal
                      ? policy.maxTerminal
                      : std::max(policy.maxNeeded, mulDiv(context.freeBytes, policy.freeShare, kPermille));
  if (key.cap >= 0)
    largest = std::min(largest, key.cap);
  Ns apart = candidate.cost;
  CopyWork copied = withMember({}, facts, first);
  const int64_t laneWeight = laneWeightOf(facts, policy, key.lane);
  auto priceAlone = [&](Ns cost) { return mulDiv(cost, laneWeight, 1); };
  int64_t price = priceAlone(candidate.cost);
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
    MergeCost merged = mergeCost(facts, policy, key, bytes, withIt);
    // A coalesced pair has two latencies, as the two apart; the third member is the first one that saves a latency.
    bool mayPayLater = merged.form == BucketForm::Coalesced && candidate.members.size() == 1;
    if (!mayPayLater && priceOf(policy, merged, laneWeight) > price + priceAlone(info.cost)) {
      if (keepsOrder)
        break;
      continue;
    }
    if (!candidate.terminal && begin + merged.lane > deadline && bytes > policy.freeNeeded)
      break;
    candidate.members.push_back(start);
    candidate.bytes = bytes;
    candidate.cost = merged.lane;
    apart += info.cost;
    copied = withIt;
    price = priceOf(policy, merged, laneWeight);
  }
  if (price >= priceAlone(apart))
    candidate = singleCandidate(context, first);
  return tried;
}
