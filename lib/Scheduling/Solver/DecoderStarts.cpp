//===- DecoderStarts.cpp - One pass of the list scheduler: starts and buckets -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Decoder.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

static constexpr int64_t kPermille = 1000;
/// Ready starts that are looked at to fill one bucket.
static constexpr int32_t kMaxBucketTrials = 400;
/// Starts that are looked at in the time of one step.
static constexpr int32_t kTrialsPerStep = 2;

/// Prices in thousandths of ns. Both saturate at mulDiv()'s limit, so that a sum of two does not overflow.
static int64_t thousandths(Ns time) { return mulDiv(time, kPermille, 1); }
static int64_t addPrices(int64_t a, int64_t b) { return std::clamp(a + b, -(INT64_MAX / 4), INT64_MAX / 4); }

/// Keeps every lane busy until `until`, and for as long as the next pack is likely to take: a pack comes before its
/// start. Returns whether anything was issued.
bool Decoder::feed(Ns until) {
  bool any = false;
  for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
    while ((laneFree[lane] < until + packTime[lane] || laneFree[lane] <= compute) && feedLane(lane, /*urgent=*/false))
      any = true;
  return any;
}

/// Compute is about to stand still until `until`: packs for the lanes that run dry by then. Other starts can wait, and
/// may be chosen better later. Returns whether anything was issued.
bool Decoder::packAhead(Ns until) {
  bool any = false;
  for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
    if (packTime[lane] > 0 && laneFree[lane] < until + packTime[lane])
      any |= feedLane(lane, /*urgent=*/false);
  return any;
}

/// By when, on the clock, what is due at `due` of the reference's compute time has to be there.
Ns Decoder::deadlineOf(Ns due) const {
  return std::max(horizon, compute + computeLeft + policy.slack) - reference->computeBefore.back() + due;
}

/// Issues one start or bucket on a lane. `urgent`: nothing is held back. Returns whether one was issued.
bool Decoder::feedLane(LaneId lane, bool urgent) {
  draftBuckets(lane, urgent);
  if (drafts.empty())
    return false;
  Ns at = std::max(compute, laneFree[lane]);
  for (Draft &draft : drafts)
    if ((urgent || mayGo(draft, at)) && issue(draft))
      return true;
  return tryFurtherSingles(lane, urgent);
}

/// Drafts the best bucket of each queue of a lane, the most urgent one first.
void Decoder::draftBuckets(LaneId lane, bool urgent) {
  drafts.clear();
  Ns at = std::max(compute, laneFree[lane]);
  for (int32_t queue : queuesOfLane[lane]) {
    Draft draft;
    if (!queues[queue].ready.empty() && draftFrom(queues[queue], at, urgent, draft))
      drafts.push_back(std::move(draft));
  }
  llvm::stable_sort(drafts, [](const Draft &a, const Draft &b) { return a.due < b.due; });
  if (policy.sinkSlack < 0 || drafts.size() < 2 || drafts.front().sink)
    return;
  // A sink frees memory; it goes first where the other one has the time.
  auto sink = llvm::find_if(drafts, [](const Draft &draft) { return draft.sink; });
  if (sink != drafts.end() && laxity(drafts.front(), at) > mulDiv(sink->cost, policy.sinkSlack, kPermille))
    std::swap(drafts.front(), *sink);
}

/// Whether the budget for prefetched bytes lets a draft go.
bool Decoder::mayGo(const Draft &draft, Ns at) const {
  return draft.sink || prefetched == 0 || prefetched + draft.bytes <= policy.prefetch || laxity(draft, at) <= 0;
}

/// The first start of each queue did not fit: tries the next ones, each alone.
bool Decoder::tryFurtherSingles(LaneId lane, bool urgent) {
  Ns at = std::max(compute, laneFree[lane]);
  int32_t tried = 1;
  for (int32_t index : queuesOfLane[lane]) {
    const Queue &queue = queues[index];
    int32_t next = queue.ready.first();
    for (next = next < 0 ? next : queue.ready.next(next + 1); next >= 0 && tried < policy.tries;
         next = queue.ready.next(next + 1), ++tried) {
      NodeId start = queue.byRank[next];
      Draft draft;
      draft.members = {start};
      draft.bytes = problem.nodes[start].bytes;
      draft.cost = problem.nodes[start].cost;
      draft.due = due[start];
      draft.sink = reference->sink[start];
      if (draft.sink && policy.minSink > 0 && !urgent)
        continue;
      if ((urgent || mayGo(draft, at)) && issueAlone(start))
        return true;
    }
  }
  return false;
}

