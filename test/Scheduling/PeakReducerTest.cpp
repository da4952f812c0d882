//===- PeakReducerTest.cpp - Tests for orders with a lower peak -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Compares what is reached with the lower bound of the peak, whose code knows nothing of orders.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Moves/PeakReducer.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

void expectLegal(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  std::vector<int32_t> position(problem.size(), kNone);
  for (int32_t at = 0; at < problem.size(); ++at)
    position[order[at]] = at;
  for (NodeId node = 0; node < problem.size(); ++node) {
    ASSERT_NE(position[node], kNone);
    for (NodeId pred : problem.preds[node])
      ASSERT_LT(position[pred], position[node]);
  }
}

// Of the way from the given peak to the lower bound, which no order need reach, random problems come more than half.
TEST(PeakReducer, ComesDownOnRandomProblems) {
  Bytes given = 0, reached = 0, bound = 0;
  for (uint64_t seed = 0; seed < portion(200u); ++seed) {
    RandomOptions options;
    options.nodes = 20 + static_cast<int32_t>(seed);
    Problem problem = randomProblem(seed, options);
    Order order = identityOrder(problem);
    Bytes low = peakLowerBound(problem);
    int64_t steps = 100000;
    Order reduced = reducePeak(problem, order, low, steps);
    ASSERT_NO_FATAL_FAILURE(expectLegal(problem, reduced)) << "seed " << seed;
    ASSERT_GE(peakOf(problem, reduced), low) << "seed " << seed;
    ASSERT_LE(peakOf(problem, reduced), peakOf(problem, order)) << "seed " << seed;
    given += peakOf(problem, order);
    reached += peakOf(problem, reduced);
    bound += low;
  }
  EXPECT_LT(2 * (reached - bound), given - bound);
}

// A training step as a front end leaves it, small and large: the steps that are spent grow with the size, not faster.
TEST(PeakReducer, ComesCloseToTheBoundOfATrainingStep) {
  LayeredOptions options;
  options.layers = 200;
  Problem problem = layeredProblem(1, options);
  Bytes given = peakOf(problem, identityOrder(problem)), low = peakLowerBound(problem);
  int64_t steps = 1000000;
  Bytes reached = peakOf(problem, reducePeak(problem, identityOrder(problem), low, steps));
  EXPECT_LT(low, given);
  EXPECT_LT(100 * (reached - low), 2 * low) << reached << " of " << given << ", bound " << low;
  EXPECT_GT(steps, 900000);
}

TEST(PeakReducer, ReachesALimitInALargeBlock) {
  LayeredOptions options;
  options.layers = 2000;
  Problem problem = layeredProblem(1, options);
  Bytes given = peakOf(problem, identityOrder(problem)), limit = given / 1000 * 993;
  int64_t steps = 1000000;
  EXPECT_LE(peakOf(problem, reducePeak(problem, identityOrder(problem), limit, steps)), limit);
  EXPECT_GT(steps, 400000);
}

TEST(PeakReducer, KeepsAnOrderWithinTheLimitAndStopsWithoutSteps) {
  Problem problem = layeredProblem(2, {});
  Order given = identityOrder(problem);
  int64_t steps = 1000, none = 0;
  EXPECT_EQ(reducePeak(problem, given, peakOf(problem, given), steps), given);
  EXPECT_EQ(steps, 1000);
  EXPECT_EQ(peakOf(problem, reducePeak(problem, given, 0, none)), peakOf(problem, given));
}

} // namespace
