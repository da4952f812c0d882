//===- PartialSchedule.cpp - State of a decode ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The moves on computes and waits, then those on communication lanes. A node that has been placed leaves the reference
// and the queues, and the launch units that depended on it may become ready. A bucket is played by its description
// (Buckets/BucketShape.h); a decode adds which nodes run before it, and which waits of the reference stand for its
// waits.
//
//===------------------------------------------------------------------------------------------===//

#include "PartialSchedule.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

PartialSchedule::PartialSchedule(const ScheduleFacts &facts)
    : facts(facts), problem(facts.problem), clock(facts), computes(facts), starts(facts), memory(facts.problem) {}

bool PartialSchedule::reset(const Reference &reference, const Policy &policy, Bytes limit, DecodedSchedule &into) {
  theReference = &reference;
  thePolicy = policy;
  result = &into;
  result->steps.clear();
  result->buckets.clear();
  result->work = problem.size();
  if (!memory.reset(reference.order, reference.position, limit))
    return false;
  computes.reset(reference, policy);
  starts.reset(reference, policy);
  clock.reset(reference, policy);
  placed.assign(problem.size(), 0);
  pendingEdges = facts.enteringEdges;
  front = 0;
  freeReady.clear();
  packTime.assign(problem.numLanes(), 0);
  dry.reset(problem.numLanes());
  dryPacking.reset(problem.numLanes());
  needs.reset(hasManyLanes() ? problem.numLanes() : 1);
  bucketOf.assign(problem.size(), kNone);
  unpackCost.assign(problem.size(), 0);
  issued.clear();
  for (NodeId node = 0; node < problem.size(); ++node)
    if (facts.leader[node] == node && pendingEdges[node] == 0)
      makeReady(node);
  return true;
}

void PartialSchedule::finish() {
  result->makespan = clock.makespan();
  result->peak = memory.peak();
}

//===-----------------------------------------------------------------------------------------===//
// Readiness
//===-----------------------------------------------------------------------------------------===//

/// All dependences of a launch unit have been placed: its leader becomes a candidate.
void PartialSchedule::makeReady(NodeId node) {
  const Node &info = problem.nodes[node];
  switch (info.kind) {
  case NodeKind::Start:
    starts.insert(node);
    return updateDryness(info.lane);
  case NodeKind::Wait:
    // The bucket completes the waits of its members.
    if (bucketOf[node] == kNone)
      clock.addInFlight(info.start == kNone ? info.ready : clock.endOf(info.start), node);
    return;
  case NodeKind::Compute:
  case NodeKind::Hybrid:
    // A node whose regions wait becomes a candidate when that communication has ended: placed earlier, it would hold
    // the compute lane idle.
    if (Ns end = clock.readyTimeOf(info); end > clock.now())
      clock.addInFlight(end, node);
    else if (facts.freeToRun[node])
      freeReady.push_back(node);
    else
      computes.insert(node);
    return;
  }
}

/// Notes when a lane needs its next start: to be called when a start becomes ready or leaves, or the lane's clock
/// moves.
void PartialSchedule::updateDryness(LaneId lane) {
  Ns time = starts.hasReady(lane) ? clock.freeAt(lane) - packTime[lane] : DryLanes::kNever;
  dry.set(lane, time);
  if (packTime[lane] > 0)
    dryPacking.set(lane, time);
  if (hasManyLanes())
    noteNeed(lane);
}

void PartialSchedule::noteNeed(LaneId lane) {
  Ns due = DryLanes::kNever;
  for (int32_t index : starts.ofLane(lane))
    if (const LaneQueue &queue = starts[index]; !queue.ready.empty())
      due = std::min(due, starts.dueOf(queue.byRank[queue.ready.first()]));
  needs.set(lane, due);
}

/// Counts down the edges that leave a node whose result is there.
void PartialSchedule::release(NodeId node) {
  NodeId own = facts.leader[node];
  for (NodeId user : problem.succs[node]) {
    NodeId leader = facts.leader[user];
    if (leader != own && --pendingEdges[leader] == 0)
      makeReady(leader);
  }
}

/// A node has been placed, or a bucket has absorbed it.
void PartialSchedule::markPlaced(NodeId node) {
  placed[node] = 1;
  computes.markPlaced(node);
  while (front < problem.size() && placed[theReference->order[front]])
    ++front;
}

//===-----------------------------------------------------------------------------------------===//
// Computes and waits
//===-----------------------------------------------------------------------------------------===//

bool PartialSchedule::tryPlace(NodeId node) {
  if (!memory.tryAdmit(node))
    return false;
  placeAdmitted(node);
  return true;
}

void PartialSchedule::place(NodeId node) {
  memory.place(node);
  placeAdmitted(node);
}

void PartialSchedule::placeAdmitted(NodeId node) {
  if (problem.nodes[node].kind != NodeKind::Wait)
    placeCompute(node);
  else if (isUnpack(node))
    placeUnpack(node);
  else
    placeWait(node);
}

void PartialSchedule::placeFreeNodes() {
  while (!freeReady.empty()) {
    NodeId node = freeReady.back();
    freeReady.pop_back();
    if (!placed[node])
      place(node);
  }
}

void PartialSchedule::placeCompute(NodeId node) {
  const Node &info = problem.nodes[node];
  clock.runCompute(node);
  if (info.region != kNone) {
    const RegionWork &work = problem.regions[info.region];
    for (LaneId lane : work.lanes)
      updateDryness(lane);
  } else if (info.kind == NodeKind::Hybrid) {
    updateDryness(info.lane);
  }
  emit(DecodeStep::Run, node);
  markPlaced(node);
  release(node);
}

/// Places the wait for a single collective, or for a bucket without unpacks.
void PartialSchedule::placeWait(NodeId wait) {
  const Node &info = problem.nodes[wait];
  if (info.start == kNone)
    clock.waitUntil(info.ready);
  else
    clock.waitFor(info.start);
  int32_t bucket = bucketOf[wait];
  markPlaced(wait);
  if (bucket == kNone) {
    emit(DecodeStep::Run, wait);
    return release(wait);
  }
  emit(DecodeStep::Wait, bucket);
  if (result->buckets[bucket].form == BucketForm::Packed)
    emit(DecodeStep::View, bucket);
  for (NodeId member : issued[bucket].joined.front().waits)
    release(member);
}

void PartialSchedule::placeUnpack(NodeId wait) {
  clock.runUnpack(unpackCost[wait]);
  emit(DecodeStep::Unpack, wait);
  markPlaced(wait);
  auto precedes = [&](const JoinedWaits &join, NodeId other) {
    return theReference->position[join.waits.front()] < theReference->position[other];
  };
  for (NodeId member : llvm::lower_bound(issued[bucketOf[wait]].joined, wait, precedes)->waits)
    release(member);
}

void PartialSchedule::completeEarliest() {
  Ending ended = clock.takeEarliest();
  if (ended.node == kNone) {
    clock.waitUntil(ended.end);
    emit(DecodeStep::Wait, ended.bucket);
    for (const JoinedWaits &join : issued[ended.bucket].joined)
      computes.insert(join.waits.front());
    return;
  }
  if (placed[ended.node])
    return;
  // The compute lane stands still for a node whose regions wait only once that node is placed.
  bool isWait = problem.nodes[ended.node].kind == NodeKind::Wait;
  if (!isWait || !tryPlace(ended.node))
    computes.insert(ended.node);
}

/// A start has been issued, alone or in a bucket.
void PartialSchedule::leaveQueue(NodeId start, Ns end) {
  const Node &info = problem.nodes[start];
  starts.remove(start);
  updateDryness(info.lane);
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
