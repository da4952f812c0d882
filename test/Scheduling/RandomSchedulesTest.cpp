//===- RandomSchedulesTest.cpp - The solver's promises on random problems ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Never above the limit, never slower than the given order, always legal, in every mode; and how far from the true
// optimum on problems that are small enough to try every order. COMMSCHED_RANDOM_PROBLEMS sets how many problems are
// drawn (Models.md tells of a run over 100,000), COMMSCHED_RANDOM_FIRST the first seed. A failure prints the
// problem as the text of an IR test.
//
//===------------------------------------------------------------------------------------------===//

#include "AllOrders.h"
#include "CheckResult.h"
#include "Problem/ProblemPrinter.h"
#include "RandomDemands.h"
#include "RandomProblem.h"
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

using namespace commsched;
using namespace commsched::test;

namespace {

uint64_t fromEnvironment(const char *name, uint64_t otherwise) {
  const char *value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

RandomOptions optionsFor(uint64_t seed) {
  RandomOptions options;
  // Small ones mostly, some of a few hundred nodes, and a few of thousands.
  options.nodes = 1 + static_cast<int32_t>(seed % 1009 == 17 ? 5000 : seed % 101 == 0 ? 100 + seed % 300 : seed % 50);
  options.commLanes = 1 + static_cast<int32_t>(seed % 3);
  options.collectiveOrder = static_cast<CollectiveOrder>(seed % 11 < 3 ? seed % 11 : 2);
  options.chanceOfPinned = seed % 9 == 0 ? 20 : 0;
  options.chanceOfStart = seed % 4 == 0 ? 70 : 30;
  options.maxBytes = seed % 5 == 0 ? 3 * kSmallUnpackBytes : 640;
  // Sizes and times of real programs: up to a gigabyte, and milliseconds.
  if (seed % 7 == 3) {
    options.maxBytes = Bytes(1) << 30;
    options.maxCost = 3000000;
    options.maxIssue = 5000;
  }
  return options;
}

/// Options in which every mode of the solver meets every other.
ScheduleOptions modesFor(uint64_t seed, const RandomOptions &shape) {
  Random random(seed * 31 + 7);
  ScheduleOptions options;
  options.collectiveOrder = shape.collectiveOrder;
  options.bucketing = !random.percent(30);
  options.memory.ppm = random.percent(20) ? random.below(600000) : 0;
  options.effort = random.percent(10) ? 0 : random.between(10, 80) * shape.nodes;
  if (random.percent(20))
    options.bucketCap = 64 * random.between(2, 40);
  return options;
}

TEST(RandomSchedules, KeepTheirPromises) {
  uint64_t count = fromEnvironment("COMMSCHED_RANDOM_PROBLEMS", portion(3000)),
           first = fromEnvironment("COMMSCHED_RANDOM_FIRST", 0);
  uint64_t shorter = 0, buckets = 0, limited = 0, reached = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RandomOptions shape = optionsFor(seed);
    Problem problem = randomProblem(seed, shape);
    if (seed % 4 == 1)
      addRandomDemands(problem, seed);
    ScheduleOptions options = modesFor(seed, shape);
    if (seed % 8 == 0) {
      // A limit below what the given order needs.
      Bytes peak = peakOf(problem, identityOrder(problem)), lowest = peakLowerBound(problem);
      options.memory.limit = (peak + lowest) / 2;
      options.effort = (shape.nodes > 1000 ? 40 : 400) * shape.nodes;
      limited += lowest < peak;
    }
    Schedule result = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result)) << "seed " << seed << "\n"
                                                                   << printAsMlir(problem).text;
    shorter += result.makespan < result.inputMakespan;
    buckets += result.buckets.size();
    reached += result.inputPeak > result.limit && result.isWithinLimit();
  }
  printf("%llu problems: %llu shorter, %llu buckets; %llu asked for less than their peak, %llu got it\n",
         static_cast<unsigned long long>(count), static_cast<unsigned long long>(shorter),
         static_cast<unsigned long long>(buckets), static_cast<unsigned long long>(limited),
         static_cast<unsigned long long>(reached));
  EXPECT_GT(shorter * 3, count);
  EXPECT_GT(buckets * 20, count);
  EXPECT_GT(reached * 100, limited * 60);
}

/// The shortest makespan of all orders within a limit, without buckets; none if there are too many orders.
std::optional<Ns> shortestOfAll(const Problem &problem, Bytes limit) {
  constexpr int64_t kMostVisited = 300000;
  int64_t visited = 0;
  Ns best = std::numeric_limits<Ns>::max();
  AllOrders(problem, [&](const Order &order) {
    if (++visited > kMostVisited)
      return false;
    const Ns makespan = makespanOf(problem, order);
    if (makespan >= best)
      return false;
    if (order.size() == problem.nodes.size() && peakOf(problem, order) <= limit)
      best = makespan;
    return true;
  });
  return visited > kMostVisited ? std::nullopt : std::optional(best);
}

TEST(RandomSchedules, AreOptimalWhereSmall) {
  std::vector<int64_t> gaps;
  uint64_t count = fromEnvironment("COMMSCHED_RANDOM_PROBLEMS", portion(3000)) / 8;
  uint64_t first = fromEnvironment("COMMSCHED_RANDOM_FIRST", 0);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RandomOptions shape;
    shape.nodes = 8;
    shape.commLanes = 2;
    shape.chanceOfStart = 40;
    Problem problem = randomProblem(seed, shape);
    const std::optional<Ns> best = shortestOfAll(problem, peakOf(problem, identityOrder(problem)));
    if (!best || *best == 0)
      continue;
    ScheduleOptions options;
    options.bucketing = false;
    options.effort = 20000;
    Schedule result = schedule(problem, options);
    ASSERT_GE(result.makespan, *best) << "seed " << seed << "\n" << printAsMlir(problem).text;
    gaps.push_back((result.makespan - *best) * 1000 / *best);
  }
  ASSERT_GT(gaps.size() * 2, count);
  std::sort(gaps.begin(), gaps.end());
  RecordProperty("median_gap_permille", std::to_string(gaps[gaps.size() / 2]));
  RecordProperty("p90_gap_permille", std::to_string(gaps[gaps.size() * 9 / 10]));
  RecordProperty("worst_gap_permille", std::to_string(gaps.back()));
  printf("gap to the optimum over %zu problems, permille: median %lld, 90 %% %lld, worst %lld\n", gaps.size(),
         static_cast<long long>(gaps[gaps.size() / 2]), static_cast<long long>(gaps[gaps.size() * 9 / 10]),
         static_cast<long long>(gaps.back()));
  EXPECT_EQ(gaps.back(), 0) << "a block of this size is searched exactly";
}

} // namespace
