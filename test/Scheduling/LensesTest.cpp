//===- LensesTest.cpp - Tests of the way through the lenses -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each lens can be left out, changes some answer, and improves what it promises to improve. What is special to one of
// them is tested where it is used: RobustTest, ArenaLimitTest, TimeBudgetTest, VariantsTest, ContentionTest.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CheckResult.h"
#include "RandomDemands.h"
#include "gtest/gtest.h"
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace {

/// Every start may also be carried out in a way that takes half as long.
void addFasterVariants(Problem &problem) {
  problem.variantNames = {{VariantName::CopyEngine, 0}};
  for (Node &node : problem.nodes) {
    if (node.kind != NodeKind::Start)
      continue;
    node.variants = static_cast<int32_t>(problem.startVariants.size());
    problem.startVariants.push_back({{0, node.cost / 2, node.demand}});
  }
}

/// A problem with or without contention and variants, under a limit below, at or above the peak of the given order.
struct LensCase {
  explicit LensCase(uint64_t seed) {
    Random random(seed * 31 + 7);
    RandomOptions shape;
    shape.nodes = static_cast<int32_t>(random.between(5, 60));
    problem = randomProblem(seed, shape);
    if (seed % 3 == 0)
      addRandomDemands(problem, seed);
    if (seed % 4 == 0)
      addFasterVariants(problem);
    options.effort = 6000;
    options.bucketing = seed % 2 == 0;
    options.objective = Objective::Robust;
    if (seed % 5 == 0)
      options.memory.ppm = kMillion / 2;
    if (seed % 2 == 1) {
      second.byPeer = withOtherCosts(problem, seed);
      // An order to which every answer loses.
      const std::vector<Ns> shortest(std::size(kPlayedScales), 1);
      second.others = [=] { return std::vector<PeerAnswer>{{{shortest, shortest}, 0}}; };
      options.second = &second;
    }
    if (seed % 6 == 1)
      options.timeBudgetRatio = 0.05;
    if (seed % 7 == 0)
      options.limitedMemory = LimitedMemory::Arena;
  }

  LensCase(const LensCase &) = delete;

  Problem problem;
  SecondOpinion second;
  ScheduleOptions options;
};

TEST(Lenses, LeavesOutEach) {
  const std::vector<llvm::StringRef> names = lensNames();
  EXPECT_EQ(std::set<llvm::StringRef>(names.begin(), names.end()).size(), names.size());
  std::set<llvm::StringRef> changing;
  for (uint64_t seed = 1; seed <= portion(60u); ++seed) {
    const LensCase test(seed);
    const Schedule with = schedule(test.problem, test.options);
    for (llvm::StringRef name : names) {
      ScheduleOptions options = test.options;
      options.without = {name.str()};
      const Schedule without = schedule(test.problem, options);
      ASSERT_EQ(without.defect, "") << name.str() << ", seed " << seed;
      ScheduleRequirements requirements{std::max(without.peak, without.limit), options.collectiveOrder};
      ASSERT_EQ(verify(test.problem, without, requirements), "") << name.str() << ", seed " << seed;
      if (without.order != with.order || without.scales.size() != with.scales.size() || without.arena != with.arena)
        changing.insert(name);
    }
  }
  for (llvm::StringRef name : names)
    EXPECT_TRUE(changing.count(name) || testShare() > 1) << "'" << name.str() << "' changes no answer";
}

// An answer to begin from is never lost, whatever it says of itself, and one that breaks the limit is left out.
TEST(Lenses, BeginsFromKnownAnswers) {
  int32_t shorter = 0, leftOut = 0;
  for (uint64_t seed = 1; seed <= portion(200u); ++seed) {
    LensCase test(seed);
    for (llvm::StringRef name : lensNames())
      test.options.without.push_back(name.str());
    ScheduleOptions whole = test.options;
    whole.memory.limit = kUnlimited;
    Schedule best = schedule(test.problem, whole);
    best.makespan = 1;
    best.peak = 0;
    best.claims.reset();
    ScheduleOptions first = test.options;
    first.effort = 0;
    const Schedule alone = schedule(test.problem, first);
    first.known = {&best};
    const Schedule from = schedule(test.problem, first);
    ASSERT_NO_FATAL_FAILURE(checkResult(test.problem, first, from)) << "seed " << seed;
    ASSERT_LE(from.makespan, alone.makespan) << "seed " << seed;
    measure(test.problem, best);
    if (best.peak <= from.limit)
      ASSERT_LE(from.makespan, best.makespan) << "seed " << seed;
    else
      ++leftOut;
    shorter += from.makespan < alone.makespan;
  }
  EXPECT_GE(shorter, leastOf(20));
  EXPECT_GE(leftOut, leastOf(20));
}

} // namespace
