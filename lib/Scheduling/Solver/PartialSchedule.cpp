//===- PartialSchedule.cpp - What a decode has placed so far ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The moves on computes and waits, and what every move has in common: a node that has been placed leaves the reference
// and the queues, and the launch units that depended on it may become ready. IssueMoves.cpp has the moves on starts.
//
//===------------------------------------------------------------------------------------------===//

#include "PartialSchedule.h"
#include "llvm/ADT/STLExtras.h"

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
  prefetched = 0;
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
    for (NodeId start : work.starts)
      if (!theReference->terminal[start])
        prefetched -= problem.nodes[start].bytes;
  } else if (info.kind == NodeKind::Hybrid) {
    updateDryness(info.lane);
  }
  emit(DecodeStep::Run, node);
  markPlaced(node);
  release(node);
}

void PartialSchedule::completeWait(NodeId wait) {
  NodeId start = problem.nodes[wait].start;
  if (start != kNone && !theReference->terminal[start])
    prefetched -= problem.nodes[start].bytes;
  release(wait);
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
    return completeWait(wait);
  }
  emit(DecodeStep::Wait, bucket);
  if (result->buckets[bucket].form == BucketForm::Packed)
    emit(DecodeStep::View, bucket);
  for (NodeId member : issued[bucket].joined.front().waits)
    completeWait(member);
}

void PartialSchedule::placeUnpack(NodeId wait) {
  clock.runUnpack(unpackCost[wait]);
  emit(DecodeStep::Unpack, wait);
  markPlaced(wait);
  auto precedes = [&](const JoinedWaits &join, NodeId other) {
    return theReference->position[join.waits.front()] < theReference->position[other];
  };
  for (NodeId member : llvm::lower_bound(issued[bucketOf[wait]].joined, wait, precedes)->waits)
    completeWait(member);
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
