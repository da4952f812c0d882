//===- Clock.cpp - Lane times of a decode, and what is in flight ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The rules by which a compute, a hybrid, and a node with communication in its regions move the lanes.
//
//===------------------------------------------------------------------------------------------===//

#include "Clock.h"
#include <algorithm>

using namespace commsched;

void Clock::reset(const Reference &reference, const Policy &policy) {
  compute = 0;
  referenceCompute = remainingCompute = reference.computeBefore.back();
  remainingFusable = 0;
  for (NodeId node = 0; node < problem.size(); ++node)
    remainingFusable += facts.isFusable(node) ? problem.nodes[node].cost : 0;
  horizon = mulDiv(facts.horizonBase(), policy.horizon, kPermille);
  problem.beginLanes(laneFree);
  laneLeft = facts.load;
  ends.assign(problem.size(), 0);
  tickets.assign(problem.size(), kNone);
  lastTicket = kNone;
  if (shared)
    shared->reset();
  inFlight = {};
}

void Clock::advanceTo(Ns time) {
  compute = time;
  if (!shared)
    return;
  shared->advanceTo(time);
  compute = shared->now();
}

Ns Clock::durationOf(NodeId node) const {
  const Node &info = problem.nodes[node];
  Ns begin = compute;
  if (info.region != kNone) {
    begin = std::max(begin, readyTimeOf(info));
    for (LaneId lane : problem.regions[info.region].lanes)
      begin = std::max(begin, freeAt(lane));
  } else if (info.kind == NodeKind::Hybrid) {
    begin = beginOn(info.lane);
  }
  return begin - compute + info.cost;
}

Ns Clock::readyTimeOf(const Node &node) const {
  if (node.region == kNone)
    return 0;
  Ns ready = node.ready;
  for (NodeId start : problem.regions[node.region].starts)
    ready = std::max(ready, endOf(start));
  return ready;
}

void Clock::waitFor(NodeId start) {
  if (!shared)
    return waitUntil(ends[start]);
  shared->finish(tickets[start]);
  compute = shared->now();
}

Ns Clock::occupy(LaneId lane, Ns cost, const Demand &demand) {
  if (!shared)
    return laneFree[lane] = beginOn(lane) + cost;
  lastTicket = shared->issue(lane, cost, demand);
  return shared->leastEndOf(lastTicket);
}

/// When something in flight ends, ns; `endOf` says when a collective ends.
template <class EndOf> Ns Clock::endOf(const Ending &what, EndOf endOf) const {
  if (what.node == kNone)
    return endOf(what.ticket);
  const Node &node = problem.nodes[what.node];
  if (node.region == kNone)
    return node.start == kNone ? node.ready : endOf(tickets[node.start]);
  Ns end = node.ready;
  for (NodeId start : problem.regions[node.region].starts)
    end = std::max(end, endOf(tickets[start]));
  return end;
}

/// Puts the first of what is in flight back with a later end.
void Clock::defer(Ns end) {
  Ending first = inFlight.top();
  inFlight.pop();
  first.end = end;
  inFlight.push(first);
}

bool Clock::hasEnded() {
  for (; !inFlight.empty() && inFlight.top().end <= compute;) {
    Ns end = shared ? endOf(inFlight.top(), [&](auto ticket) { return shared->leastEndOf(ticket); }) : 0;
    if (end <= compute)
      return true;
    defer(end);
  }
  return false;
}

const Ending &Clock::earliest() {
  while (shared) {
    Ns end = endOf(inFlight.top(), [&](auto ticket) { return shared->endIfIdle(ticket); });
    if (end <= inFlight.top().end)
      break;
    defer(end);
  }
  return inFlight.top();
}

void Clock::runCompute(NodeId node) {
  const Node &info = problem.nodes[node];
  if (shared) {
    llvm::ArrayRef<LaneId> lanes = info.region != kNone ? llvm::ArrayRef<LaneId>(problem.regions[info.region].lanes)
                                   : info.kind == NodeKind::Hybrid ? llvm::ArrayRef<LaneId>(info.lane)
                                                                   : llvm::ArrayRef<LaneId>();
    for (LaneId lane : lanes)
      shared->clear(lane);
    if (info.region != kNone) {
      shared->advanceTo(info.ready);
      for (NodeId start : problem.regions[info.region].starts)
        shared->finish(tickets[start]);
    }
    compute = shared->run(info.cost, problem.demandOf(info));
    return leaveRemaining(node);
  }
  compute += durationOf(node);
  leaveRemaining(node);
  if (info.region != kNone)
    for (LaneId lane : problem.regions[info.region].lanes)
      laneFree[lane] = compute;
  else if (info.kind == NodeKind::Hybrid)
    laneFree[info.lane] = compute;
}

void Clock::leaveRemaining(NodeId node) {
  Ns cost = problem.nodes[node].cost;
  remainingCompute -= cost;
  if (facts.isFusable(node))
    remainingFusable -= cost;
}

Ns Clock::makespan() {
  return shared ? shared->drain() : std::max(compute, *std::max_element(laneFree.begin(), laneFree.end()));
}
