//===- Decoder.cpp - One pass of the list scheduler: set-up, computes and waits ---------------===//
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

//===-----------------------------------------------------------------------------------------===//
// Set-up
//===-----------------------------------------------------------------------------------------===//

Decoder::Decoder(const ScheduleFacts &facts)
    : facts(facts), problem(facts.problem), memory(facts.problem), ownUnpack(facts.problem.size(), 0) {
  for (NodeId node = 0; node < problem.size(); ++node)
    if (facts.mergeable[node] && problem.nodes[node].collective == CollectiveKind::AllGather) {
      Bytes bytes = problem.members[node].outputBytes;
      ownUnpack[node] = problem.copyCost(bytes, bytes);
    }
}

/// Where a compute stands between the reference and its longest path, as a time.
Ns Decoder::computeKey(NodeId node) const {
  Ns before = reference->computeBefore[reference->position[node]];
  NodeId start = facts.worksFor[node];
  bool isLate = before >= mulDiv(reference->computeBefore.back(), policy.workFrom, kPermille);
  if (policy.workDelay > 0 && isLate && start != kNone && reference->sink[start] && facts.worthDelay[start])
    before += mulDiv(reference->computeBefore.back(), policy.workDelay, kPermille);
  if (policy.tailShare == 0)
    return before;
  Ns path = mulDiv(facts.criticalPath - facts.tail[node], reference->computeBefore.back(), facts.criticalPath);
  return mulDiv(kPermille - policy.tailShare, before, kPermille) + mulDiv(policy.tailShare, path, kPermille);
}

/// Ranks computes, and waits just before their first user, by key; ties by place in the reference.
void Decoder::rankComputes(llvm::ArrayRef<Ns> bias) {
  struct Entry {
    Ns key;
    int32_t position;
  };
  std::vector<Ns> key(problem.size());
  std::vector<Entry> entries;
  entries.reserve(problem.size());
  for (NodeId node : llvm::reverse(reference->order)) {
    const Node &info = problem.nodes[node];
    key[node] = computeKey(node) + (bias.empty() ? 0 : bias[node]);
    if (info.kind == NodeKind::Start)
      continue;
    if (info.kind == NodeKind::Wait) {
      key[node] = reference->computeBefore.back();
      for (NodeId user : problem.succs[node])
        key[node] = std::min(key[node], key[user]);
    }
    if (facts.leader[node] == node)
      entries.push_back({key[node], reference->position[node]});
  }
  llvm::sort(entries,
             [](const Entry &a, const Entry &b) { return a.key != b.key ? a.key < b.key : a.position < b.position; });
  rank.assign(problem.size(), kNone);
  byRank.clear();
  for (const Entry &entry : entries) {
    NodeId node = reference->order[entry.position];
    rank[node] = static_cast<int32_t>(byRank.size());
    byRank.push_back(node);
  }
  ready.reset(static_cast<int32_t>(byRank.size()));
}

/// Sets when each start is due, and ranks those of each queue by it.
void Decoder::rankStarts(llvm::ArrayRef<Ns> bias) {
  Ns total = reference->computeBefore.back();
  Ns yielding = mulDiv(policy.sinkDelay, facts.medianCollective, kPermille);
  due.assign(problem.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (problem.nodes[node].kind != NodeKind::Start)
      continue;
    due[node] = reference->sink[node]
                    ? reference->computeBefore[reference->position[node]] + yielding
                    : std::min(total - facts.tail[node],
                               reference->computeBefore[std::min(reference->need[node], problem.size())]);
    if (!bias.empty())
      due[node] += bias[node];
  }
  fillQueues();
  startRank.assign(problem.size(), kNone);
  for (Queue &queue : queues) {
    llvm::sort(queue.byRank, [&](NodeId a, NodeId b) { return due[a] != due[b] ? due[a] < due[b] : a < b; });
    queue.ready.reset(static_cast<int32_t>(queue.byRank.size()));
    for (auto [index, node] : llvm::enumerate(queue.byRank))
      startRank[node] = static_cast<int32_t>(index);
  }
}

