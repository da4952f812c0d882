//===- PeakPreservingTest.cpp - The peak-preserving passes against their rule -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/PeakPreserving.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "SeedRuleOracle.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <map>

using namespace commsched;
using namespace commsched::test;

namespace {

RandomOptions programShape(Random &random) {
  RandomOptions shape;
  shape.nodes = static_cast<int32_t>(random.between(4, 36));
  shape.commLanes = static_cast<int32_t>(random.between(1, 3));
  shape.chanceOfStart = static_cast<int32_t>(random.between(10, 40));
  shape.chanceOfHybrid = random.percent(50) ? 0 : 8;
  shape.chanceOfPinned = random.percent(20) ? 40 : 0;
  shape.collectiveOrder = static_cast<CollectiveOrder>(random.below(3));
  shape.donatedArguments = static_cast<int32_t>(random.below(4));
  return shape;
}

void chooseCommon(PeakPreservingOptions &options, const Problem &problem, Random &random) {
  constexpr int64_t kBudgets[] = {0, 0, 50'000, 200'000, 1'000'000, -100'000};
  options.memory.ppm = kBudgets[random.below(6)];
  Bytes peak = peakOf(problem, identityOrder(problem));
  if (random.percent(15))
    options.inputPeakBytes = random.between(0, 2 * peak);
  if (random.percent(15))
    options.memory.limit = random.between(0, 2 * peak);
  options.useEstimates = random.percent(60);
  options.extraOverlapPermille = random.percent(50) ? 500 : 0;
  options.commTimePermille = random.percent(50) ? 2000 : 1000;
  options.unsafeCollectivesReorder = random.percent(70);
  options.moveLimit = random.percent(10) ? static_cast<int32_t>(random.below(4)) : -1;
  options.guardAttempts = random.percent(30) ? static_cast<int32_t>(random.between(1, 6)) : 64;
  options.groupLimitNodes = random.percent(10) ? 2 : 256;
  options.memoryRecompute = true;
  if (random.percent(50)) {
    options.gemms.resize(problem.size());
    for (NodeId id = 0; id < problem.size(); ++id)
      if (problem.nodes[id].kind == NodeKind::Compute && random.percent(40))
        options.gemms.set(id);
  }
}

void expectSame(const Schedule &fast, const Schedule &oracle, uint64_t seed) {
  ASSERT_EQ(fast.defect, "") << "seed " << seed;
  ASSERT_EQ(fast.order, oracle.order) << "seed " << seed;
  if (fast.records.empty())
    return;
  ASSERT_EQ(fast.records.size(), oracle.records.size());
  for (auto [a, b] : llvm::zip(fast.records, oracle.records)) {
    ASSERT_EQ(a.node, b.node);
    ASSERT_EQ(a.factor, b.factor) << "seed " << seed << " node " << a.node << ": " << stringify(a.factor).str()
                                  << ", should be " << stringify(b.factor).str();
    ASSERT_EQ(a.moves, b.moves) << "seed " << seed << " node " << a.node;
    ASSERT_EQ(a.grouped, b.grouped) << "seed " << seed << " node " << a.node;
    if (a.factor != LimitingFactor::Makespan)
      ASSERT_EQ(a.blocker, b.blocker) << "seed " << seed << " node " << a.node;
    if (a.factor == LimitingFactor::PeakMemory)
      ASSERT_EQ(a.reached, b.reached) << "seed " << seed << " node " << a.node;
  }
}

void expectSound(const Problem &problem, const Order &order, const Schedule &result, bool estimates, uint64_t seed) {
  ScheduleRequirements requirements;
  requirements.peakLimit = std::max(result.limit, peakOf(problem, order));
  EXPECT_EQ(verify(problem, result, requirements), "") << "seed " << seed;
  if (estimates)
    EXPECT_LE(makespanOf(problem, result.order), makespanOf(problem, order)) << "seed " << seed;
}

/// How often each limiting factor came up, and how many nodes moved at all: a test that never moves proves nothing.
class Coverage {
public:
  void count(const Schedule &result) {
    for (const CollectiveRecord &record : result.records) {
      ++factors[record.factor];
      moved += record.moves > 0;
      grouped += record.moves > 0 && record.grouped > 0;
    }
  }
  void expect(std::initializer_list<LimitingFactor> seen) {
    for (LimitingFactor factor : seen)
      EXPECT_GE(factors[factor], 20) << stringify(factor).str();
    EXPECT_GE(moved, 2000);
    EXPECT_GE(grouped, 200);
  }

private:
  std::map<LimitingFactor, int> factors;
  int moved = 0, grouped = 0;
};

/// The input order, now and then another legal one.
Order someOrder(const Problem &problem, Random &random) {
  return random.percent(70) ? identityOrder(problem) : randomOrder(problem, random);
}

TEST(PeakPreservingTest, ReorderIsTheRuleOnRandomPrograms) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    Random random(seed);
    Problem problem = randomProblem(seed, programShape(random));
    ReorderPreservingPeakOptions options;
    chooseCommon(options, problem, random);
    options.groupWithCollectives = random.percent(30);
    Order order = someOrder(problem, random);
    Schedule fast = reorderPreservingPeakMemory(problem, order, options);
    expectSame(fast, oracleReorderPreservingPeak(problem, order, options), seed);
    expectSound(problem, order, fast, options.useEstimates, seed);
    if (HasFailure())
      return;
    coverage.count(fast);
  }
  coverage.expect({LimitingFactor::BlockEnd, LimitingFactor::DataDependence, LimitingFactor::CollectiveOrder,
                   LimitingFactor::PeakMemory, LimitingFactor::AlreadyHidden, LimitingFactor::ExposesOthers,
                   LimitingFactor::GroupLimit, LimitingFactor::MoveLimit, LimitingFactor::Makespan});
}

TEST(PeakPreservingTest, SinkIsTheRuleOnRandomPrograms) {
  Coverage coverage;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    Random random(seed + 1'000'000);
    Problem problem = randomProblem(seed, programShape(random));
    SinkWaitsPreservingPeakOptions options;
    chooseCommon(options, problem, random);
    options.swapWithCollectives = random.percent(40);
    Order order = someOrder(problem, random);
    Schedule fast = sinkWaitsPreservingPeakMemory(problem, order, options);
    expectSame(fast, oracleSinkWaitsPreservingPeak(problem, order, options), seed);
    expectSound(problem, order, fast, options.useEstimates, seed);
    if (HasFailure())
      return;
    coverage.count(fast);
  }
  coverage.expect({LimitingFactor::BlockEnd, LimitingFactor::DataDependence, LimitingFactor::CollectiveOrder,
                   LimitingFactor::PeakMemory, LimitingFactor::AlreadyHidden, LimitingFactor::ExposesOthers,
                   LimitingFactor::GroupLimit, LimitingFactor::MoveLimit});
}

} // namespace
