//===- BucketedOrderTest.cpp - Tests for changes of the buckets of an order -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// After random changes, the times and the live bytes of an order are those of its buckets carried out, and the verifier
// agrees with it. Neither shares code with the order.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Moves/BucketedOrder.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "Solver/Moves/BucketMoves.h"
#include "Solver/Moves/LocalMoves.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

DecodedSchedule scheduleOf(llvm::ArrayRef<NodeId> order) {
  DecodedSchedule result;
  for (NodeId node : order)
    result.steps.push_back({DecodeStep::Run, node});
  return result;
}

/// Expects that a schedule is legal and takes the time and the memory that it says.
void expectHolds(const Problem &problem, const DecodedSchedule &decoded, Bytes limit, CollectiveOrder mode,
                 uint64_t seed) {
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, decoded.buckets);
  ASSERT_TRUE(static_cast<bool>(expanded)) << "seed " << seed << ": " << llvm::toString(expanded.takeError());
  Schedule schedule;
  schedule.buckets = decoded.buckets;
  schedule.expanded = std::move(*expanded);
  schedule.order = orderOf(decoded, schedule.expanded);
  ASSERT_EQ(makespanOf(schedule.expanded.problem, schedule.order), decoded.makespan) << "seed " << seed;
  ASSERT_EQ(peakOf(schedule.expanded.problem, schedule.order), decoded.peak) << "seed " << seed;
  schedule.claims = {decoded.makespan, decoded.peak};
  ScheduleRequirements requirements;
  requirements.peakLimit = limit;
  requirements.collectiveOrder = mode;
  ASSERT_EQ(verify(problem, schedule, requirements), "") << "seed " << seed;
}

/// Counts of what was tried.
struct Changes {
  int32_t made = 0, formed = 0;
};

/// Tries random changes and moves, and checks the order after each that was made.
Changes changeAtRandom(const Problem &problem, Bytes limit, CollectiveOrder mode, uint64_t seed, int32_t tries) {
  BucketedOrder order(problem, /*bucketing=*/true, scheduleOf(identityOrder(problem)), limit);
  SplitMix64 random(seed);
  ScheduleFacts facts(problem, /*bucketing=*/true);
  BucketMoves moves(facts, order, random);
  Changes counts;
  for (int32_t trial = 0; trial < tries && order.mergeableStarts().size() > 1; ++trial) {
    auto from = static_cast<int32_t>(random.below(order.size()));
    int64_t work = 0;
    BucketChange change;
    bool isMade = false;
    // Now and then longer orders are allowed, so that there is no end of changes.
    Ns allowed = random.below(2) == 0 ? order.makespan() : order.makespan() * 2;
    if (random.below(2) == 0) {
      NodeId start = order.mergeableStarts()[random.below(static_cast<int64_t>(order.mergeableStarts().size()))];
      if (int32_t bucket = order.bucketOf(start); bucket != kNone)
        start = order.leaderOf(bucket);
      if (!moves.choose(start, change, work))
        continue;
      isMade = order.tryChange(change, allowed, work);
      counts.formed += isMade && !change.formed.empty();
    } else if (NodeId slot = order.order()[from]; !order.isEmpty(slot)) {
      int32_t earliest = order.earliest(slot), latest = order.latest(slot);
      EXPECT_LE(earliest, from) << "seed " << seed;
      EXPECT_GE(latest, from) << "seed " << seed;
      auto to = static_cast<int32_t>(earliest + random.below(latest - earliest + 1));
      isMade = to != from && order.tryMove(from, to, allowed);
    }
    counts.made += isMade;
    if (isMade || trial % 16 == 0)
      expectHolds(problem, order.decoded(), limit, mode, seed);
    if (testing::Test::HasFatalFailure())
      return counts;
  }
  return counts;
}

TEST(BucketedOrder, AgreesWithTheExpansion) {
  Changes all;
  for (uint64_t seed = 0; seed < portion(400u); ++seed) {
    RandomOptions options;
    options.nodes = 20 + static_cast<int32_t>(seed % 60);
    options.commLanes = 1 + static_cast<int32_t>(seed % 2);
    options.chanceOfStart = 40;
    options.chanceOfMergeable = 100;
    options.mergeKinds = 1 + static_cast<int32_t>(seed % 3);
    // Latencies make merges pay.
    options.maxCost = seed % 2 == 0 ? 20 : 200;
    options.collectiveOrder = seed % 7 == 0   ? CollectiveOrder::Program
                              : seed % 7 == 1 ? CollectiveOrder::Group
                                              : CollectiveOrder::Free;
    Problem problem = randomProblem(seed, options);
    Bytes peak = peakOf(problem, identityOrder(problem));
    Changes counts = changeAtRandom(problem, seed % 3 == 0 ? 2 * peak : peak, options.collectiveOrder, seed, 200);
    ASSERT_FALSE(HasFatalFailure());
    all.made += counts.made;
    all.formed += counts.formed;
  }
  EXPECT_GT(all.made, leastOf(10000));
  EXPECT_GT(all.formed, leastOf(1000));
}

TEST(BucketedOrder, AgreesWithTheExpansionOnLayers) {
  Problem problem = layeredProblem(5, {12, 4, 3, true, 8});
  Bytes peak = peakOf(problem, identityOrder(problem));
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Changes counts = changeAtRandom(problem, seed % 2 == 0 ? 2 * peak : peak, CollectiveOrder::Free, seed, 600);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_GT(counts.formed, 20) << "seed " << seed;
  }
}

TEST(BucketedOrder, SearchShortensAndHolds) {
  int32_t merged = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Problem problem = layeredProblem(seed, {6, 4, 3, seed % 2 == 0, 8});
    Order given = identityOrder(problem);
    Bytes limit = peakOf(problem, given);
    ScheduleFacts facts(problem, /*bucketing=*/true);
    LocalMoves moves(facts, scheduleOf(given), limit);
    int64_t steps = 20000;
    moves.run(steps, 0);
    DecodedSchedule found = moves.decoded();
    expectHolds(problem, found, limit, CollectiveOrder::Free, seed);
    EXPECT_LT(found.makespan, makespanOf(problem, given)) << "seed " << seed;
    merged += !found.buckets.empty();

    // It goes on from its own answer.
    LocalMoves further(facts, found, limit);
    EXPECT_EQ(further.makespan(), found.makespan);
    steps = 5000;
    further.run(steps, 0);
    EXPECT_LE(further.makespan(), found.makespan);
    expectHolds(problem, further.decoded(), limit, CollectiveOrder::Free, seed);
  }
  EXPECT_GT(merged, 10);
}

} // namespace
