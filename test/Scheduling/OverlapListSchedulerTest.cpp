//===- OverlapListSchedulerTest.cpp - The list scheduler against its rule ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "Check/OrderVerifier.h"
#include "RandomProblem.h"
#include "SeedRuleOracle.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

RandomOptions listShape(Random &random) {
  RandomOptions shape;
  shape.nodes = static_cast<int32_t>(random.between(2, 40));
  shape.chanceOfStart = static_cast<int32_t>(random.between(5, 50));
  shape.collectiveOrder = static_cast<CollectiveOrder>(random.below(3));
  return shape;
}

// Each of the eight switch settings gives the order of the rule, and a legal one.
TEST(OverlapListScheduler, IsTheRuleOnRandomPrograms) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Random random(seed);
    Problem problem = randomProblem(seed, listShape(random));
    Order order = random.percent(60) ? identityOrder(problem) : randomOrder(problem, random);
    for (int setting = 0; setting < 8; ++setting) {
      OverlapListOptions options = {(setting & 1) != 0, (setting & 2) != 0, (setting & 4) != 0};
      Order scheduled = scheduleForOverlap(problem, order, options).order;
      ASSERT_EQ(scheduled, oracleScheduleForOverlap(problem, order, options)) << "seed " << seed << " " << setting;
      ASSERT_EQ(verifyOrder(problem, scheduled, {}), "") << "seed " << seed;
      if (setting == 0)
        ASSERT_EQ(scheduled, order) << "seed " << seed;
    }
  }
}

// Raising what is raised, or sinking what is sunk, changes nothing; nor do collectives pass each other when raised.
TEST(OverlapListScheduler, RaisingAndSinkingAreIdempotent) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Random random(seed);
    Problem problem = randomProblem(seed, listShape(random));
    for (const OverlapListOptions &options : {kRaiseStarts, kSinkWaits}) {
      Order once = scheduleForOverlap(problem, identityOrder(problem), options).order;
      ASSERT_EQ(scheduleForOverlap(problem, once, options).order, once) << "seed " << seed;
    }
    Order raised = scheduleForOverlap(problem, identityOrder(problem), kRaiseStarts).order;
    ScheduleRequirements sameOrder;
    sameOrder.collectiveOrder = CollectiveOrder::Program;
    ASSERT_EQ(verifyOrder(problem, raised, sameOrder), "") << "seed " << seed;
  }
}

} // namespace
