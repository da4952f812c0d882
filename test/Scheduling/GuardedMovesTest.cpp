//===- GuardedMovesTest.cpp - Tests for moves that keep an answer short with other costs ------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What the moves keep in mind of other costs is compared with the timeline of the whole answer, played at their scale.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Moves/GuardedMoves.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

Ns playAt(const Problem &problem, const Schedule &answer, CostScale scale) {
  return playAtScales(answer.carriedOut(problem), answer.order, scale).front();
}

struct GuardedCase {
  Problem problem;
  Schedule answer;
  bool bucketing = false;
};

/// A random program, and an answer for it as planned, with buckets or without.
GuardedCase randomCase(int seed) {
  RandomOptions shape;
  shape.nodes = 20 + seed % 90;
  GuardedCase result{randomProblem(seed, shape), {}, seed % 4 != 0};
  ScheduleOptions options;
  options.objective = Objective::Makespan;
  options.effort = 20 * shape.nodes;
  options.bucketing = result.bucketing;
  result.answer = schedule(result.problem, options);
  return result;
}

// At the scale that is minimized, the answer is shorter; at the others it takes at most what the guards allow; and it
// is an answer for the problem as planned, within the limit.
TEST(GuardedMoves, ShortenAtOneScaleAndKeepTheOthers) {
  constexpr CostScale kScales[] = {750, 1000, 1500, 2000};
  int shorter = 0, bound = 0;
  const int count = portion(200);
  for (int seed = 1; seed <= count; ++seed) {
    GuardedCase test = randomCase(seed);
    const CostScale minimized = kScales[seed % std::size(kScales)];
    Problem scaled = scaleCollectives(test.problem, minimized);
    std::vector<Problem> others;
    for (CostScale scale : kScales)
      if (scale != minimized)
        others.push_back(scaleCollectives(test.problem, scale));
    std::vector<TimeGuard> guards;
    const bool isTight = seed % 2 == 0;
    for (const Problem &other : others) {
      const Ns now = makespanOf(
          test.answer.isExpanded() ? llvm::cantFail(expandBuckets(other, test.answer.buckets)).problem : other,
          test.answer.order);
      guards.push_back({&other, isTight ? now : now + now / 50});
    }
    int64_t steps = 200 * test.problem.size();
    std::optional<Schedule> found = moveWithGuards(ScheduleFacts(scaled, test.bucketing), test.answer,
                                                   test.answer.limit, guards, /*target=*/0, seed, steps);
    if (!found)
      continue;
    ++shorter;
    found->expanded = llvm::cantFail(expandBuckets(test.problem, found->buckets));
    ASSERT_LT(playAt(test.problem, *found, minimized), playAt(test.problem, test.answer, minimized)) << "seed " << seed;
    size_t guard = 0;
    for (CostScale scale : kScales)
      if (scale != minimized) {
        const Ns most = guards[guard++].most;
        ASSERT_LE(playAt(test.problem, *found, scale), most) << "seed " << seed << ", scale " << scale;
        bound += playAt(test.problem, *found, scale) == most;
      }
    found->claims = {playAt(test.problem, *found, kScaleOne), peakOf(found->expanded.problem, found->order)};
    ASSERT_EQ(verify(test.problem, *found, {test.answer.limit, CollectiveOrder::Free}), "") << "seed " << seed;
  }
  EXPECT_GE(shorter, leastOf(30));
  EXPECT_GE(bound, leastOf(10));
}

// Equal arguments give equal answers, and the steps that are given are what is spent at most, but for the last try.
TEST(GuardedMoves, AreRepeatable) {
  const int count = portion(30);
  for (int seed = 1; seed <= count; ++seed) {
    GuardedCase test = randomCase(seed);
    Problem slower = scaleCollectives(test.problem, 2000);
    TimeGuard guard{&test.problem, playAt(test.problem, test.answer, kScaleOne)};
    const int64_t given = 100 * test.problem.size();
    int64_t left = given, again = given;
    ScheduleFacts facts(slower, test.bucketing);
    auto first = moveWithGuards(facts, test.answer, test.answer.limit, guard, /*target=*/0, seed, left);
    auto second = moveWithGuards(facts, test.answer, test.answer.limit, guard, /*target=*/0, seed, again);
    ASSERT_EQ(left, again) << "seed " << seed;
    ASSERT_EQ(first.has_value(), second.has_value()) << "seed " << seed;
    if (first)
      ASSERT_EQ(first->order, second->order) << "seed " << seed;
  }
}

} // namespace
