//===- RandomDemands.cpp - Random problems whose activities share resources -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "RandomDemands.h"

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
    Bytes from = random.between(1, 2000);
    key.demand = [=](Bytes bytes, Ns) { return bytes < from ? small : large; };
  }
}
