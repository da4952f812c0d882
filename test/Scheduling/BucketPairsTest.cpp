//===- BucketPairsTest.cpp - Tests of bounds for nodes that need two collectives -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 23. The truth is the optimum of all bucketings and all orders.
//
//===------------------------------------------------------------------------------------------===//

#include "CollectiveBuilder.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// Collectives of one key or two at various places, and computes of which many need two of them or more.
Problem drawProblem(uint64_t seed) {
  Random random(seed);
  CollectiveBuilder builder;
  Problem &problem = builder.problem;
  const Ns latency = random.between(5, 40), perMember = random.between(0, latency);
  const bool hasLarge = random.percent(50);
  problem.copyCost = [launch = random.between(0, 3)](Bytes, Bytes written) {
    return launch + written / (kSmallUnpackBytes / 16);
  };
  const bool isReduced = random.percent(20), areTwo = random.percent(25);
  problem.mergeKeys.push_back(
      keyOf(isReduced ? CollectiveKind::ReduceScatter : CollectiveKind::AllGather, latency, perMember));
  if (areTwo)
    problem.mergeKeys.push_back(keyOf(CollectiveKind::AllReduce, latency, perMember));
  for (MergeKey &key : problem.mergeKeys)
    key.cap = random.percent(20) ? 16 * random.between(20, 80) : -1;
  std::vector<NodeId> waits, computes;
  const int64_t collectives = random.between(2, 4);
  const bool keepsOrder = random.percent(15);
  for (int64_t index = 0; index < collectives; ++index) {
    const Bytes bytes = 16 * (random.percent(40) ? random.between(20, 60) : random.between(1, 12));
    std::vector<NodeId> preds;
    if (!computes.empty() && random.percent(30))
      preds.push_back(computes[random.below(computes.size())]);
    if (keepsOrder && !waits.empty())
      preds.push_back(problem.nodes[waits.back()].start);
    const Bytes output = hasLarge && random.percent(50) ? kSmallUnpackBytes + random.below(kSmallUnpackBytes) : 64;
    const int32_t key = areTwo && random.percent(30) ? 1 : 0;
    waits.push_back(builder.collective(key, bytes, kNone, 16, output, true, preds));
    for (int64_t more = random.between(index + 1 == collectives ? 1 : 0, 2); more > 0; --more) {
      std::vector<NodeId> needed;
      for (NodeId wait : waits)
        if (random.percent(45))
          needed.push_back(wait);
      for (NodeId compute : computes)
        if (random.percent(50))
          needed.push_back(compute);
      computes.push_back(builder.compute(random.between(1, 60), needed, {}));
    }
  }
  return builder.take();
}

// Tests against all bucketings and orders of small problems that nothing is below the bound, without a limit and with
// one.
TEST(BucketPairs, NoBucketingIsBelow) {
  int32_t raised = 0, met = 0;
  for (uint64_t seed = 0; seed < numProblems("COMMSCHED_PAIR_PROBLEMS", 2000); ++seed) {
    Problem problem = drawProblem(seed);
    BoundOptions limited;
    limited.limit = peakOf(problem, identityOrder(problem));
    LowerBound bound = jointLowerBound(problem, limited);
    for (Bytes limit : {kUnlimited, limited.limit}) {
      Ns below = limit == kUnlimited ? bound.makespan : bound.withLimit;
      ASSERT_EQ(optimum(problem, limit, below, 200), below) << "seed " << seed;
    }
    // The certificate's arguments know of no pairs.
    raised += bound.makespan > proveBound(problem, {}, /*bucketing=*/true).makespan;
    met += seed < 500 && optimum(problem, kUnlimited, bound.makespan + 1, 200) == bound.makespan;
  }
  EXPECT_GE(raised, 300);
  EXPECT_GE(met, 150);
}

/// Gathers of 100 and 20 bytes at 40 + bytes ns; of a coalesced bucket each member takes `perMember` ns more. What the
/// first one brings is computed with for `behind` ns, and what both bring for 200 ns. A copy takes `copy` ns. With
/// `hasThird` nothing needs a third gather of 10 bytes.
Problem twoGathers(Ns behind, Ns perMember, Ns copy, bool hasThird = false) {
  CollectiveBuilder builder;
  Problem &problem = builder.problem;
  MergeKey key;
  key.lane = 1;
  key.ranks = 4;
  key.cost = [](Bytes bytes) { return Ns(40 + bytes); };
  key.groupCost = [=](Bytes bytes, int32_t members) { return Ns(40 + bytes + perMember * members); };
  problem.mergeKeys.push_back(key);
  problem.copyCost = [=](Bytes, Bytes written) { return written > kSmallUnpackBytes ? copy : 0; };
  NodeId large = builder.collective(0, 100, kNone, 25, 2 * kSmallUnpackBytes, true, {});
  NodeId small = builder.collective(0, 20, kNone, 5, 64, true, {});
  if (hasThird)
    builder.collective(0, 10, kNone, 5, 64, true, {});
  NodeId compute = builder.compute(behind, {large}, {});
  builder.compute(200, {compute, small}, {});
  return builder.take();
}

// Tests the example of Lemma 23: apart, the gathers take 140 + 60 ns; together 160 ns, and then the compute behind the
// first one has not run.
TEST(BucketPairs, ApartOrTogether) {
  struct Case {
    Ns behind, perMember, copy, best;
  };
  for (auto [behind, perMember, copy, best] : {Case{50, 0, 0, 400},    // apart; one bucket makes 410
                                               Case{30, 0, 0, 390},    // one bucket
                                               Case{30, 100, 0, 390},  // one packed bucket
                                               Case{30, 100, 8, 398},  // one packed bucket, with an unpack
                                               Case{30, 100, 20, 400}, // apart; a packed bucket makes 410
                                               Case{30, 3, 20, 396}})  // one coalesced bucket
  {
    Problem problem = twoGathers(behind, perMember, copy);
    EXPECT_EQ(optimum(problem, kUnlimited, 1000, 1000), best) << behind << ' ' << perMember << ' ' << copy;
    EXPECT_EQ(jointLowerBound(problem).makespan, best) << behind << ' ' << perMember << ' ' << copy;
    // The path through the first gather, which is all that certificates see.
    EXPECT_EQ(proveBound(problem, {}, /*bucketing=*/true).makespan, 340 + behind);
  }
}

// Tests that members which fit into no bucket together stay apart, even if each fits into one with a third member.
TEST(BucketPairs, ACapKeepsApart) {
  for (auto [cap, best] : {std::pair<Bytes, Ns>(-1, 361), {120, 361}, {119, 400}}) {
    Problem problem = twoGathers(/*behind=*/1, /*perMember=*/0, /*copy=*/0, /*hasThird=*/true);
    problem.mergeKeys.front().cap = cap;
    EXPECT_EQ(optimum(problem, kUnlimited, 1000, 1000), best);
    EXPECT_EQ(jointLowerBound(problem).makespan, best);
  }
}

} // namespace
