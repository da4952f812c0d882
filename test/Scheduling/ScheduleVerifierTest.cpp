//===- ScheduleVerifierTest.cpp - Tests that wrong answers are found --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Inductor/GreedyBuckets.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// Two collectives on each of two lanes, and two computes; no edges, one buffer of 100 bytes from node 4 to node 5.
Problem loose() {
  Problem problem;
  problem.laneNames = {"compute", "a", "b"};
  problem.nodes.resize(6);
  problem.buffers.push_back({100, 4, false});
  for (NodeId id = 0; id < 6; ++id) {
    if (id < 4) {
      problem.nodes[id].kind = NodeKind::Start;
      problem.nodes[id].lane = 1 + id % 2;
    }
    problem.preds.append(id == 5 ? llvm::ArrayRef<int32_t>({4}) : llvm::ArrayRef<int32_t>());
    problem.touches.append(id >= 4 ? llvm::ArrayRef<int32_t>({0}) : llvm::ArrayRef<int32_t>());
  }
  problem.nodes[4].workspace = 7;
  problem.finalize();
  return problem;
}

TEST(ScheduleVerifier, WantsAPermutation) {
  Problem problem = loose();
  EXPECT_EQ(verifyOrder(problem, {0, 1, 2, 3, 4}, {}), "the order has 5 nodes, the block 6");
  EXPECT_EQ(verifyOrder(problem, {0, 1, 2, 3, 4, 4}, {}), "node 4 stands at positions 4 and 5");
  EXPECT_EQ(verifyOrder(problem, {0, 1, 2, 3, 4, 9}, {}), "position 5 names node 9, which does not exist");
  EXPECT_EQ(verifyOrder(problem, {3, 2, 1, 0, 4, 5}, {}), "");
}

TEST(ScheduleVerifier, WantsEveryEdge) {
  EXPECT_EQ(verifyOrder(loose(), {0, 1, 2, 3, 5, 4}, {}),
            "node 5 at position 4 comes before node 4 at position 5: depends on it");
}

TEST(ScheduleVerifier, WantsDefinitionsBeforeUses) {
  Problem problem = loose();
  problem.preds = {};
  for (NodeId id = 0; id < 6; ++id)
    problem.preds.append({});
  EXPECT_EQ(verifyOrder(problem, {0, 1, 2, 3, 5, 4}, {}),
            "node 5 at position 4 comes before node 4 at position 5: uses buffer 0, which that node defines");
}

TEST(ScheduleVerifier, WantsThePeakBelowTheLimit) {
  EXPECT_EQ(verifyOrder(loose(), {0, 1, 4, 2, 3, 5}, {107}), "");
  EXPECT_EQ(verifyOrder(loose(), {0, 1, 4, 2, 3, 5}, {106}),
            "peak memory: 107 bytes are live at position 2 (node 4), the limit is 106");
}

TEST(ScheduleVerifier, WantsTheCollectivesInOrder) {
  Problem problem = loose();
  Order swapped = {1, 0, 2, 3, 4, 5}, sameLane = {2, 1, 0, 3, 4, 5};
  EXPECT_EQ(verifyOrder(problem, swapped, {kUnlimited, CollectiveOrder::Program}),
            "node 1 at position 0 comes before node 0 at position 1: both are collectives and the order mode is "
            "program");
  EXPECT_EQ(verifyOrder(problem, swapped, {kUnlimited, CollectiveOrder::Group}), "");
  EXPECT_NE(verifyOrder(problem, sameLane, {kUnlimited, CollectiveOrder::Group}), "");
  EXPECT_EQ(verifyOrder(problem, sameLane, {kUnlimited, CollectiveOrder::Free}), "");
  // Groups that share one lane keep their order apart from each other.
  for (NodeId id = 0; id < 4; ++id) {
    problem.nodes[id].lane = 1;
    problem.nodes[id].group = id % 2;
  }
  EXPECT_EQ(verifyOrder(problem, swapped, {kUnlimited, CollectiveOrder::Group}), "");
  EXPECT_NE(verifyOrder(problem, sameLane, {kUnlimited, CollectiveOrder::Group}), "");
}

