//===- KeepTogetherTest.cpp - Units in every solver's answer ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// A random problem with runs of two to four nodes as units, some of them in turn.
Problem problemWithUnits(uint64_t seed, int32_t nodes) {
  RandomOptions shape;
  shape.nodes = nodes;
  Problem problem = randomProblem(seed, shape);
  Random random(seed);
  std::vector<int32_t> unitOf(problem.size(), kNone);
  int32_t numUnits = 0;
  for (NodeId id = 0; id + 4 < problem.size();) {
    if (random.percent(60)) {
      ++id;
      continue;
    }
    for (NodeId end = id + static_cast<NodeId>(random.between(2, 4)); id < end; ++id)
      unitOf[id] = numUnits;
    ++numUnits;
  }
  std::vector<std::pair<int32_t, int32_t>> turns;
  for (int32_t unit = 1; unit < numUnits; ++unit)
    if (random.percent(30))
      turns.emplace_back(unit - 1, unit);
  problem.preds = closeUnits(problem.preds, unitOf, turns);
  for (NodeId id = 0; id < problem.size(); ++id)
    problem.nodes[id].unit = unitOf[id];
  problem.finalize();
  return problem;
}

// Whatever legal order a solver finds, its units can be gathered at either end; and some orders need it.
TEST(KeepTogether, GathersUnitsInAnyOrder) {
  int torn = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Problem problem = problemWithUnits(seed, 25);
    ASSERT_EQ(problem.validate(), "") << "seed " << seed;
    Random random(seed);
    Order order = randomOrder(problem, random);
    torn += !verifyOrder(problem, order, {}).empty();
    for (UnitPlace place : {UnitPlace::First, UnitPlace::Last})
      ASSERT_EQ(verifyOrder(problem, gatherUnits(problem, order, place), {}), "") << "seed " << seed;
  }
  EXPECT_GE(torn, 300);
}

// An order in which the members are apart is refused, and the message names them.
TEST(KeepTogether, VerifierRefusesTornUnits) {
  Problem problem;
  problem.laneNames = {"compute"};
  for (int id = 0; id < 3; ++id) {
    problem.nodes.emplace_back();
    problem.preds.append({});
    problem.touches.append({});
  }
  problem.nodes[0].unit = problem.nodes[1].unit = 0;
  problem.finalize();
  EXPECT_EQ(verifyOrder(problem, Order{2, 0, 1}, {}), "");
  EXPECT_EQ(verifyOrder(problem, Order{0, 2, 1}, {}),
            "nodes 0 and 1 of unit 0 stand at positions 0 and 2, not next to each other");
  EXPECT_NE(verifyOrder(problem, Order{1, 0, 2}, {}), "");
  problem.nodes[1].unit = kNone;
  problem.nodes[2].unit = 0;
  EXPECT_EQ(problem.validate(), "node 2: the nodes of its unit are not consecutive");
}

// What a unit takes from outside comes before all of it, and what takes from it comes after all of it.
TEST(KeepTogether, UnitsAreIndivisibleForTheirNeighbours) {
  IndexLists preds;
  preds.append({});
  preds.append({});
  preds.append({1});
  preds.append({0});
  preds.append({1});
  IndexLists closed = closeUnits(preds, {kNone, 0, 0, 0, kNone});
  EXPECT_EQ(closed[1], llvm::ArrayRef<int32_t>({0}));
  EXPECT_EQ(closed[2], llvm::ArrayRef<int32_t>({1}));
  EXPECT_EQ(closed[3], llvm::ArrayRef<int32_t>({0, 2}));
  EXPECT_EQ(closed[4], llvm::ArrayRef<int32_t>({1, 3}));
}

// The solver keeps units together, within the limit, is never slower than the input, and still finds what to gain.
TEST(KeepTogether, SchedulerKeepsUnits) {
  int faster = 0;
  for (uint64_t seed = 1; seed <= 250; ++seed) {
    Problem problem = problemWithUnits(seed, seed % 5 == 0 ? 60 : 20);
    for (bool bucketing : {false, true}) {
      ScheduleOptions options;
      options.bucketing = bucketing;
      options.effort = 3000;
      options.memory.ppm = seed % 2 == 0 ? 200000 : 0;
      Schedule result = schedule(problem, options);
      ASSERT_EQ(result.defect, "") << "seed " << seed;
      ScheduleRequirements requirements;
      requirements.peakLimit = result.limit;
      ASSERT_EQ(verify(problem, result, requirements), "") << "seed " << seed;
      ASSERT_LE(result.makespan, result.inputMakespan) << "seed " << seed;
      ASSERT_EQ(makespanOf(result.expanded.problem, result.order), result.makespan) << "seed " << seed;
      faster += result.makespan < result.inputMakespan;
    }
  }
  EXPECT_GE(faster, 100);
}

// An input above the limit is brought down, or left, with its units whole.
TEST(KeepTogether, LowerPeaksKeepUnits) {
  int lower = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Problem problem = problemWithUnits(seed, 25);
    ScheduleOptions options;
    options.effort = 3000;
    options.memory.limit = peakOf(problem, identityOrder(problem)) * 9 / 10;
    Schedule result = schedule(problem, options);
    ASSERT_EQ(result.defect, "") << "seed " << seed;
    ASSERT_EQ(verify(problem, result, {}), "") << "seed " << seed;
    ASSERT_LE(result.peak, result.inputPeak) << "seed " << seed;
    lower += result.peak < result.inputPeak;
  }
  EXPECT_GE(lower, 20);
}

} // namespace
