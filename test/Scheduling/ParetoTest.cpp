//===- ParetoTest.cpp - Tests of time against peak --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The curve falls, starts at the lowest peak that the solver reaches, ends where memory buys nothing more, and has the
// answer at the input's own peak.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Pareto.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "Solver/Decode/MemoryAdmission.h"
#include "gtest/gtest.h"
#include <thread>

using namespace commsched;
using namespace commsched::test;

namespace {

void forwards(size_t count, llvm::function_ref<void(size_t)> body) {
  for (size_t index = 0; index < count; ++index)
    body(index);
}

void onThreads(size_t count, llvm::function_ref<void(size_t)> body) {
  std::vector<std::thread> threads;
  for (size_t index = count; index-- > 0;)
    threads.emplace_back([body, index] { body(index); });
  for (std::thread &thread : threads)
    thread.join();
}

ScheduleOptions withEffort(int64_t effort) {
  ScheduleOptions options;
  options.effort = effort;
  return options;
}

TEST(Pareto, FallsFromTheLowestPeakToTheFastestAnswer) {
  int64_t longCurves = 0;
  for (uint64_t seed = 0; seed < portion(100u); ++seed) {
    Problem problem = randomProblem(seed, RandomOptions());
    ScheduleOptions options = withEffort(5000);
    ParetoCurve curve = paretoCurve(problem, options, 8, forwards);
    ASSERT_EQ(curve.defect, "");
    ASSERT_FALSE(curve.points.empty());
    ASSERT_LE(curve.limits, 8);
    ASSERT_EQ(curve.input.peak, peakOf(problem, identityOrder(problem)));
    ASSERT_EQ(curve.input.makespan, makespanOf(problem, identityOrder(problem)));
    for (size_t index = 1; index < curve.points.size(); ++index) {
      ASSERT_LT(curve.points[index - 1].peak, curve.points[index].peak);
      ASSERT_GT(curve.points[index - 1].makespan, curve.points[index].makespan);
    }
    options.memory.limit = 0;
    ASSERT_LE(curve.points.front().peak, schedule(problem, options).peak);
    options.memory.limit = kUnlimited;
    ASSERT_LE(curve.points.back().makespan, schedule(problem, options).makespan);
    ASSERT_GE(curve.points.back().makespan, jointLowerBound(problem).makespan);
    longCurves += curve.points.size() >= 3;
  }
  EXPECT_GT(longCurves, leastOf(10)) << "the problems leave nothing to trade";
}

TEST(Pareto, HasTheAnswerAtTheInputsPeakOrABetterOne) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Problem problem = randomProblem(seed, RandomOptions());
    ScheduleOptions options = withEffort(5000);
    ParetoCurve curve = paretoCurve(problem, options, 5, forwards);
    Schedule result = schedule(problem, options);
    bool found = false;
    for (const ParetoPoint &point : curve.points)
      found |= point.peak <= result.inputPeak && point.makespan <= result.makespan;
    ASSERT_TRUE(found) << "seed " << seed;
  }
}

TEST(Pareto, DoesNotDependOnThreads) {
  Problem problem = layeredProblem(7, {/*layers=*/8});
  ParetoCurve one = paretoCurve(problem, withEffort(50000), 9, forwards);
  ParetoCurve many = paretoCurve(problem, withEffort(50000), 9, onThreads);
  ASSERT_EQ(one.points.size(), many.points.size());
  EXPECT_EQ(one.steps, many.steps);
  for (size_t index = 0; index < one.points.size(); ++index) {
    EXPECT_EQ(one.points[index].peak, many.points[index].peak);
    EXPECT_EQ(one.points[index].makespan, many.points[index].makespan);
    EXPECT_EQ(one.points[index].collectives, many.points[index].collectives);
  }
}

TEST(Pareto, OfOneNodeIsOnePoint) {
  RandomOptions options;
  options.nodes = 1;
  Problem problem = randomProblem(1, options);
  EXPECT_EQ(paretoCurve(problem, withEffort(1000), 16, forwards).points.size(), 1u);
}

} // namespace