//===-----------------------------------------------------------------------------------------===//
// Which starts to merge
//===-----------------------------------------------------------------------------------------===//

/// Adds a member to the copies of a packed bucket.
Decoder::CopyTime Decoder::copies(CopyTime sum, NodeId start) const {
  const MergeMember &member = problem.members[start];
  NodeId cast = facts.fused[start];
  sum.read += cast == kNone ? member.inputBytes : member.castInputBytes;
  sum.written += member.inputBytes;
  sum.casts += cast == kNone ? 0 : problem.nodes[cast].cost;
  ++sum.members;
  if (problem.nodes[start].collective != CollectiveKind::AllGather)
    return sum;
  if (member.outputBytes <= kSmallUnpackBytes)
    sum.small += member.outputBytes;
  else
    sum.unpacks += ownUnpack[start];
  return sum;
}

/// How much longer the compute lane is busy with a packed bucket than with its members alone; may be negative.
Ns Decoder::extraCompute(const CopyTime &sum) const {
  if (sum.members < 2)
    return 0;
  Ns shared = sum.small > 0 ? problem.copyCost(sum.small, sum.small) : 0;
  return problem.copyCost(sum.read, sum.written) + sum.unpacks + shared - sum.casts;
}

/// The form that a bucket gets where memory does not decide, and what it takes.
Decoder::Terms Decoder::terms(const MergeKey &key, Bytes bytes, const CopyTime &sum) const {
  Terms packed = {BucketForm::Packed, key.cost(bytes), extraCompute(sum)};
  // The same bytes in one collective take no longer than in several.
  bool isBest = packed.copies <= 0 && policy.form == FormChoice::Cheaper;
  if (policy.form == FormChoice::Packed || isBest)
    return packed;
  Terms coalesced = {BucketForm::Coalesced, key.coalescedCost(bytes, sum.members), 0};
  if (policy.form == FormChoice::Coalesced)
    return coalesced;
  return priceOf(packed) < priceOf(coalesced) ? packed : coalesced;
}

/// Lane time and copies on one scale, in thousandths of ns.
int64_t Decoder::priceOf(const Terms &terms) const {
  return addPrices(thousandths(terms.lane), mulDiv(terms.copies, policy.copyWeight, 1));
}

/// The next candidate for a bucket behind `last`: the next ready start of the queue, which is at `rank`; or, where
/// collectives keep their order, the next one of that order if nothing else holds it back. kNone: there is none.
NodeId Decoder::nextMember(const Queue &queue, NodeId last, int32_t &rank) const {
  NodeId next = facts.nextIssue[last];
  if (next != kNone) {
    bool follows =
        facts.mergeable[next] && queueOf[next] == queueOf[last] && facts.issuesBefore[next] == 1 && pending[next] == 1;
    return follows ? next : kNone;
  }
  if (facts.issuesBefore[last] > 0)
    return kNone;
  rank = queue.ready.next(rank + 1);
  return rank < 0 ? kNone : queue.byRank[rank];
}

/// Adds to the first member what is worth merging with it, in order of urgency.
void Decoder::fill(const Queue &queue, Ns at, Draft &draft) const {
  NodeId first = draft.members.front();
  const MergeKey &key = problem.mergeKeys[problem.nodes[first].mergeKey];
  Bytes largest = draft.sink ? policy.maxSink : policy.maxNeeded;
  if (key.cap >= 0)
    largest = std::min(largest, key.cap);
  Ns deadline = deadlineOf(draft.due), apart = draft.cost;
  CopyTime copied = copies({}, first);
  int64_t price = thousandths(draft.cost);
  int32_t next = startRank[first], tried = 0;
  for (; tried < kMaxBucketTrials; ++tried) {
    NodeId start = nextMember(queue, draft.members.back(), next);
    if (start == kNone)
      break;
    const Node &info = problem.nodes[start];
    bool keepsOrder = facts.issuesBefore[start] > 0;
    if (reference->sink[start] != draft.sink && !keepsOrder)
      continue;
    Bytes bytes = draft.bytes + info.bytes;
    if (bytes > largest)
      break;
    CopyTime withIt = copies(copied, start);
    Terms merged = terms(key, bytes, withIt);
    // A coalesced pair has two latencies, as the two apart; it is the third member that saves one.
    bool mayPayLater = merged.form == BucketForm::Coalesced && draft.members.size() == 1;
    if (!mayPayLater && priceOf(merged) > addPrices(price, thousandths(info.cost))) {
      if (keepsOrder)
        break;
      continue;
    }
    if (!draft.sink && at + merged.lane > deadline && bytes > policy.freeNeeded)
      break;
    draft.members.push_back(start);
    draft.bytes = bytes;
    draft.cost = merged.lane;
    apart += info.cost;
    copied = withIt;
    price = priceOf(merged);
  }
  result->work += tried / kTrialsPerStep;
  if (price < thousandths(apart))
    return;
  draft.members.resize(1);
  draft.bytes = problem.nodes[first].bytes;
  draft.cost = problem.nodes[first].cost;
}