/// One queue for each merge key, then one for each lane.
void Decoder::fillQueues() {
  int32_t numKeys = static_cast<int32_t>(problem.mergeKeys.size());
  queues.resize(numKeys + problem.numLanes());
  queuesOfLane.assign(problem.numLanes(), {});
  for (int32_t index = 0; index < static_cast<int32_t>(queues.size()); ++index) {
    Queue &queue = queues[index];
    queue.merges = index < numKeys;
    queue.lane = queue.merges ? problem.mergeKeys[index].lane : index - numKeys;
    queue.byRank.clear();
    queue.readyBytes = queue.toCome = 0;
    queuesOfLane[queue.lane].push_back(index);
  }
  queueOf.assign(problem.size(), kNone);
  for (NodeId node = 0; node < problem.size(); ++node) {
    const Node &info = problem.nodes[node];
    if (info.kind != NodeKind::Start)
      continue;
    queueOf[node] = facts.mergeable[node] ? info.mergeKey : numKeys + info.lane;
    queues[queueOf[node]].byRank.push_back(node);
    queues[queueOf[node]].toCome += info.bytes;
  }
}

void Decoder::prepare(llvm::ArrayRef<Ns> bias) {
  rankComputes(bias);
  rankStarts(bias);
  gone.assign(problem.size(), 0);
  pending = facts.entering;
  freeReady.clear();
  front = rankFront = 0;
  compute = prefetched = 0;
  computeLeft = reference->computeBefore.back();
  fusableLeft = 0;
  for (NodeId node = 0; node < problem.size(); ++node)
    fusableLeft += mayFuse(node) ? problem.nodes[node].cost : 0;
  horizon = mulDiv(facts.horizonBase(), policy.horizon, kPermille);
  problem.beginLanes(laneFree);
  packTime.assign(problem.numLanes(), 0);
  flying = {};
  endOf.assign(problem.size(), 0);
  bucketOf.assign(problem.size(), kNone);
  unpackCost.assign(problem.size(), 0);
  flyingBuckets.clear();
  for (NodeId node = 0; node < problem.size(); ++node)
    if (facts.leader[node] == node && pending[node] == 0)
      makeReady(node);
}

bool Decoder::run(const Reference &theReference, const Policy &thePolicy, Bytes limit, Ns cutoff,
                  llvm::ArrayRef<Ns> bias, Decoded &theResult) {
  reference = &theReference;
  policy = thePolicy;
  result = &theResult;
  result->steps.clear();
  result->buckets.clear();
  result->work = problem.size();
  if (!memory.reset(reference->order, reference->position, limit))
    return false;
  prepare(bias);
  while (front < problem.size()) {
    // Casts that a pack does itself need not run.
    if (compute + computeLeft - fusableLeft >= cutoff)
      return false;
    drain();
    if (runACandidate())
      continue;
    if (front < problem.size())
      runFront();
  }
  result->makespan = std::max(compute, *std::max_element(laneFree.begin(), laneFree.end()));
  result->peak = memory.peak();
  return result->makespan < cutoff;
}

//===-----------------------------------------------------------------------------------------===//
// What becomes ready, and what is done
//===-----------------------------------------------------------------------------------------===//

void Decoder::makeReady(NodeId node) {
  const Node &info = problem.nodes[node];
  switch (info.kind) {
  case NodeKind::Start: {
    Queue &queue = queues[queueOf[node]];
    queue.ready.insert(startRank[node]);
    queue.readyBytes += info.bytes;
    return;
  }
  case NodeKind::Wait:
    // A bucket looks after its waits itself.
    if (bucketOf[node] == kNone)
      flying.push({info.start == kNone ? info.ready : endOf[info.start], node, kNone});
    return;
  case NodeKind::Compute:
  case NodeKind::Hybrid:
    // What waits in its regions is a candidate when that has ended; until then it would hold compute for nothing.
    if (Ns end = info.region == kNone ? 0 : problem.endOfAwaited(info, endOf); end > compute)
      flying.push({end, node, kNone});
    else if (facts.freeToRun[node])
      freeReady.push_back(node);
    else
      ready.insert(rank[node]);
    return;
  }
}

