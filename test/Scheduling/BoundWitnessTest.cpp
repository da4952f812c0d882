//===- BoundWitnessTest.cpp - Tests of bounds without brute force -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Bounds at the ends of what they take, and that the witness of a certificate is about them.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomDemands.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <map>
#include <tuple>

using namespace commsched;
using namespace commsched::test;

namespace {

// Nothing takes no time; a window of nothing is one of one node.
TEST(Bounds, EmptyProblems) {
  EXPECT_EQ(lowerBound(Problem()).makespan, 0);
  EXPECT_EQ(jointLowerBound(Problem()).makespan, 0);
  EXPECT_EQ(peakLowerBound(Problem()), 0);
  EXPECT_EQ(simulate(Problem(), {}).makespan, 0);
  EXPECT_EQ(memoryProfile(Problem(), {}).peakPosition, kNone);
  EXPECT_EQ(verifyOrder(Problem(), {}, {0, CollectiveOrder::Program}), "");
  BoundOptions none;
  none.exactNodes = none.window = 0;
  Problem problem = randomProblem(1);
  EXPECT_LE(lowerBound(problem, none).makespan, lowerBound(problem).makespan);
}

// A petabyte of collectives does not overflow, and more bytes never lower a bound.
TEST(Bounds, LargeCollectives) {
  Ns last = 0;
  for (Bytes bytes = 1; bytes <= Bytes(1) << 50; bytes *= 32) {
    Problem problem;
    problem.laneNames = {"compute", "@dp"};
    problem.mergeKeys.push_back(
        {CollectiveKind::AllReduce, 1, 8, [](Bytes b) { return 1000 + b / 40; }, -1, {}, {}, {}});
    for (int32_t index = 0; index < 3; ++index) {
      problem.buffers.push_back({bytes, 2 * index, true});
      Node start, wait;
      start.kind = NodeKind::Start;
      start.lane = 1;
      start.bytes = bytes;
      start.cost = problem.mergeKeys[0].cost(bytes);
      start.mergeKey = 0;
      wait.kind = NodeKind::Wait;
      wait.start = 2 * index;
      problem.nodes.push_back(start);
      problem.nodes.push_back(wait);
      problem.members.push_back({2 * index + 1, kNone, index, bytes, bytes, kNone, 0});
      problem.members.emplace_back();
      problem.preds.append({});
      problem.preds.append({2 * index});
      problem.touches.append({index});
      problem.touches.append({index});
    }
    problem.finalize();
    ASSERT_EQ(problem.validate(), "");
    LowerBound apart = lowerBound(problem), together = jointLowerBound(problem);
    EXPECT_EQ(apart.makespan, 3 * problem.nodes[0].cost);
    EXPECT_LE(together.makespan, problem.mergeKeys[0].cost(3 * bytes));
    EXPECT_GE(together.makespan, problem.mergeKeys[0].cost(3 * bytes) * 99 / 100 - 3);
    EXPECT_GE(together.makespan, last);
    last = together.makespan;
  }
}

// The witness of a certificate is about the bound of the report.
TEST(Bounds, TheWitnessProvesTheBound) {
  // An argument, whether it is about a resource, and whether it needs no heads and tails.
  std::map<std::tuple<BoundWitness::Argument, bool, bool>, int> arguments;
  int weaker = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomOptions shape;
    shape.nodes = 10 + seed % 50;
    shape.commLanes = 1 + seed % 4;
    Problem problem = randomProblem(seed, shape);
    if (seed / 4 % 2 == 1)
      addRandomDemands(problem, seed);
    BoundOptions options;
    if (seed % 2 == 0)
      options.limit = peakOf(problem, identityOrder(problem));
    bool bucketing = seed / 2 % 2 == 1;
    LowerBound bound = bucketing ? jointLowerBound(problem, options) : lowerBound(problem, options);
    BoundWitness witness = proveBound(problem, options, bucketing);
    Ns strongest = std::max(bound.makespan, bound.withLimit);
    EXPECT_LE(witness.makespan, strongest) << "seed " << seed;
    // Certificates do not know Lemmas 17, 20 and 21, which are about buckets.
    if (bucketing)
      weaker += witness.makespan < strongest;
    else
      EXPECT_EQ(witness.makespan, strongest) << "seed " << seed;
    bool ofResource = witness.argument == BoundWitness::OneMachine && witness.lane == kNone;
    ++arguments[{witness.argument, ofResource, witness.head + witness.tail == 0}];
  }
  EXPECT_GE(arguments.size(), 4u);
  EXPECT_LE(weaker, 4);
}

/// Whether `second` depends on `first`, directly or not, or is the same.
bool dependsOn(const Problem &problem, NodeId second, NodeId first) {
  return second == first || (second > first && llvm::any_of(problem.preds[second], [&](NodeId pred) {
                               return dependsOn(problem, pred, first);
                             }));
}

// A witness has no level that cannot matter: of heads of at least 0, or of nodes that have nothing to do with the one
// that the argument goes through. That what is left suffices, commsched-verify says (test/Certificate).
TEST(Bounds, TheWitnessHasNoIdleLevels) {
  std::map<BoundWitness::Argument, int> kept;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomOptions shape;
    shape.nodes = 10 + seed % 50;
    shape.commLanes = 1 + seed % 4;
    Problem problem = randomProblem(seed, shape);
    BoundOptions options;
    if (seed % 2 == 0)
      options.limit = peakOf(problem, identityOrder(problem));
    BoundWitness witness = proveBound(problem, options, /*bucketing=*/seed / 2 % 2 == 1);
    kept[witness.argument] += static_cast<int>(witness.levels.size());
    for (const LevelReason &level : witness.levels) {
      bool ofTail = level.of == LevelReason::Tail || level.of == LevelReason::LaneTail;
      if (witness.argument == BoundWitness::OneMachine)
        EXPECT_GT(ofTail ? witness.tail : witness.head, 0) << "seed " << seed;
      else if (!ofTail)
        EXPECT_TRUE(dependsOn(problem, witness.node, level.node)) << "seed " << seed;
      else if (witness.argument == BoundWitness::ThroughNode)
        EXPECT_TRUE(dependsOn(problem, level.node, witness.node)) << "seed " << seed;
    }
  }
  EXPECT_EQ(kept[BoundWitness::Deferral], 0);
  EXPECT_GT(kept[BoundWitness::OneMachine], 0);
  EXPECT_GE(kept.size(), 2u);
}

} // namespace
