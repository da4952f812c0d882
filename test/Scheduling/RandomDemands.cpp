//===- RandomDemands.cpp - Random problems whose activities share resources -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "RandomDemands.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::test;

Demand commsched::test::randomDemand(Random &random) {
  Demand demand;
  for (unsigned resource = 0; resource < kNumResources; ++resource) {
    if (random.percent(50))
      continue;
    int64_t part = random.percent(25) ? kWhole : random.percent(20) ? random.between(1, 5) : random.below(kWhole);
    int64_t weight = random.percent(60) ? kFairWeight : int64_t(1) << random.below(20);
    demand.set(static_cast<Resource>(resource), part, weight);
  }
  return demand;
}

void commsched::test::addRandomDemands(Problem &problem, uint64_t seed) {
  Random random(seed ^ 0xde3a);
  for (Node &node : problem.nodes)
    if (node.kind != NodeKind::Wait && random.percent(85))
      problem.setDemand(node, randomDemand(random));
  problem.copyDemand = randomDemand(random);
  for (MergeKey &key : problem.mergeKeys) {
    Demand small = randomDemand(random), large = randomDemand(random);
    for (unsigned resource = 0; resource < kNumResources; ++resource)
      key.leastDemand[resource] = std::min(small.share[resource], large.share[resource]);
    // Some resources are used by the byte, as links are.
    for (unsigned resource = 0; resource < kNumResources; ++resource)
      if (random.percent(40)) {
        key.leastDemand[resource] = 0;
        key.leastUse[resource] = random.between(1, 1000) * (kUseBytes << random.below(8));
      }
    Bytes from = random.between(1, 2000);
    key.demand = [=, uses = key.leastUse](Bytes bytes, Ns cost) {
      Demand demand = bytes < from ? small : large;
      for (unsigned resource = 0; resource < kNumResources; ++resource)
        if (Wide use = uses[resource]; use > 0) {
          use = (use * bytes + kUseBytes - 1) / kUseBytes;
          Ns time = std::max<Ns>(cost, 1);
          demand.set(static_cast<Resource>(resource),
                     static_cast<int64_t>(std::min<Wide>((use + time - 1) / time, kWhole)));
        }
      return demand;
    };
  }
}

std::vector<int64_t> commsched::test::ratesByLevel(const std::vector<Demand> &demands) {
  std::vector<int64_t> rates(demands.size(), kWhole);
  for (unsigned resource = 0; resource < kNumResources; ++resource) {
    // A level at which somebody is satisfied: need / weight. Between two of them, what is poured grows linearly.
    std::vector<std::pair<Wide, Wide>> levels;
    Wide needed = 0;
    for (const Demand &demand : demands)
      if (demand.share[resource] > 0) {
        levels.emplace_back(demand.share[resource], demand.weight[resource]);
        needed += demand.share[resource];
      }
    if (needed <= kWhole)
      continue;
    std::sort(levels.begin(), levels.end(), [](auto a, auto b) { return a.first * b.second < b.first * a.second; });
    // The highest of these levels at which there is enough.
    std::pair<Wide, Wide> full = {0, 1};
    for (auto level : levels) {
      Wide poured = 0; // times level.second
      for (const Demand &demand : demands)
        poured += std::min<Wide>(demand.share[resource] * level.second, demand.weight[resource] * level.first);
      if (poured <= kWhole * level.second)
        full = level;
    }
    Wide satisfied = 0, weights = 0;
    auto isSatisfied = [&](const Demand &demand) {
      return demand.share[resource] * full.second <= demand.weight[resource] * full.first;
    };
    for (const Demand &demand : demands) {
      if (isSatisfied(demand))
        satisfied += demand.share[resource];
      else
        weights += demand.weight[resource];
    }
    for (size_t at = 0; at < demands.size(); ++at)
      if (!isSatisfied(demands[at])) {
        Wide rate =
            kWhole * (kWhole - satisfied) * demands[at].weight[resource] / (weights * demands[at].share[resource]);
        rates[at] = std::max<int64_t>(1, std::min<int64_t>(rates[at], static_cast<int64_t>(rate)));
      }
  }
  return rates;
}
