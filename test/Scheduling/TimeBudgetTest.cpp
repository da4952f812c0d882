//===- TimeBudgetTest.cpp - Tests of the lowest peak for a given time -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compared with all orders of small problems, and with the fastest answer of larger ones.
//
//===------------------------------------------------------------------------------------------===//

#include "AllOrders.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// The lowest peak of all orders that take at most `most`, without buckets; none if there are too many orders.
std::optional<Bytes> lowestPeakOfAll(const Problem &problem, Ns most) {
  constexpr int64_t kMostVisited = 300000;
  int64_t visited = 0;
  Bytes peak = kUnlimited;
  AllOrders(problem, [&](const Order &order) {
    if (++visited > kMostVisited || makespanOf(problem, order) > most)
      return false;
    if (order.size() == problem.nodes.size())
      peak = std::min(peak, peakOf(problem, order));
    return true;
  });
  return visited > kMostVisited ? std::nullopt : std::optional(peak);
}

Problem smallProblem(uint64_t seed) {
  RandomOptions shape;
  shape.nodes = 8;
  shape.commLanes = 2;
  shape.chanceOfStart = 40;
  return randomProblem(seed, shape);
}

// Every answer is at the lowest peak of all orders.
TEST(TimeBudget, FindsTheLowestPeakWhereSmall) {
  int64_t tried = 0, lowest = 0, lower = 0;
  for (uint64_t seed = 0; seed < portion(200u); ++seed) {
    Problem problem = smallProblem(seed);
    ScheduleOptions options;
    options.bucketing = false;
    options.effort = 20000;
    const Schedule fastest = schedule(problem, options);
    options.timeBudgetRatio = 0.25 * static_cast<double>(seed % 3);
    const Schedule answer = schedule(problem, options);
    const Ns most = fastest.makespan + fastest.makespan * static_cast<Ns>(seed % 3) / 4;
    ASSERT_EQ(answer.defect, "") << seed;
    ASSERT_LE(answer.makespan, most) << seed;
    ASSERT_LE(answer.peak, fastest.peak) << seed;
    ASSERT_EQ(answer.limit, fastest.limit) << seed;
    ASSERT_EQ(verify(problem, answer, {answer.limit, options.collectiveOrder}), "") << seed;
    const std::optional<Bytes> least = lowestPeakOfAll(problem, most);
    if (!least)
      continue;
    ASSERT_GE(answer.peak, *least) << seed;
    ++tried;
    lowest += answer.peak == *least;
    lower += answer.peak < fastest.peak;
  }
  EXPECT_GE(tried, leastOf(100));
  EXPECT_GE(lower, leastOf(25));
  EXPECT_EQ(lowest, tried);
}

// With buckets and other scales, under a limit: the claims hold, and a larger budget never ends at a higher peak than
// the fastest answer's.
TEST(TimeBudget, TradesTimeForMemory) {
  int64_t lower = 0;
  for (uint64_t seed = 0; seed < portion(24u); ++seed) {
    RandomOptions shape;
    shape.nodes = 40;
    Problem problem = randomProblem(seed, shape);
    ScheduleOptions options;
    options.effort = 5000;
    options.objective = Objective::Robust;
    const Schedule fastest = schedule(problem, options);
    options.timeBudgetRatio = 0.1;
    const Schedule answer = schedule(problem, options);
    ASSERT_EQ(verify(problem, answer, {answer.limit, options.collectiveOrder}), "") << seed;
    ASSERT_LE(answer.makespan, fastest.makespan + fastest.makespan / 10) << seed;
    ASSERT_LE(answer.peak, fastest.peak) << seed;
    ASSERT_EQ(answer.scales.size(), fastest.scales.size()) << seed;
    for (size_t at = 0; at < answer.scales.size(); ++at) {
      const Problem &carried = answer.carriedOut(problem);
      ASSERT_EQ(answer.scales[at].makespan,
                makespanOf(scaleCollectives(carried, answer.scales[at].scale), answer.order))
          << seed;
      ASSERT_EQ(answer.scales[at].bound, fastest.scales[at].bound) << seed;
    }
    lower += answer.peak < fastest.peak;
  }
  EXPECT_GE(lower, leastOf(8));
}

// A limit that nothing meets leaves the answer of the search for the fastest one, which says so.
TEST(TimeBudget, KeepsALimitThatIsNotMet) {
  Problem problem = smallProblem(3);
  ScheduleOptions options;
  options.memory.limit = 0;
  options.timeBudgetRatio = 1;
  const Schedule answer = schedule(problem, options);
  EXPECT_FALSE(answer.isWithinLimit());
  EXPECT_EQ(answer.limit, 0);
}

} // namespace
