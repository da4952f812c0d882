//===- CostScale.cpp - The same block with other times of its collectives ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/CostScale.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// Scales what does not need the costs of buckets.
static void scaleTimes(Problem &problem, CostScale scale) {
  for (Node &node : problem.nodes) {
    if (node.kind == NodeKind::Start)
      node.cost = scaleTime(node.cost, scale);
    node.ready = scaleTime(node.ready, scale);
  }
  for (Ns &busy : problem.busyUntil)
    busy = scaleTime(busy, scale);
}

static std::function<Ns(Bytes, int32_t)> scaled(const std::function<Ns(Bytes, int32_t)> &cost, CostScale scale) {
  if (!cost)
    return nullptr;
  return [cost, scale](Bytes bytes, int32_t members) { return scaleTime(cost(bytes, members), scale); };
}

Problem commsched::scaleCollectives(const Problem &problem, CostScale scale) {
  Problem result = problem;
  if (scale == kScaleOne)
    return result;
  scaleTimes(result, scale);
  for (MergeKey &key : result.mergeKeys) {
    key.cost = [cost = key.cost, scale](Bytes bytes) { return scaleTime(cost(bytes), scale); };
    key.groupCost = scaled(key.groupCost, scale);
    for (KeyVariant &variant : key.variants)
      variant.cost = scaled(variant.cost, scale);
  }
  for (std::vector<StartVariant> &variants : result.startVariants)
    for (StartVariant &variant : variants)
      variant.cost = scaleTime(variant.cost, scale);
  return result;
}

std::vector<Ns> commsched::playAtScales(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown,
                                        llvm::ArrayRef<CostScale> scales) {
  Problem scaledProblem = problem;
  std::vector<Ns> makespans;
  for (CostScale scale : scales) {
    scaledProblem.nodes = problem.nodes;
    scaledProblem.busyUntil = problem.busyUntil;
    scaleTimes(scaledProblem, scale);
    makespans.push_back(makespanOf(scaledProblem, order, slowDown));
  }
  return makespans;
}
