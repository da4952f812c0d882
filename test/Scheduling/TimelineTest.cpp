//===- TimelineTest.cpp - Tests of the time model ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Scheduling/Time/Envelope.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::test;

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

/// Plays an order in another style: one clock per lane, set by the rules of Models.md as they are written there.
Timeline playByTheBook(const Problem &problem, const Order &order) {
  Timeline line;
  line.start.resize(problem.size());
  line.end.resize(problem.size());
  std::vector<Ns> laneTime(problem.numLanes(), 0);
  for (size_t lane = 0; lane < problem.busyUntil.size(); ++lane)
    laneTime[lane] = problem.busyUntil[lane];
  for (NodeId id : order) {
    const Node &node = problem.nodes[id];
    Ns &compute = laneTime[0], begin = compute;
    if (node.region != kNone) {
      begin = std::max(begin, node.ready);
      for (NodeId start : problem.regions[node.region].starts)
        begin = std::max(begin, line.end[start]);
      for (LaneId lane : problem.regions[node.region].lanes)
        begin = std::max(begin, laneTime[lane]);
      compute = begin;
    }
    if (node.kind == NodeKind::Compute) {
      compute += node.cost;
    } else if (node.kind == NodeKind::Wait) {
      compute = std::max(compute, node.start == kNone ? node.ready : line.end[node.start]);
    } else {
      begin = std::max(compute, laneTime[node.lane]);
      laneTime[node.lane] = begin + node.cost;
      compute = node.kind == NodeKind::Hybrid ? begin + node.cost : compute + node.issue;
      if (node.region != kNone)
        for (LaneId lane : problem.regions[node.region].lanes)
          laneTime[lane] = compute;
    }
    line.start[id] = begin;
    line.end[id] = node.lane != kComputeLane ? laneTime[node.lane] : compute;
  }
  line.makespan = *std::max_element(laneTime.begin(), laneTime.end());
  return line;
}

TEST(Timeline, IsTheDefinition) {
  Random random(11);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(5, 40));
    options.commLanes = 4;
    options.maxCost = random.between(5, 200);
    Problem problem = randomProblem(seed, options);
    Order order = randomOrder(problem, random);
    Timeline line = simulate(problem, order), expected = playByTheBook(problem, order);
    ASSERT_EQ(line.makespan, expected.makespan) << "seed " << seed;
    ASSERT_EQ(line.start, expected.start);
    ASSERT_EQ(line.end, expected.end);
    ASSERT_EQ(line.makespan, makespanOf(problem, order));
    // A prefix has the timeline that it has in the whole.
    size_t half = order.size() / 2;
    Timeline prefix = simulate(problem, llvm::ArrayRef<NodeId>(order).take_front(half));
    for (size_t at = 0; at < half; ++at)
      ASSERT_EQ(prefix.end[order[at]], line.end[order[at]]);
  }
}

// A petabyte's worth of time does not overflow, and nothing costs nothing.
TEST(Timeline, LargeAndZeroCosts) {
  constexpr Ns year = Ns(365) * 86400 * 1000000000;
  Problem problem = make({start(1, 40 * year), compute(20 * year), wait(0), start(1, 0), wait(3)}, 2);
  EXPECT_EQ(simulate(problem, identityOrder(problem)).makespan, 40 * year);
  EXPECT_EQ(simulate(problem, identityOrder(problem)).end[1], 20 * year);
}

/// The problem with every cost drawn between the costs of two others.
Problem drawBetween(const Problem &low, const Problem &high, Random &random) {
  Problem result = low;
  for (NodeId id = 0; id < low.size(); ++id)
    result.nodes[id].cost = random.between(low.nodes[id].cost, high.nodes[id].cost);
  return result;
}

// The makespan of an order is monotone in every duration without contention.
TEST(Envelope, HoldsForAllDurationsInBetween) {
  Random random(11);
  for (int32_t round = 0; round < 600; ++round) {
    RandomOptions options;
    options.nodes = 14;
    options.maxCost = 1000;
    options.chanceOfStart = 50;
    Problem low = randomProblem(random.between(0, 1 << 30), options), high = low;
    for (Node &node : high.nodes)
      node.cost += random.between(0, node.cost / 2);
    Order order = identityOrder(low);
    const Ns least = undisturbedMakespanOf(low, order), largest = largestMakespan(high, order);
    EXPECT_EQ(largest, makespanOf(high, order));
    for (int32_t draw = 0; draw < 20; ++draw) {
      Ns makespan = makespanOf(drawBetween(low, high, random), order);
      ASSERT_LE(least, makespan) << "round " << round;
      ASSERT_LE(makespan, largest) << "round " << round;
    }
  }
}

} // namespace