/// Releases what depends on a node.
void Decoder::complete(NodeId node) {
  NodeId own = facts.leader[node];
  for (NodeId user : problem.succs[node]) {
    NodeId group = facts.leader[user];
    if (group != own && --pending[group] == 0)
      makeReady(group);
  }
}

/// A node has run, or a bucket has made it vanish.
void Decoder::leaveReference(NodeId node) {
  gone[node] = 1;
  if (rank[node] != kNone)
    ready.erase(rank[node]);
  while (front < problem.size() && gone[reference->order[front]])
    ++front;
  while (rankFront < static_cast<int32_t>(byRank.size()) && gone[byRank[rankFront]])
    ++rankFront;
}

/// Whether a pack may do the work of a node: of a cast, led by the start that it feeds.
bool Decoder::mayFuse(NodeId node) const {
  NodeId start = facts.leader[node];
  return start != node && facts.fused[start] == node;
}

/// A compute has run, or a pack does its work: it is no longer to come.
void Decoder::leaveCompute(NodeId node) {
  Ns cost = problem.nodes[node].cost;
  computeLeft -= cost;
  if (mayFuse(node))
    fusableLeft -= cost;
}

//===-----------------------------------------------------------------------------------------===//
// Computes and waits
//===-----------------------------------------------------------------------------------------===//

/// How long the compute lane is busy with a ready compute or unpack, ns.
Ns Decoder::durationOf(NodeId node) const {
  const Node &info = problem.nodes[node];
  if (info.kind == NodeKind::Wait)
    return unpackCost[node];
  if (info.region != kNone)
    return problem.beginOfRegion(info, compute, laneFree, endOf) - compute + info.cost;
  if (info.kind == NodeKind::Hybrid)
    return std::max<Ns>(laneFree[info.lane] - compute, 0) + info.cost;
  return info.cost;
}

/// Moves the clocks over a compute or hybrid that runs now.
void Decoder::runCompute(NodeId node) {
  const Node &info = problem.nodes[node];
  compute += durationOf(node);
  leaveCompute(node);
  if (info.region != kNone) {
    for (LaneId lane : problem.regions[info.region].lanes)
      laneFree[lane] = compute;
    for (NodeId start : problem.regions[info.region].starts)
      if (!reference->sink[start])
        prefetched -= problem.nodes[start].bytes;
  } else if (info.kind == NodeKind::Hybrid) {
    laneFree[info.lane] = compute;
  }
  emit(DecodeStep::Run, node);
  leaveReference(node);
  complete(node);
}

void Decoder::completeWait(NodeId wait) {
  NodeId start = problem.nodes[wait].start;
  if (start != kNone && !reference->sink[start])
    prefetched -= problem.nodes[start].bytes;
  complete(wait);
}

/// Moves the clocks over a wait, of a single collective or of a bucket without unpacks.
void Decoder::runWait(NodeId wait) {
  const Node &info = problem.nodes[wait];
  compute = std::max(compute, info.start == kNone ? info.ready : endOf[info.start]);
  int32_t bucket = bucketOf[wait];
  leaveReference(wait);
  if (bucket == kNone) {
    emit(DecodeStep::Run, wait);
    return completeWait(wait);
  }
  emit(DecodeStep::Wait, bucket);
  if (result->buckets[bucket].form == BucketForm::Packed)
    emit(DecodeStep::View, bucket);
  for (NodeId member : flyingBuckets[bucket].waits)
    completeWait(member);
}