/// Drafts a bucket of the most urgent start of a queue. Returns false where it is better to wait for more.
bool Decoder::draftFrom(const Queue &queue, Ns at, bool urgent, Draft &draft) const {
  NodeId first = queue.byRank[queue.ready.first()];
  draft.members = {first};
  draft.bytes = problem.nodes[first].bytes;
  draft.cost = problem.nodes[first].cost;
  draft.due = due[first];
  draft.sink = reference->sink[first];
  if (!queue.merges)
    return true;
  fill(queue, at, draft);
  if (urgent || !draft.sink)
    return true;
  bool moreWillCome = queue.toCome > queue.readyBytes && computeLeft > draft.cost;
  return draft.bytes >= std::min(policy.minSink, policy.maxSink) || !moreWillCome;
}

//===-----------------------------------------------------------------------------------------===//
// Issuing
//===-----------------------------------------------------------------------------------------===//

/// Puts a start, or the bucket that it is the first of, on its lane.
void Decoder::occupyLane(NodeId first, Ns cost) {
  Ns &lane = laneFree[problem.nodes[first].lane];
  lane = std::max(compute, lane) + cost;
}

/// A start has been issued, alone or in a bucket.
void Decoder::leaveQueue(NodeId start, Ns end) {
  const Node &info = problem.nodes[start];
  Queue &queue = queues[queueOf[start]];
  queue.ready.erase(startRank[start]);
  queue.readyBytes -= info.bytes;
  queue.toCome -= info.bytes;
  if (!reference->sink[start])
    prefetched += info.bytes;
  if (bucketOf[start] == kNone)
    compute += info.issue;
  endOf[start] = end;
  leaveReference(start);
  complete(start);
}

/// Issues a draft, or as much of it as memory admits: halves of it, at last its first member.
bool Decoder::issue(Draft &draft) {
  while (draft.members.size() > 1) {
    ++result->work;
    if (issueBucket(draft))
      return true;
    draft.members.resize((draft.members.size() + 1) / 2);
    if (draft.members.size() == 1)
      break;
    draft.bytes = 0;
    for (NodeId member : draft.members)
      draft.bytes += problem.nodes[member].bytes;
  }
  return issueAlone(draft.members.front());
}

bool Decoder::issueAlone(NodeId start) {
  ++result->work;
  llvm::SmallVector<NodeId, 4> group;
  llvm::copy_if(facts.feeders[start], std::back_inserter(group), [&](NodeId feeder) { return !gone[feeder]; });
  group.push_back(start);
  if (!memory.tryRun(group))
    return false;
  for (NodeId feeder : llvm::ArrayRef<NodeId>(group).drop_back())
    runCompute(feeder);
  emit(DecodeStep::Run, start);
  occupyLane(start, problem.nodes[start].cost);
  leaveQueue(start, laneFree[problem.nodes[start].lane]);
  return true;
}

bool Decoder::issueBucket(Draft &draft) {
  const MergeKey &key = problem.mergeKeys[problem.nodes[draft.members.front()].mergeKey];
  // A cast that ran ahead of its start cannot be fused any more, and the expansion would fuse it.
  bool packable = llvm::all_of(draft.members,
                               [&](NodeId start) { return facts.fused[start] == kNone || !gone[facts.fused[start]]; });
  if (packable && policy.form != FormChoice::Coalesced) {
    CopyTime sum;
    for (NodeId start : draft.members)
      sum = copies(sum, start);
    Terms chosen = terms(key, draft.bytes, sum);
    draft.cost = chosen.lane;
    if (chosen.form == BucketForm::Packed && tryForm(draft, BucketForm::Packed))
      return true;
  }
  draft.cost = key.coalescedCost(draft.bytes, static_cast<int32_t>(draft.members.size()));
  return tryForm(draft, BucketForm::Coalesced);
}

