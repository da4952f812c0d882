//===- TimelineTest.cpp - Tests of the time model --------------------------------------------===//

#include "CommSched/Scheduling/Timeline.h"
#include "gtest/gtest.h"

using namespace commsched;

namespace {

Node compute(Ns cost) {
  Node node;
  node.cost = cost;
  return node;
}

Node start(LaneId lane, Ns cost, Ns issue = 0) {
  Node node;
  node.kind = NodeKind::Start;
  node.lane = lane;
  node.cost = cost;
  node.issue = issue;
  return node;
}

Node wait(NodeId of, Ns ready = 0) {
  Node node;
  node.kind = NodeKind::Wait;
  node.start = of;
  node.ready = ready;
  return node;
}

/// A problem whose only edges are those from starts to their waits.
Problem make(std::vector<Node> nodes, LaneId lanes) {
  Problem problem;
  problem.nodes = std::move(nodes);
  for (LaneId lane = 0; lane < lanes; ++lane)
    problem.laneNames.push_back("lane" + std::to_string(lane));
  for (const Node &node : problem.nodes) {
    problem.preds.append(node.start == kNone ? llvm::ArrayRef<int32_t>() : llvm::ArrayRef<int32_t>(node.start));
    problem.touches.append({});
  }
  problem.finalize();
  EXPECT_EQ(problem.validate(), "");
  return problem;
}

// A start takes its lane when the compute lane comes to it, and its issue delays compute but not the collective.
TEST(Timeline, IssueDelaysComputeOnly) {
  Problem problem = make({compute(10), start(1, 100, 7), compute(20), wait(1)}, 2);
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.start, (std::vector<Ns>{0, 10, 17, 37}));
  EXPECT_EQ(line.end, (std::vector<Ns>{10, 110, 37, 110}));
  EXPECT_EQ(line.exposedTotal, 73);
  EXPECT_EQ(line.load, (std::vector<Ns>{37, 100}));
  EXPECT_EQ(line.makespan, 110);
}

// A second wait for the same start is free; a collective that nobody waits for in time still counts.
TEST(Timeline, LanesQueueAndCountToTheEnd) {
  Problem problem = make({start(1, 50), start(1, 60), wait(0), wait(0), compute(5)}, 2);
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.start[1], 50);
  EXPECT_EQ(line.exposed, (std::vector<Ns>{0, 0, 50, 0, 0}));
  EXPECT_EQ(line.makespan, 110);
}

// A future that came in as an argument is there at `ready`.
TEST(Timeline, ArgumentFuturesAreReadyWhenTheySay) {
  Problem problem = make({wait(kNone, 30), compute(5), wait(kNone, 20)}, 1);
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.exposed, (std::vector<Ns>{30, 0, 0}));
  EXPECT_EQ(line.makespan, 35);
}

// A hybrid holds both lanes; its stall is not exposed time.
TEST(Timeline, HybridHoldsBothLanes) {
  Problem problem = make({start(1, 40), start(1, 10), wait(0), compute(1)}, 2);
  problem.nodes[1].kind = NodeKind::Hybrid;
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.start[1], 40);
  EXPECT_EQ(line.end[3], 51);
  EXPECT_EQ(line.exposedTotal, 0);
  EXPECT_EQ(line.makespan, 51);
  EXPECT_EQ(makespanOf(problem, identityOrder(problem)), 51);
}

// 1000 ns of compute against a collective from 0 to 500: at 250 permille 400 of it are done by 500, the rest is alone.
TEST(Timeline, ComputeIsSlowerWhileACollectiveFlies) {
  Problem problem = make({start(1, 500), compute(1000), wait(0)}, 2);
  SlowDown slowDown;
  slowDown.computePermille = 250;
  EXPECT_EQ(simulate(problem, identityOrder(problem), slowDown).makespan, 1100);
}

// The second collective begins while the first flies on another lane of the same link, the third does not.
TEST(Timeline, CollectivesOnOneLinkSlowTheLaterOne) {
  Problem problem = make({start(1, 100), start(2, 100), start(3, 100), compute(500), start(1, 100)}, 4);
  SlowDown slowDown;
  slowDown.linkPermille = 500;
  slowDown.linkOfLane = {0, 1, 1, 2};
  Timeline line = simulate(problem, identityOrder(problem), slowDown);
  EXPECT_EQ(line.end, (std::vector<Ns>{100, 150, 100, 500, 600}));
}

} // namespace