/// Moves the clocks over an unpack.
void Decoder::runUnpack(NodeId wait) {
  compute += unpackCost[wait];
  computeLeft -= unpackCost[wait];
  emit(DecodeStep::Unpack, wait);
  leaveReference(wait);
  const FlyingBucket &bucket = flyingBuckets[bucketOf[wait]];
  bool isShared = !bucket.shared.empty() && bucket.shared.front() == wait;
  for (NodeId member : isShared ? llvm::ArrayRef<NodeId>(bucket.shared) : llvm::ArrayRef<NodeId>(wait))
    completeWait(member);
}

/// Runs a compute, an unpack, or a wait that was put off, if memory admits it.
bool Decoder::tryCompute(NodeId node) {
  ++result->work;
  if (!memory.tryRun(node))
    return false;
  if (problem.nodes[node].kind != NodeKind::Wait)
    runCompute(node);
  else if (isUnpack(node))
    runUnpack(node);
  else
    runWait(node);
  return true;
}

/// Runs what costs nothing and only helps: views, and waits for what is there.
void Decoder::drain() {
  while (true) {
    if (!freeReady.empty()) {
      NodeId node = freeReady.back();
      freeReady.pop_back();
      if (gone[node])
        continue;
      memory.run(node);
      runCompute(node);
    } else if (!flying.empty() && flying.top().end <= compute) {
      landEarliest();
    } else {
      return;
    }
  }
}

/// Waits for what ends first.
void Decoder::landEarliest() {
  Flight flight = flying.top();
  flying.pop();
  if (flight.wait == kNone) {
    // The bucket's unpacks are computes now.
    compute = std::max(compute, flight.end);
    emit(DecodeStep::Wait, flight.bucket);
    for (NodeId wait : flyingBuckets[flight.bucket].waits)
      if (!gone[wait])
        ready.insert(rank[wait]);
    return;
  }
  if (gone[flight.wait])
    return;
  if (problem.nodes[flight.wait].kind != NodeKind::Wait) {
    // A node whose regions wait is a candidate from now on; compute stands still only when it runs.
    ready.insert(rank[flight.wait]);
    return;
  }
  // A wait that allocates may not fit; it is tried again with the computes.
  if (memory.tryRun(flight.wait))
    runWait(flight.wait);
  else
    ready.insert(rank[flight.wait]);
}

/// Feeds the lanes for the time of the best candidate, then runs the first candidate that memory admits. Returns
/// whether anything was done.
bool Decoder::runACandidate() {
  int32_t first = ready.first(), candidate = first;
  bool inWindow = first >= 0 && (first - rankFront) <= policy.window;
  if (feed(compute + (inWindow ? durationOf(byRank[first]) : 1)))
    return true;
  for (int32_t tried = 0; tried < policy.tries && candidate >= 0; ++tried) {
    if (candidate - rankFront > policy.window)
      return false;
    if (tryCompute(byRank[candidate]))
      return true;
    candidate = ready.next(candidate + 1);
  }
  return false;
}

/// Nothing that is preferred may run: waits for something, or does what the reference does next, which always fits.
void Decoder::runFront() {
  NodeId node = reference->order[front];
  const Node &info = problem.nodes[node];
  bool computes = info.kind == NodeKind::Compute || info.kind == NodeKind::Hybrid;
  bool isFeeder = facts.leader[node] != node;
  if (!flying.empty() && (!computes || isFeeder)) {
    if (!packAhead(flying.top().end))
      landEarliest();
    return;
  }
  if (computes) {
    memory.run(node);
    return runCompute(node);
  }
  if (info.kind == NodeKind::Start) {
    if (feedLane(info.lane, /*urgent=*/true))
      return;
    memory.run(node);
    emit(DecodeStep::Run, node);
    occupyLane(node, info.cost);
    return leaveQueue(node, laneFree[info.lane]);
  }
  memory.run(node);
  if (isUnpack(node))
    runUnpack(node);
  else
    runWait(node);
}