/// Issues a bucket in one form if memory admits it.
bool Decoder::tryForm(const Draft &draft, BucketForm form) {
  bool packs = form == BucketForm::Packed;
  bool gathers = problem.nodes[draft.members.front()].collective == CollectiveKind::AllGather;
  bool inPlace = problem.nodes[draft.members.front()].collective == CollectiveKind::AllReduce;
  llvm::SmallVector<NodeId, 16> prelude, fused;
  FlyingBucket bucket;
  Bytes inputBytes = 0, outputBytes = 0;
  for (NodeId start : draft.members) {
    for (NodeId feeder : facts.feeders[start])
      if (!gone[feeder])
        (packs && feeder == facts.fused[start] ? fused : prelude).push_back(feeder);
    bucket.waits.push_back(problem.members[start].wait);
    inputBytes += problem.members[start].inputBytes;
    outputBytes += problem.members[start].outputBytes;
  }
  llvm::sort(bucket.waits, [&](NodeId a, NodeId b) { return reference->position[a] < reference->position[b]; });
  bucket.unpacks = packs && gathers;
  if (bucket.unpacks)
    llvm::copy_if(bucket.waits, std::back_inserter(bucket.shared), [&](NodeId wait) {
      return problem.members[problem.nodes[wait].start].outputBytes <= kSmallUnpackBytes;
    });

  BucketMove move = {prelude, fused, draft.members, bucket.waits};
  bool admitted = !packs    ? memory.tryCoalesced(move)
                  : gathers ? memory.tryPackedGather(move, outputBytes, bucket.shared)
                            : memory.tryPackedReduction(move, inputBytes, inPlace ? 0 : outputBytes);
  if (!admitted)
    return false;
  commit(draft, form, prelude, std::move(bucket));
  return true;
}

/// Moves the clocks over a bucket that memory has admitted.
void Decoder::commit(const Draft &draft, BucketForm form, llvm::ArrayRef<NodeId> prelude, FlyingBucket bucket) {
  int32_t index = static_cast<int32_t>(flyingBuckets.size());
  NodeId first = draft.members.front();
  for (NodeId node : prelude)
    runCompute(node);
  result->buckets.push_back({draft.members, form});
  if (form == BucketForm::Packed) {
    CopyTime sum;
    for (NodeId start : draft.members) {
      sum = copies(sum, start);
      if (NodeId cast = facts.fused[start]; cast != kNone) {
        leaveCompute(cast);
        leaveReference(cast);
      }
    }
    Ns pack = problem.copyCost(sum.read, sum.written);
    compute += pack;
    packTime[problem.nodes[first].lane] = mulDiv(pack, policy.packAhead, kPermille);
    emit(DecodeStep::Pack, index);
    for (NodeId wait : bucket.unpacks ? llvm::ArrayRef<NodeId>(bucket.waits) : llvm::ArrayRef<NodeId>()) {
      Bytes bytes = problem.members[problem.nodes[wait].start].outputBytes;
      unpackCost[wait] = bytes > kSmallUnpackBytes ? ownUnpack[problem.nodes[wait].start] : 0;
    }
    if (!bucket.shared.empty())
      unpackCost[bucket.shared.front()] = problem.copyCost(sum.small, sum.small);
    for (NodeId wait : bucket.waits)
      computeLeft += unpackCost[wait];
  }
  emit(DecodeStep::Start, index);
  occupyLane(first, draft.cost);
  bucket.end = laneFree[problem.nodes[first].lane];
  NodeId stays = bucket.waits.front(), staysShared = bucket.shared.empty() ? kNone : bucket.shared.front();
  for (NodeId wait : bucket.waits)
    bucketOf[wait] = index;
  for (NodeId wait : bucket.unpacks ? bucket.shared : bucket.waits)
    if (wait != (bucket.unpacks ? staysShared : stays))
      leaveReference(wait);
  flying.push({bucket.end, bucket.unpacks ? kNone : stays, index});
  flyingBuckets.push_back(std::move(bucket));
  Ns issueCost = 0;
  for (NodeId start : draft.members) {
    bucketOf[start] = index;
    issueCost = std::max(issueCost, problem.nodes[start].issue);
    leaveQueue(start, flyingBuckets[index].end);
  }
  compute += issueCost;
}