TEST(ScheduleVerifier, WantsPinnedNodesInOrder) {
  Problem problem = loose();
  problem.nodes[0].pinned = problem.nodes[3].pinned = true;
  EXPECT_EQ(verifyOrder(problem, {2, 1, 0, 3, 4, 5}, {}), "");
  EXPECT_EQ(verifyOrder(problem, {3, 1, 2, 0, 4, 5}, {}),
            "node 3 at position 0 comes before node 0 at position 3: both are pinned");
}

// Its peak is the sweep's, to the byte; every topological order passes and every swap over an edge does not.
TEST(ScheduleVerifier, AgreesWithTheModelsOnRandomProblems) {
  Random random(5);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomOptions options;
    options.nodes = 20;
    options.chanceOfPinned = 20;
    options.collectiveOrder = static_cast<CollectiveOrder>(seed % 3);
    Problem problem = randomProblem(seed, options);
    ASSERT_EQ(problem.validate(), "");
    Order order = randomOrder(problem, random);
    Bytes peak = peakOf(problem, order);
    ASSERT_EQ(verifyOrder(problem, order, {peak, options.collectiveOrder}), "");
    if (peak > 0)
      ASSERT_NE(verifyOrder(problem, order, {peak - 1, options.collectiveOrder}), "");
    for (size_t at = 1; at < order.size(); ++at) {
      Order swapped = order;
      std::swap(swapped[at - 1], swapped[at]);
      bool edge = llvm::is_contained(problem.preds[order[at]], order[at - 1]);
      ASSERT_EQ(verifyOrder(problem, swapped, {kUnlimited, options.collectiveOrder}).empty(), !edge);
    }
  }
}

// Both halves of the gate are asked: an order, a claim, and buckets that nobody carried out.
TEST(ScheduleVerifier, TheGateChecksOrdersClaimsAndBuckets) {
  Problem problem = loose();
  Schedule schedule = keepOrder(problem);
  EXPECT_EQ(verify(problem, schedule, {}), "");
  measure(problem, schedule);
  schedule.claims = {schedule.makespan, schedule.peak};
  EXPECT_EQ(verify(problem, schedule, {}), "");
  schedule.claims->makespan += 1;
  EXPECT_EQ(verify(problem, schedule, {}), "the makespan is " + std::to_string(schedule.makespan) + " ns, the claim " +
                                               std::to_string(schedule.makespan + 1));
  schedule.claims = {schedule.makespan, schedule.peak - 1};
  EXPECT_EQ(verify(problem, schedule, {}),
            "the peak is " + std::to_string(schedule.peak) + " bytes, the claim " + std::to_string(schedule.peak - 1));
  schedule.claims.reset();
  EXPECT_NE(verify(problem, schedule, {schedule.peak - 1}), "");
  std::swap(schedule.order[4], schedule.order[5]);
  EXPECT_NE(verify(problem, schedule, {}), "");
  schedule = keepOrder(problem);
  schedule.buckets.emplace_back();
  EXPECT_EQ(verify(problem, schedule, {}), "the buckets were not carried out");
}

// A schedule with buckets passes with the expanded problem that belongs to it, and not with less.
TEST(ScheduleVerifier, TheGateReplaysBuckets) {
  int merged = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    RandomOptions shape;
    shape.nodes = 40;
    shape.chanceOfStart = 60;
    shape.chanceOfMergeable = 95;
    Problem problem = randomProblem(seed, shape);
    // The rule has caps of its own.
    for (MergeKey &key : problem.mergeKeys)
      key.cap = -1;
    std::vector<NodeId> starts;
    for (NodeId id = 0; id < problem.size(); ++id)
      if (problem.nodes[id].kind == NodeKind::Start)
        starts.push_back(id);
    std::vector<Bucket> buckets = greedyBuckets(problem, starts, {});
    if (buckets.empty())
      continue;
    Schedule schedule = llvm::cantFail(mergeInOrder(problem, buckets));
    measure(problem, schedule);
    schedule.claims = {schedule.makespan, schedule.peak};
    ASSERT_EQ(verify(problem, schedule, {}), "") << "seed " << seed;
    schedule.buckets.front().members.pop_back();
    ASSERT_NE(verify(problem, schedule, {}), "") << "seed " << seed;
    ++merged;
  }
  EXPECT_GE(merged, 100);
}

} // namespace
