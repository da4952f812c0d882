//===- CollectiveIssuer.cpp - Issue of collectives in a decode --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One candidate per queue of a lane, sorted by due time, is offered to memory in turn. A bucket that memory refuses is
// halved, down to its first member.
//
//===------------------------------------------------------------------------------------------===//

#include "CollectiveIssuer.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Number of starts that can be looked at in the time of one step.
static constexpr int32_t kTrialsPerStep = 2;
/// Number of dry lanes that may be looked at in vain before one compute: with thousands of lanes and full memory,
/// nearly all of them would be. The next compute goes on with the lanes behind these.
static constexpr int32_t kMaxRefusedLanes = 32;
/// Limit on the number of lanes that are looked at by need before one compute.
static constexpr size_t kMaxLookedAt = 4 * kMaxRefusedLanes;

bool CollectiveIssuer::issueReadyCollectives(Ns until, NodeId nextCompute) {
  upcoming = nextCompute;
  LaneId begin = std::exchange(firstLane, kComputeLane + 1);
  int32_t refused = 0;
  bool any = schedule.hasManyLanes() && issueByNeed(until, refused);
  if (refused < kMaxRefusedLanes)
    any |= issueOnLanes(begin, problem.numLanes(), until, refused);
  return (refused < kMaxRefusedLanes && issueOnLanes(kComputeLane + 1, begin, until, refused)) || any;
}

bool CollectiveIssuer::isDry(LaneId lane, Ns until) const {
  const Clock &clock = schedule.clock;
  return clock.freeAt(lane) < until + schedule.packLead(lane) || clock.freeAt(lane) <= clock.now();
}

/// Issues on a lane until it is not dry any more. Returns whether anything was issued; if not, counts a refusal.
bool CollectiveIssuer::fill(LaneId lane, Ns until, int32_t &refused) {
  bool issued = false;
  while (isDry(lane, until) && issueOnLane(lane, /*urgent=*/false))
    issued = true;
  refused += issued ? 0 : 1;
  return issued;
}

/// Issues on dry lanes, the one whose start is due first before the others, until kMaxRefusedLanes have issued nothing
/// or kMaxLookedAt were looked at: memory is for those that are needed first.
bool CollectiveIssuer::issueByNeed(Ns until, int32_t &refused) {
  bool any = false;
  served.clear();
  while (refused < kMaxRefusedLanes && served.size() < kMaxLookedAt) {
    LaneId lane = schedule.neediestLane();
    if (lane == kNone)
      break;
    if (isDry(lane, until))
      any |= fill(lane, until, refused);
    schedule.hideNeed(lane);
    served.push_back(lane);
  }
  for (LaneId lane : served)
    schedule.noteNeed(lane);
  return any;
}

/// Issues on the dry ones of the lanes [first, last) until kMaxRefusedLanes have issued nothing.
bool CollectiveIssuer::issueOnLanes(LaneId first, LaneId last, Ns until, int32_t &refused) {
  const Clock &clock = schedule.clock;
  auto next = [&](LaneId lane) { return schedule.nextDryLane(lane, std::max(until, clock.now() + 1)); };
  bool any = false;
  for (LaneId lane = next(first); lane != kNone && lane < last; lane = next(lane + 1)) {
    any |= fill(lane, until, refused);
    if (refused >= kMaxRefusedLanes) {
      firstLane = lane + 1;
      return any;
    }
  }
  return any;
}

bool CollectiveIssuer::issuePacksAhead(Ns until) {
  upcoming = kNone;
  bool any = false;
  for (LaneId lane = schedule.nextDryPackingLane(kComputeLane + 1, until); lane != kNone;
       lane = schedule.nextDryPackingLane(lane + 1, until))
    any |= issueOnLane(lane, /*urgent=*/false);
  return any;
}

bool CollectiveIssuer::issueOnLane(LaneId lane, bool urgent) {
  begin = schedule.clock.beginOn(lane);
  collectCandidates(lane, urgent);
  if (candidates.empty())
    return false;
  for (BucketCandidate &candidate : candidates)
    if (issue(candidate))
      return true;
  return issueFurtherSingles(lane);
}

