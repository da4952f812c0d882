//===- ModelsExampleTest.cpp - The worked example of Models.md -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "gtest/gtest.h"

using namespace commsched;

namespace {

Node node(NodeKind kind, Ns cost, NodeId start = kNone) {
  Node result;
  result.kind = kind;
  result.cost = cost;
  result.start = start;
  if (kind == NodeKind::Start) {
    result.lane = 1;
    result.issue = 2;
  }
  return result;
}

class ModelsExample : public testing::Test {
protected:
  ModelsExample() {
    problem.laneNames = {"compute", "@dp"};
    problem.nodes = {node(NodeKind::Compute, 30), node(NodeKind::Compute, 5),  node(NodeKind::Start, 40),
                     node(NodeKind::Wait, 0, 2),  node(NodeKind::Compute, 60), node(NodeKind::Start, 50),
                     node(NodeKind::Wait, 0, 5),  node(NodeKind::Compute, 20)};
    problem.nodes[0].workspace = 50;
    problem.buffers = {{200, 0, false}, {100, 1, false}, {400, 2, false},
                       {300, 4, false}, {75, 5, true},   {120, 7, true}};
    for (std::vector<int32_t> preds : std::vector<std::vector<int32_t>>{{}, {}, {1}, {2}, {0, 3}, {4}, {5}, {0}})
      problem.preds.append(preds);
    for (std::vector<int32_t> touches :
         std::vector<std::vector<int32_t>>{{0}, {1}, {1, 2}, {1, 2}, {0, 2, 3}, {3, 4}, {3, 4}, {0, 5}})
      problem.touches.append(touches);
    problem.finalize();
  }

  Problem problem;
  const Order reordered = {1, 2, 0, 3, 4, 5, 7, 6};
};

TEST_F(ModelsExample, AsGiven) {
  ASSERT_EQ(problem.validate(), "");
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.start, (std::vector<Ns>{0, 30, 35, 37, 75, 135, 137, 185}));
  EXPECT_EQ(line.end, (std::vector<Ns>{30, 35, 75, 75, 135, 185, 185, 205}));
  EXPECT_EQ(line.exposed, (std::vector<Ns>{0, 0, 0, 38, 0, 0, 48, 0}));
  EXPECT_EQ(line.exposedTotal, 86);
  EXPECT_EQ(line.load, (std::vector<Ns>{119, 90}));
  EXPECT_EQ(line.makespan, 205);
  MemoryProfile profile = memoryProfile(problem, identityOrder(problem));
  EXPECT_EQ(profile.live, (std::vector<Bytes>{250, 300, 700, 700, 900, 575, 575, 395}));
  EXPECT_EQ(profile.peak, 900);
  EXPECT_EQ(profile.peakPosition, 4);
}

TEST_F(ModelsExample, Reordered) {
  Timeline line = simulate(problem, reordered);
  EXPECT_EQ(line.start, (std::vector<Ns>{7, 0, 5, 37, 45, 105, 127, 107}));
  EXPECT_EQ(line.end, (std::vector<Ns>{37, 5, 45, 45, 105, 155, 155, 127}));
  EXPECT_EQ(line.exposed, (std::vector<Ns>{0, 0, 0, 8, 0, 0, 28, 0}));
  EXPECT_EQ(line.makespan, 155);
  EXPECT_EQ(memoryProfile(problem, reordered).live, (std::vector<Bytes>{100, 500, 750, 700, 900, 575, 695, 495}));
  EXPECT_EQ(verifyOrder(problem, reordered, {900, CollectiveOrder::Program}), "");
}

TEST_F(ModelsExample, IsReachedByMoves) {
  // Nodes 1 and 2 as a group before node 0, then the last wait behind node 7.
  MoveEvaluator evaluator(problem, identityOrder(problem));
  EXPECT_EQ(evaluator.peakIfMoved(1, 3, 0), 900);
  EXPECT_EQ(evaluator.windowPeakIfMoved(1, 3, 0), 750);
  evaluator.move(1, 3, 0);
  EXPECT_EQ(evaluator.windowPeakIfMoved(6, 7, 7), 695);
  evaluator.move(6, 7, 7);
  EXPECT_EQ(evaluator.order().vec(), reordered);
}

TEST_F(ModelsExample, Bounds) {
  LowerBound bound = lowerBound(problem);
  EXPECT_EQ(bound.makespan, 155);
  EXPECT_EQ(bound.describe(problem), "critical path");
  EXPECT_EQ(jointLowerBound(problem).makespan, 155);
  EXPECT_EQ(peakLowerBound(problem), 900);
}

} // namespace
