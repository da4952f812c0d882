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
  slack = policy.slack;
  problem.beginLanes(laneFree);
  ends.assign(problem.size(), 0);
  inFlight = {};
}

Ns Clock::durationOf(NodeId node) const {
  const Node &info = problem.nodes[node];
  if (info.region != kNone)
    return problem.beginOfRegion(info, compute, laneFree, ends) - compute + info.cost;
  if (info.kind == NodeKind::Hybrid)
    return std::max<Ns>(laneFree[info.lane] - compute, 0) + info.cost;
  return info.cost;
}

void Clock::runCompute(NodeId node) {
  const Node &info = problem.nodes[node];
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

Ns Clock::makespan() const { return std::max(compute, *std::max_element(laneFree.begin(), laneFree.end())); }
