//===- WindowSearchTest.cpp - Tests for exact orders of windows -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Windows are compared with all orders of what stands in them, each timed and weighed within the whole order by the
// models.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/WindowSearch.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "Model/OrderVerifier.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <limits>

using namespace commsched;
using namespace commsched::test;

namespace {

constexpr int64_t kManySteps = 1000000;

/// All orders of the positions [first, last) of an order, played as a whole.
class AllOrders {
public:
  AllOrders(const Problem &problem, llvm::ArrayRef<NodeId> order, int32_t first, int32_t last, Bytes limit)
      : problem(problem), order(order.begin(), order.end()), last(last), limit(limit) {
    extend(first);
  }
  /// The shortest makespan within the limit, ns.
  Ns shortest() const { return best; }

private:
  /// Whether a node that comes behind `position` has to precede the one there.
  bool isTooEarly(int32_t position) const {
    return llvm::any_of(problem.preds[order[position]], [&](NodeId pred) {
      return llvm::is_contained(llvm::ArrayRef<NodeId>(order).slice(position, last - position), pred);
    });
  }
  void extend(int32_t position) {
    if (position == last) {
      if (peakOf(problem, order) <= limit)
        best = std::min(best, makespanOf(problem, order));
      return;
    }
    for (int32_t other = position; other < last; ++other) {
      std::swap(order[position], order[other]);
      if (!isTooEarly(position))
        extend(position + 1);
      std::swap(order[position], order[other]);
    }
  }

  const Problem &problem;
  Order order;
  int32_t last;
  Bytes limit;
  Ns best = std::numeric_limits<Ns>::max();
};

void expectALegalOrder(const Problem &problem, const WindowSearch &search, Bytes limit) {
  Order order(search.order());
  ASSERT_EQ(verifyOrder(problem, order, ScheduleRequirements()), "");
  ASSERT_EQ(search.makespan(), makespanOf(problem, order));
  ASSERT_LE(peakOf(problem, order), limit);
}

// Tests that the order of a window is the best of all within the limit, whatever stands before and behind it, and that
// nothing else moves.
TEST(WindowSearch, IsTheBestOfAllOrders) {
  int32_t shorter = 0, byMemory = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    RandomOptions options;
    options.nodes = 10 + static_cast<int32_t>(seed % 20);
    options.commLanes = 1 + static_cast<int32_t>(seed % 3);
    options.chanceOfRegion = seed % 4 == 0 ? 20 : 3;
    Problem problem = randomProblem(seed, options);
    Random random(seed);
    Order given = randomOrder(problem, random);
    const Bytes limit = peakOf(problem, given) + 64 * random.below(3);
    const auto width = static_cast<int32_t>(2 + random.below(6));
    const auto first = static_cast<int32_t>(random.below(problem.size()));
    const int32_t last = std::min<int32_t>(first + width, problem.size());
    WindowSearch search(problem, given, limit);
    int64_t steps = kManySteps;
    ASSERT_TRUE(search.search(first, last, steps)) << "seed " << seed;
    ASSERT_LT(steps, kManySteps);
    const Ns shortest = AllOrders(problem, given, first, last, limit).shortest();
    ASSERT_EQ(search.makespan(), shortest) << "seed " << seed << ", window " << first << " to " << last;
    expectALegalOrder(problem, search, limit);
    for (int32_t at = 0; at < problem.size(); ++at) {
      if (at < first || at >= last) {
        ASSERT_EQ(search.order()[at], given[at]) << "seed " << seed;
      }
    }
    shorter += search.makespan() < makespanOf(problem, given);
    byMemory += AllOrders(problem, given, first, last, kUnlimited).shortest() < shortest;
  }
  EXPECT_GT(shorter, 200);
  EXPECT_GT(byMemory, 20);
}

// Tests that windows that follow each other see what those before them changed.
TEST(WindowSearch, IsTheBestAfterOtherWindows) {
  int32_t shorter = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomOptions options;
    options.nodes = 60;
    Problem problem = randomProblem(seed, options);
    Random random(seed);
    Order given = randomOrder(problem, random);
    const Bytes limit = peakOf(problem, given);
    WindowSearch search(problem, given, limit);
    for (int32_t window = 0; window < 12; ++window) {
      const auto first = static_cast<int32_t>(random.below(problem.size() - 5));
      Order before(search.order());
      const Ns was = search.makespan();
      int64_t steps = kManySteps;
      ASSERT_TRUE(search.search(first, first + 5, steps)) << "seed " << seed;
      ASSERT_EQ(search.makespan(), AllOrders(problem, before, first, first + 5, limit).shortest()) << "seed " << seed;
      expectALegalOrder(problem, search, limit);
      shorter += search.makespan() < was;
    }
  }
  EXPECT_GT(shorter, 100);
}

// Tests that a window that is a whole small problem gives its optimum.
TEST(WindowSearch, AgreesWithTheExactSearch) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomOptions options;
    options.nodes = 12;
    Problem problem = randomProblem(seed, options);
    const Order given = identityOrder(problem);
    const Bytes limit = peakOf(problem, given);
    WindowSearch search(problem, given, limit);
    int64_t steps = kManySteps, stepsOfAll = kManySteps;
    ASSERT_TRUE(search.search(0, problem.size(), steps)) << "seed " << seed;
    ExactSearch exact(problem, limit, makespanOf(problem, given) + 1);
    ASSERT_TRUE(exact.run(stepsOfAll)) << "seed " << seed;
    EXPECT_EQ(search.makespan(), exact.makespan()) << "seed " << seed;
  }
}

// Tests that sweeps shorten long orders, end with their steps, at their target, and where no window helps.
TEST(WindowSearch, SweepsShortenLongOrders) {
  LayeredOptions options;
  options.layers = 20;
  options.tensorParallel = true;
  Problem problem = layeredProblem(1, options);
  Random random(1);
  const Order given = randomOrder(problem, random);
  const Bytes limit = peakOf(problem, given);
  const Ns before = makespanOf(problem, given);

  WindowSearch search(problem, given, limit);
  int64_t steps = 20;
  search.sweep(10, steps, 0);
  EXPECT_LE(steps, 0);
  EXPECT_GT(steps, -200);
  for (bool goesOn = true; goesOn;) {
    steps = 100 * kManySteps;
    goesOn = search.sweep(10, steps, 0);
    ASSERT_GT(steps, 0);
    expectALegalOrder(problem, search, limit);
  }
  EXPECT_LT(search.makespan(), before);

  WindowSearch aimed(problem, given, limit);
  const Ns target = before - (before - search.makespan()) / 2;
  for (bool goesOn = true; goesOn;)
    goesOn = aimed.sweep(10, steps, target);
  EXPECT_LE(aimed.makespan(), target);
  EXPECT_GT(aimed.makespan(), search.makespan());
}

} // namespace
