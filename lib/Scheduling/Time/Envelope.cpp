//===- Envelope.cpp - Bounds on the makespan of one order ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Time/Envelope.h"
#include "ContentionClock.h"

using namespace commsched;

/// The worst that each lane can do to others: of each resource the largest share and the largest weight. By lane.
static std::vector<Demand> worstDemands(const Problem &problem) {
  std::vector<Demand> worst(problem.numLanes());
  auto raise = [&](LaneId lane, const Demand &demand) {
    for (unsigned resource = 0; resource < kNumResources; ++resource) {
      worst[lane].share[resource] = std::max(worst[lane].share[resource], demand.share[resource]);
      worst[lane].weight[resource] = std::max(worst[lane].weight[resource], demand.weight[resource]);
    }
  };
  for (const Node &node : problem.nodes)
    raise(node.kind == NodeKind::Start ? node.lane : kComputeLane, problem.demandOf(node));
  return worst;
}

/// The makespan with every node at the rate that it has beside the worst that all other lanes can do. What others need,
/// and their weights, never raise a rate, and longer nodes never shorten an undisturbed order.
static Ns mostContendedMakespan(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  std::vector<Demand> worst = worstDemands(problem);
  Problem slowed = problem;
  slowed.demands.clear();
  Wide total = 0;
  for (Node &node : slowed.nodes) {
    std::vector<const Demand *> others;
    for (LaneId lane = 0; lane < problem.numLanes(); ++lane)
      if (lane != (node.kind == NodeKind::Start ? node.lane : kComputeLane))
        others.push_back(&worst[lane]);
    if (node.demand != kNone)
      node.cost = mulDivUp(node.cost, kWhole, rateBeside(others, problem.demandOf(node)));
    node.demand = kNone;
    total += static_cast<Wide>(node.cost) + node.issue;
  }
  return total > kMaxTotalNs ? kMaxTotalNs : undisturbedMakespanOf(slowed, order);
}

Ns commsched::largestMakespan(const Problem &longest, llvm::ArrayRef<NodeId> order) {
  return longest.hasContention() ? mostContendedMakespan(longest, order) : makespanOf(longest, order);
}