/// Fills `candidates`, the most urgent one first.
void CollectiveIssuer::collectCandidates(LaneId lane, bool urgent) {
  candidates.clear();
  for (int32_t index : schedule.starts.ofLane(lane)) {
    const LaneQueue &queue = schedule.starts[index];
    if (queue.ready.empty())
      continue;
    BucketCandidate candidate = singleCandidate(schedule.mergeContext(), queue.byRank[queue.ready.first()]);
    if (queue.merges) {
      Ns deadline = schedule.clock.deadlineOf(candidate.due);
      int32_t tried = addMembers(schedule.mergeContext(), queue, begin, deadline, candidate);
      schedule.countWork(tried / kTrialsPerStep);
    }
    if (urgent || !waitsForCompany(candidate))
      candidates.push_back(std::move(candidate));
  }
  llvm::stable_sort(candidates, [](const BucketCandidate &a, const BucketCandidate &b) { return a.due < b.due; });
}

/// Whether a candidate has the time to wait for a compute beside which it disturbs less.
bool CollectiveIssuer::waitsForCompany(const BucketCandidate &candidate) const {
  const Clock &clock = schedule.clock;
  const Policy &policy = schedule.policy();
  if (policy.patience <= 0 || upcoming == kNone || !clock.hasContention())
    return false;
  const Node &first = problem.nodes[candidate.members.front()];
  Ns duration = schedule.durationOf(upcoming);
  if (laxity(candidate) <= duration || clock.slackOf(first.lane) <= duration)
    return false;
  Demand demand = problem.demandOf(first);
  if (candidate.members.size() > 1)
    demand = problem.mergeKeys[first.mergeKey].demandOf(candidate.bytes, candidate.cost);
  return clock.gainOf(demand, upcoming) < policy.patience * (kWhole / kPermille);
}

/// The time between a candidate's end, if it is issued now, and its deadline, ns.
Ns CollectiveIssuer::laxity(const BucketCandidate &candidate) const {
  return schedule.clock.deadlineOf(candidate.due) - begin - candidate.cost;
}

/// The first start of each queue was refused: tries the next ones, each alone.
bool CollectiveIssuer::issueFurtherSingles(LaneId lane) {
  int32_t tried = 1;
  for (int32_t index : schedule.starts.ofLane(lane)) {
    const LaneQueue &queue = schedule.starts[index];
    int32_t next = queue.ready.first();
    for (next = next < 0 ? next : queue.ready.next(next + 1); next >= 0 && tried < kMaxTries;
         next = queue.ready.next(next + 1), ++tried) {
      if (issueAlone(queue.byRank[next]))
        return true;
    }
  }
  return false;
}

/// Issues a candidate, or as many of its first members as memory admits.
bool CollectiveIssuer::issue(BucketCandidate &candidate) {
  while (candidate.members.size() > 1) {
    if (issueBucket(candidate))
      return true;
    candidate.members.resize((candidate.members.size() + 1) / 2);
    if (candidate.members.size() == 1)
      break;
    candidate.bytes = 0;
    for (NodeId member : candidate.members)
      candidate.bytes += problem.nodes[member].bytes;
  }
  return issueAlone(candidate.members.front());
}

bool CollectiveIssuer::issueAlone(NodeId start) {
  schedule.countWork(1);
  return schedule.tryIssue(start);
}

/// Issues a bucket in the form that costs less, or coalesced if memory refuses the packed form.
bool CollectiveIssuer::issueBucket(BucketCandidate &candidate) {
  const ScheduleFacts &facts = schedule.facts;
  schedule.countWork(1);
  // A cast that was placed ahead of its start cannot be fused any more, but the expansion would fuse it.
  bool packable = llvm::all_of(candidate.members, [&](NodeId start) {
    return facts.fused[start] == kNone || !schedule.isPlaced(facts.fused[start]);
  });
  BucketForm form = BucketForm::Coalesced;
  if (packable) {
    const MergeKey &key = problem.mergeKeys[problem.nodes[candidate.members.front()].mergeKey];
    CopyWork work;
    for (NodeId start : candidate.members)
      work = withMember(work, facts, start);
    form = mergeCost(facts, key, candidate.bytes, work).form;
  }
  Bucket bucket = {std::move(candidate.members), form};
  bool issued = form == BucketForm::Packed && schedule.tryIssue(bucket);
  bucket.form = BucketForm::Coalesced;
  issued = issued || schedule.tryIssue(bucket);
  candidate.members = std::move(bucket.members);
  return issued;
}
