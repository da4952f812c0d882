//===- DecoderStarts.cpp - One pass of the list scheduler: starts and buckets -----------------===//

#include "Decoder.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

static constexpr int64_t kPermille = 1000;
/// Ready starts that are looked at to fill one bucket.
static constexpr int32_t kMaxBucketTrials = 400;

/// Keeps every lane busy until `until`. Returns whether anything was issued.
bool Decoder::feed(Ns until) {
  bool any = false;
  for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
    while ((laneFree[lane] < until || laneFree[lane] <= compute) && feedLane(lane, /*urgent=*/false))
      any = true;
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
    sum.unpacks += problem.copyCost(member.outputBytes, member.outputBytes);
  return sum;
}

/// How much longer the compute lane is busy with a packed bucket than with its members alone; may be negative.
Ns Decoder::extraCompute(const CopyTime &sum) const {
  if (sum.members < 2)
    return 0;
  Ns shared = sum.small > 0 ? problem.copyCost(sum.small, sum.small) : 0;
  return problem.copyCost(sum.read, sum.written) + sum.unpacks + shared - sum.casts;
}

/// What a merge costs in compute time, in the form that it would get.
Ns Decoder::price(const CopyTime &sum) const {
  if (policy.form == FormChoice::Coalesced)
    return 0;
  Ns extra = extraCompute(sum);
  return policy.form == FormChoice::Packed ? extra : std::min<Ns>(extra, 0);
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
  Ns copyPrice = price(copied);
  int32_t next = startRank[first];
  for (int32_t tried = 0; tried < kMaxBucketTrials; ++tried) {
    next = queue.ready.next(next + 1);
    if (next < 0)
      break;
    NodeId start = queue.byRank[next];
    const Node &info = problem.nodes[start];
    if (reference->sink[start] != draft.sink)
      continue;
    Bytes bytes = draft.bytes + info.bytes;
    if (bytes > largest)
      break;
    Ns cost = key.cost(bytes);
    CopyTime withIt = copies(copied, start);
    Ns newPrice = price(withIt);
    if ((draft.cost + info.cost - cost) * kPermille < policy.copyWeight * (newPrice - copyPrice))
      continue;
    if (!draft.sink && at + cost > deadline && bytes > policy.freeNeeded)
      break;
    draft.members.push_back(start);
    draft.bytes = bytes;
    draft.cost = cost;
    apart += info.cost;
    copied = withIt;
    copyPrice = newPrice;
  }
  if ((apart - draft.cost) * kPermille >= policy.copyWeight * copyPrice)
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
    draft.cost = problem.mergeKeys[problem.nodes[draft.members.front()].mergeKey].cost(draft.bytes);
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

bool Decoder::issueBucket(const Draft &draft) {
  // A cast that ran ahead of its start cannot be fused any more, and the expansion would fuse it.
  bool packable = llvm::all_of(draft.members,
                               [&](NodeId start) { return facts.fused[start] == kNone || !gone[facts.fused[start]]; });
  BucketForm form = BucketForm::Coalesced;
  if (packable && policy.form != FormChoice::Coalesced) {
    CopyTime sum;
    for (NodeId start : draft.members)
      sum = copies(sum, start);
    if (policy.form == FormChoice::Packed || extraCompute(sum) < 0)
      form = BucketForm::Packed;
  }
  if (tryForm(draft, form))
    return true;
  return form == BucketForm::Packed && tryForm(draft, BucketForm::Coalesced);
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
        computeLeft -= problem.nodes[cast].cost;
        leaveReference(cast);
      }
    }
    compute += problem.copyCost(sum.read, sum.written);
    emit(DecodeStep::Pack, index);
    for (NodeId wait : bucket.unpacks ? llvm::ArrayRef<NodeId>(bucket.waits) : llvm::ArrayRef<NodeId>()) {
      Bytes bytes = problem.members[problem.nodes[wait].start].outputBytes;
      unpackCost[wait] = bytes > kSmallUnpackBytes ? problem.copyCost(bytes, bytes) : 0;
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
