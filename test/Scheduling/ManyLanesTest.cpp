//===- ManyLanesTest.cpp - Tests of problems with thousands of groups -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A program may have a group for each of its collectives. Nothing may look at all lanes before each compute.
//
//===------------------------------------------------------------------------------------------===//

#include "CheckResult.h"
#include "RandomProblem.h"
#include "Solver/Decode/DryLanes.h"

using namespace commsched;
using namespace commsched::test;

namespace {

TEST(DryLanes, FindsWhatALoopFinds) {
  Random random(3);
  for (LaneId lanes : {1, 2, 3, 8, 13, 64, 100}) {
    DryLanes dry;
    dry.reset(lanes);
    std::vector<Ns> times(lanes, DryLanes::kNever);
    for (int32_t round = 0; round < 300; ++round) {
      auto changed = static_cast<LaneId>(random.below(lanes));
      times[changed] = random.percent(30) ? DryLanes::kNever : random.below(50) - 10;
      dry.set(changed, times[changed]);
      auto from = static_cast<LaneId>(random.below(lanes + 2));
      Ns until = random.percent(10) ? DryLanes::kNever : random.below(50) - 10;
      LaneId expected = from;
      while (expected < lanes && times[expected] >= until)
        ++expected;
      ASSERT_EQ(dry.next(from, until), expected < lanes ? expected : kNone);
    }
  }
}

/// A chain of computes of 100 ns, each behind a gather of 150 ns and 100 bytes of a group of its own.
Problem gathersOfManyGroups(LaneId groups, int32_t computes) {
  Problem problem;
  problem.laneNames = {"compute"};
  for (LaneId lane = 1; lane <= groups; ++lane)
    problem.laneNames.push_back("g" + std::to_string(lane));
  auto add = [&](const Node &node, std::vector<NodeId> preds, std::vector<BufferId> touches) {
    problem.nodes.push_back(node);
    problem.preds.append(preds);
    problem.touches.append(touches);
  };
  for (int32_t index = 0; index < computes; ++index) {
    NodeId first = problem.size();
    problem.buffers.push_back({100, first, false});
    Node start, wait, work;
    start.kind = NodeKind::Start;
    start.lane = 1 + index % groups;
    start.group = index % groups;
    start.cost = 150;
    wait.kind = NodeKind::Wait;
    wait.start = first;
    work.cost = 100;
    add(start, {}, {index});
    add(wait, {first}, {index});
    add(work, index == 0 ? std::vector<NodeId>{first + 1} : std::vector<NodeId>{first - 1, first + 1}, {index});
  }
  problem.finalize();
  return problem;
}

// Tests that memory which refuses nearly everything costs a bounded number of steps for each compute.
TEST(ManyLanes, FullMemoryCostsNoMoreThanFewLanes) {
  Problem problem = gathersOfManyGroups(1500, 1500);
  ASSERT_EQ(problem.validate(), "");
  ScheduleOptions options;
  options.effort = 0;
  options.memory.limit = 400;
  Schedule result = schedule(problem, options);
  ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result));
  // The first gather is exposed; then each compute covers those that come next, since what is needed first has memory.
  EXPECT_EQ(result.makespan, 150 + 1500 * 100);
  // A decode that tried all lanes would take 1,500 * 1,500 steps.
  EXPECT_LT(result.steps, 150 * problem.size());
}

// Tests that bounds hold, and stay tight, with more lanes than they track.
TEST(ManyLanes, BoundsHold) {
  Problem problem = gathersOfManyGroups(300, 1000);
  ASSERT_EQ(problem.validate(), "");
  ScheduleOptions options;
  options.effort = 20000;
  options.memory.limit = Bytes(1) << 40;
  Schedule best = schedule(problem, options);
  ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, best));
  EXPECT_EQ(best.makespan, 150 + 1000 * 100);
  for (NodeId exactNodes : {0, 24000}) {
    BoundOptions bounds;
    bounds.exactNodes = exactNodes;
    bounds.window = 400;
    EXPECT_EQ(lowerBound(problem, bounds).makespan, best.makespan);
  }
  // Lanes of different loads, of which most are not tracked.
  for (uint64_t seed = 0; seed < portion(20u); ++seed) {
    RandomOptions shape;
    shape.nodes = 800;
    shape.commLanes = 200;
    shape.mergeKinds = 1;
    shape.chanceOfStart = 60;
    Problem drawn = randomProblem(seed, shape);
    Schedule result = schedule(drawn, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(drawn, options, result)) << "seed " << seed;
  }
}

} // namespace
