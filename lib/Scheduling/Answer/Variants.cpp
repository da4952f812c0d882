//===- Variants.cpp - The choice between ways to carry out a collective -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Looks choices up, carries them out, and leaves them open for bounds.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Variants.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// The ways that a bucket has: those of its key that all of its members have.
static std::vector<VariantOption> variantsOfBucket(const Problem &problem, const Bucket &bucket) {
  const MergeKey &key = problem.mergeKeys[problem.nodes[bucket.members.front()].mergeKey];
  Bytes bytes = 0;
  for (NodeId member : bucket.members)
    bytes += problem.nodes[member].bytes;
  std::vector<VariantOption> options;
  for (const KeyVariant &variant : key.variants) {
    auto has = [&](NodeId member) {
      int32_t list = problem.nodes[member].variants;
      return list != kNone && llvm::any_of(problem.startVariants[list],
                                           [&](const StartVariant &own) { return own.name == variant.name; });
    };
    if (!llvm::all_of(bucket.members, has))
      continue;
    bool isPacked = bucket.form == BucketForm::Packed;
    Ns cost = variant.cost(bytes, isPacked ? 1 : static_cast<int32_t>(bucket.members.size()));
    options.push_back({variant.name, cost, variant.demand ? variant.demand(bytes, cost) : Demand()});
  }
  return options;
}

std::vector<VariantOption> commsched::variantsOf(const Problem &problem, const Schedule &schedule, NodeId node) {
  const ExpandedProblem &expanded = schedule.expanded;
  if (NodeId origin = expanded.origin[node]; origin != kNone) {
    std::vector<VariantOption> options;
    if (int32_t list = problem.nodes[origin].variants; list != kNone)
      for (const StartVariant &variant : problem.startVariants[list])
        options.push_back(
            {variant.name, variant.cost, variant.demand == kNone ? Demand() : problem.demands[variant.demand]});
    return options;
  }
  int32_t bucket = expanded.bucketOf[node];
  if (bucket == kNone || expanded.buckets[bucket].start != node)
    return {};
  return variantsOfBucket(problem, schedule.buckets[bucket]);
}

void commsched::carryOutVariants(const Problem &problem, Schedule &schedule) {
  Problem &carried = schedule.expanded.problem;
  bool contends = carried.hasContention();
  for (auto [start, name] : schedule.variants) {
    NodeId image = schedule.imageOf(start);
    for (const VariantOption &option : variantsOf(problem, schedule, image))
      if (option.name == name) {
        carried.nodes[image].cost = option.cost;
        if (contends)
          carried.setDemand(carried.nodes[image], option.demand);
      }
  }
}

/// Lowers the shares of `least` to those of `other`, and makes the weights irrelevant.
static void lower(Demand &least, const Demand &other) {
  for (unsigned resource = 0; resource < kNumResources; ++resource)
    least.share[resource] = std::min(least.share[resource], other.share[resource]);
}

Problem commsched::withLeastVariants(const Problem &problem) {
  Problem result = problem;
  result.variantNames.clear();
  result.startVariants.clear();
  for (Node &node : result.nodes) {
    if (node.variants == kNone)
      continue;
    Demand least = problem.demandOf(node);
    for (const StartVariant &variant : problem.startVariants[node.variants]) {
      node.cost = std::min(node.cost, variant.cost);
      lower(least, variant.demand == kNone ? Demand() : problem.demands[variant.demand]);
    }
    node.variants = kNone;
    if (problem.hasContention())
      result.setDemand(node, least);
  }
  for (MergeKey &key : result.mergeKeys) {
    if (key.variants.empty())
      continue;
    MergeKey given = key;
    auto least = [given](Ns usual, Bytes bytes, int32_t members) {
      for (const KeyVariant &variant : given.variants)
        usual = std::min(usual, variant.cost(bytes, members));
      return usual;
    };
    key.cost = [given, least](Bytes bytes) { return least(given.cost(bytes), bytes, 1); };
    key.groupCost = [given, least](Bytes bytes, int32_t members) {
      return least(given.coalescedCost(bytes, members), bytes, members);
    };
    // Not used by bounds, which look at what is needed at least.
    key.leastDemand = {};
    key.leastUse = {};
    key.variants.clear();
  }
  return result;
}
