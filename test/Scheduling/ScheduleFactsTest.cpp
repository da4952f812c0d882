//===- ScheduleFactsTest.cpp - Tests for facts of a problem -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Checks launch units and exclusive producers against their definitions, node by node.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Decode/ScheduleFacts.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// Whether a node and everything that it depends on are computes without regions. Slow and obvious.
bool dependsOnArgumentsAlone(const Problem &problem, NodeId node) {
  std::vector<NodeId> open = {node};
  std::vector<bool> seen(problem.size(), false);
  while (!open.empty()) {
    NodeId at = open.back();
    open.pop_back();
    if (problem.nodes[at].kind != NodeKind::Compute || problem.nodes[at].region != kNone)
      return false;
    for (NodeId pred : problem.preds[at])
      if (!seen[pred]) {
        seen[pred] = true;
        open.push_back(pred);
      }
  }
  return true;
}

/// Returns the number of feeders.
int64_t checkFeeders(const Problem &problem, const ScheduleFacts &facts) {
  int64_t feeders = 0;
  for (NodeId node = 0; node < problem.size(); ++node) {
    NodeId start = facts.leader[node];
    EXPECT_EQ(llvm::is_contained(facts.feeders[start], node), start != node);
    if (start == node)
      continue;
    ++feeders;
    const Node &info = problem.nodes[node];
    EXPECT_EQ(problem.nodes[start].kind, NodeKind::Start);
    EXPECT_EQ(info.kind, NodeKind::Compute);
    EXPECT_EQ(info.region, kNone);
    EXPECT_FALSE(info.pinned);
    // Whatever uses it belongs to the same start.
    EXPECT_FALSE(problem.succs[node].empty());
    for (NodeId user : problem.succs[node])
      EXPECT_EQ(facts.leader[user], start);
    // It is light: a product that works for a reduction is placed on its own.
    EXPECT_LE(4 * info.cost, problem.nodes[start].cost);
    // It does not wait for anything that is computed in the block, unless a pack may absorb it.
    bool isCast = facts.bucketing && isMergeable(problem, start) && fusedCast(problem, start) == node;
    EXPECT_TRUE(isCast || dependsOnArgumentsAlone(problem, node));
  }
  return feeders;
}

TEST(ScheduleFacts, FeedersAreLightAndFeedOneStart) {
  int64_t feeders = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomOptions shape;
    shape.nodes = 20 + static_cast<int32_t>(seed % 40);
    shape.chanceOfPinned = seed % 3 == 0 ? 20 : 0;
    shape.chanceOfStart = 50;
    shape.maxCost = seed % 2 ? 20 : 4;
    Problem problem = randomProblem(seed, shape);
    for (bool bucketing : {false, true}) {
      feeders += checkFeeders(problem, ScheduleFacts(problem, bucketing));
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
  }
  EXPECT_GT(feeders, 300);
}

// Each gather of a training step has its cast; no reduction has a feeder, for gradients are work.
TEST(ScheduleFacts, CastsOfGathersAreFeeders) {
  Problem problem = layeredProblem(1, {10, 8, 3, true, 64});
  ScheduleFacts facts(problem, /*bucketing=*/true);
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (problem.nodes[node].kind != NodeKind::Start)
      continue;
    bool gathers = problem.nodes[node].collective == CollectiveKind::AllGather;
    EXPECT_EQ(facts.feeders[node].size(), gathers ? 1u : 0u);
    EXPECT_EQ(facts.enteringEdges[node], gathers ? 0 : 1);
  }
  EXPECT_EQ(checkFeeders(problem, facts), 60);
}

// An exclusive producer is a compute whose users are all that start, or exclusive producers of it.
TEST(ScheduleFacts, ExclusiveProducersServeOneStart) {
  int64_t producers = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomOptions shape;
    shape.nodes = 40;
    shape.chanceOfStart = 50;
    Problem problem = randomProblem(seed, shape);
    ScheduleFacts facts(problem, /*bucketing=*/false);
    std::vector<Ns> work(problem.size(), 0);
    for (NodeId node = 0; node < problem.size(); ++node) {
      auto serves = [&](NodeId user, NodeId start) { return user == start || facts.exclusiveStart[user] == start; };
      llvm::ArrayRef<NodeId> users = problem.succs[node];
      NodeId start = facts.exclusiveStart[node];
      if (start != kNone) {
        ASSERT_TRUE(!users.empty() && llvm::all_of(users, [&](NodeId user) { return serves(user, start); }));
        ASSERT_EQ(problem.nodes[start].kind, NodeKind::Start);
        work[start] += problem.nodes[node].cost;
        ++producers;
        continue;
      }
      // None is missed.
      NodeId first = users.empty() ? kNone : users.front();
      if (first != kNone && problem.nodes[first].kind != NodeKind::Start)
        first = facts.exclusiveStart[first];
      bool isMissed = problem.nodes[node].kind == NodeKind::Compute && first != kNone &&
                      llvm::all_of(users, [&](NodeId user) { return serves(user, first); });
      ASSERT_FALSE(isMissed) << "seed " << seed << ", node " << node;
    }
    for (NodeId node = 0; node < problem.size(); ++node)
      ASSERT_EQ(facts.gainOfDeferral[node] > kPermille,
                problem.nodes[node].kind == NodeKind::Start && work[node] > problem.nodes[node].cost);
  }
  EXPECT_GT(producers, 1000);
}

} // namespace
