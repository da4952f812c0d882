//===- TimelineTest.cpp - Tests of the time model ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Scheduling/Model/Envelope.h"
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

/// Plays an order with slow-downs in another style: every nanosecond is a cell.
Timeline tickByTick(const Problem &problem, const Order &order, const SlowDown &slowDown) {
  Timeline line;
  line.start.resize(problem.size());
  line.end.resize(problem.size());
  std::vector<Ns> laneTime(problem.numLanes(), 0);
  for (size_t lane = 0; lane < problem.busyUntil.size(); ++lane)
    laneTime[lane] = problem.busyUntil[lane];
  std::vector<std::vector<bool>> flying(problem.numLanes(), std::vector<bool>(100000, false));
  auto anyFlies = [&](Ns tick) {
    for (const std::vector<bool> &lane : flying)
      if (lane[tick])
        return true;
    return false;
  };
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
      // Whole stretches of ticks with or without anything in flight.
      for (Ns left = node.cost; left > 0;) {
        bool busy = anyFlies(compute);
        Ns stretch = 0, needed = busy ? (left * (1000 + slowDown.computePermille) + 999) / 1000 : left;
        while (anyFlies(compute + stretch) == busy && stretch < needed)
          ++stretch;
        left -= stretch == needed ? left : busy ? stretch * 1000 / (1000 + slowDown.computePermille) : stretch;
        compute += stretch;
      }
    } else if (node.kind == NodeKind::Wait) {
      compute = std::max(compute, node.start == kNone ? node.ready : line.end[node.start]);
    } else {
      begin = std::max(compute, laneTime[node.lane]);
      bool disturbed = false;
      for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
        disturbed |=
            lane != node.lane && slowDown.linkOfLane[lane] == slowDown.linkOfLane[node.lane] && flying[lane][begin];
      Ns cost = disturbed ? (node.cost * (1000 + slowDown.linkPermille) + 999) / 1000 : node.cost;
      for (Ns tick = begin; tick < begin + cost; ++tick)
        flying[node.lane][tick] = true;
      laneTime[node.lane] = begin + cost;
      compute = node.kind == NodeKind::Hybrid ? begin + cost : compute + node.issue;
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

TEST(Timeline, SlowDownsAreTheDefinition) {
  Random random(11);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(5, 40));
    options.commLanes = 4;
    options.maxCost = random.between(5, 200);
    Problem problem = randomProblem(seed, options);
    SlowDown slowDown;
    slowDown.computePermille = static_cast<int32_t>(random.below(900));
    slowDown.linkPermille = static_cast<int32_t>(random.below(900));
    slowDown.linkOfLane = {0, 1, 1, 2, 2};
    Order order = randomOrder(problem, random);
    Timeline line = simulate(problem, order, slowDown), expected = tickByTick(problem, order, slowDown);
    ASSERT_EQ(line.makespan, expected.makespan) << "seed " << seed;
    ASSERT_EQ(line.start, expected.start);
    ASSERT_EQ(line.end, expected.end);
    // Slower, never faster; and without a slow-down the same as always.
    ASSERT_GE(line.makespan, makespanOf(problem, order));
    SlowDown none;
    none.linkOfLane = slowDown.linkOfLane;
    none.linkPermille = 0;
    ASSERT_EQ(simulate(problem, order, none).makespan, makespanOf(problem, order));
    // A prefix has the timeline that it has in the whole.
    size_t half = order.size() / 2;
    Timeline prefix = simulate(problem, llvm::ArrayRef<NodeId>(order).take_front(half), slowDown);
    for (size_t at = 0; at < half; ++at)
      ASSERT_EQ(prefix.end[order[at]], line.end[order[at]]);
  }
}

// A petabyte's worth of time does not overflow, and nothing costs nothing.
TEST(Timeline, LargeAndZeroCosts) {
  constexpr Ns year = Ns(365) * 86400 * 1000000000;
  Problem problem = make({start(1, 40 * year), compute(20 * year), wait(0), start(1, 0), wait(3)}, 2);
  SlowDown slowDown;
  slowDown.computePermille = 500;
  EXPECT_EQ(simulate(problem, identityOrder(problem), slowDown).makespan, 40 * year);
  EXPECT_EQ(simulate(problem, identityOrder(problem), slowDown).end[1], 30 * year);
}

/// The problem with every cost drawn between the costs of two others.
Problem drawBetween(const Problem &low, const Problem &high, Random &random) {
  Problem result = low;
  for (NodeId id = 0; id < low.size(); ++id)
    result.nodes[id].cost = random.between(low.nodes[id].cost, high.nodes[id].cost);
  return result;
}

// The makespan of an order is monotone in every duration as long as links do not slow down; with links that do, the
// bounds still hold for all durations in between.
TEST(Envelope, HoldsForAllDurationsInBetween) {
  Random random(11);
  int64_t outside = 0;
  for (int32_t round = 0; round < 600; ++round) {
    RandomOptions options;
    options.nodes = 14;
    options.maxCost = 1000;
    options.chanceOfStart = 50;
    Problem low = randomProblem(random.between(0, 1 << 30), options), high = low;
    for (Node &node : high.nodes)
      node.cost += random.between(0, node.cost / 2);
    Order order = identityOrder(low);
    SlowDown slowDown;
    slowDown.computePermille = round % 3 ? 0 : 300;
    if (round % 2) {
      slowDown.linkPermille = 700;
      slowDown.linkOfLane.assign(low.numLanes(), 0);
      slowDown.linkOfLane[0] = kNone;
    }
    Ns least = leastMakespan(low, order, slowDown), largest = largestMakespan(high, order, slowDown);
    if (slowDown.linkPermille == 0) {
      EXPECT_EQ(least, makespanOf(low, order, slowDown));
      EXPECT_EQ(largest, makespanOf(high, order, slowDown));
    }
    for (int32_t draw = 0; draw < 20; ++draw) {
      Ns makespan = makespanOf(drawBetween(low, high, random), order, slowDown);
      ASSERT_LE(least, makespan) << "round " << round;
      ASSERT_LE(makespan, largest) << "round " << round;
      outside += makespan < makespanOf(low, order, slowDown) || makespan > makespanOf(high, order, slowDown);
    }
  }
  // Links that slow down are the reason for the bounds.
  EXPECT_GT(outside, 0);
}

// A collective that becomes ready earlier may take longer: a gather of 100 ns is in flight when a reduction of 100 ns
// begins at 90, and has ended when it begins at 110.
TEST(Envelope, IsNotMonotoneWithLinks) {
  SlowDown slowDown;
  slowDown.linkPermille = 500;
  slowDown.linkOfLane = {kNone, 0, 0};
  auto program = [](Ns cost) { return make({start(1, 100), compute(cost), start(2, 100), wait(0), wait(2)}, 3); };
  Problem fast = program(90), slow = program(110);
  EXPECT_EQ(makespanOf(fast, identityOrder(fast), slowDown), 240);
  EXPECT_EQ(makespanOf(slow, identityOrder(slow), slowDown), 210);
  EXPECT_EQ(leastMakespan(fast, identityOrder(fast), slowDown), 190);
  EXPECT_EQ(largestMakespan(slow, identityOrder(slow), slowDown), 260);
}

} // namespace
