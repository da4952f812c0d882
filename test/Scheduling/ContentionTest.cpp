//===- ContentionTest.cpp - Tests of activities that share resources --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle plays an order nanosecond by nanosecond.
//
//===------------------------------------------------------------------------------------------===//

#include "AllOrders.h"
#include "Check/OrderVerifier.h"
#include "CheckResult.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Envelope.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomDemands.h"
#include "Solver/Decode/Decoder.h"
#include "Solver/Moves/ContendedMoves.h"
#include "Time/ContentionClock.h"
#include "gtest/gtest.h"
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace {

/// Plays an order nanosecond by nanosecond.
class TickByTick {
public:
  TickByTick(const Problem &problem, llvm::ArrayRef<NodeId> order) : problem(problem), queues(problem.numLanes()) {
    line.start.assign(problem.size(), 0);
    line.end.assign(problem.size(), 0);
    for (size_t lane = 1; lane < problem.busyUntil.size(); ++lane)
      if (problem.busyUntil[lane] > 0)
        queues[lane].push_back({kNone, problem.busyUntil[lane] * kWhole, Demand()});
    for (NodeId id : order)
      play(id);
    while (anyQueued())
      tick();
    line.makespan = now;
  }

  Timeline line;

private:
  struct Piece {
    NodeId id;
    Wide left;
    Demand demand;
  };

  bool anyQueued() const {
    return std::any_of(queues.begin(), queues.end(), [](const auto &queue) { return !queue.empty(); });
  }

  /// Ends what is done, and begins what follows it.
  void settle() {
    for (std::vector<Piece> &queue : queues) {
      bool ended = true;
      while (ended && !queue.empty()) {
        ended = queue.front().left <= 0;
        NodeId id = queue.front().id;
        if (ended && id != kNone) {
          line.end[id] = now;
          over[id] = true;
        }
        if (ended)
          queue.erase(queue.begin());
        if (ended && !queue.empty() && queue.front().id != kNone)
          line.start[queue.front().id] = now;
      }
    }
  }

  void tick() {
    std::vector<Demand> demands;
    std::vector<Piece *> pieces;
    for (std::vector<Piece> &queue : queues)
      if (!queue.empty()) {
        demands.push_back(queue.front().demand);
        pieces.push_back(&queue.front());
      }
    std::vector<int64_t> rates = ratesByLevel(demands);
    for (size_t at = 0; at < pieces.size(); ++at)
      pieces[at]->left -= rates[at];
    ++now;
    settle();
  }

  void put(NodeId id, LaneId lane) {
    const Node &node = problem.nodes[id];
    if (queues[lane].empty())
      line.start[id] = now;
    queues[lane].push_back({id, static_cast<Wide>(node.cost) * kWhole, problem.demandOf(node)});
    settle();
  }

  void await(NodeId start, Ns ready) {
    while (start == kNone ? now < ready : !over[start])
      tick();
  }

  void play(NodeId id) {
    const Node &node = problem.nodes[id];
    if (node.kind == NodeKind::Start) {
      put(id, node.lane);
      for (Ns left = node.issue; left > 0; --left)
        tick();
      return;
    }
    if (node.kind == NodeKind::Wait) {
      line.start[id] = now;
      await(node.start, node.ready);
      line.end[id] = now;
      return;
    }
    std::vector<LaneId> lanes;
    if (node.region != kNone)
      lanes = problem.regions[node.region].lanes;
    else if (node.lane != kComputeLane)
      lanes = {node.lane};
    for (LaneId lane : lanes)
      while (!queues[lane].empty())
        tick();
    if (node.region != kNone) {
      await(kNone, node.ready);
      for (NodeId start : problem.regions[node.region].starts)
        await(start, 0);
    }
    put(id, kComputeLane);
    while (!queues[kComputeLane].empty())
      tick();
    line.end[id] = now;
  }

  const Problem &problem;
  std::vector<std::vector<Piece>> queues;
  std::map<NodeId, bool> over;
  Ns now = 0;
};

Node work(NodeKind kind, LaneId lane, Ns cost, NodeId start = kNone) {
  Node node;
  node.kind = kind;
  node.lane = lane;
  node.cost = cost;
  node.start = start;
  return node;
}

Demand on(Resource resource, int64_t permille, int64_t weight = kFairWeight) {
  Demand demand;
  demand.set(resource, permille * 1000, weight);
  return demand;
}

/// A problem whose only edges are those from starts to their waits.
Problem make(std::vector<Node> nodes, std::vector<Demand> demands, LaneId lanes) {
  Problem problem;
  for (LaneId lane = 0; lane < lanes; ++lane)
    problem.laneNames.push_back("lane" + std::to_string(lane));
  for (size_t at = 0; at < nodes.size(); ++at) {
    problem.setDemand(nodes[at], demands[at]);
    NodeId start = nodes[at].start;
    problem.preds.append(start == kNone ? llvm::ArrayRef<int32_t>() : llvm::ArrayRef<int32_t>(start));
    problem.touches.append({});
  }
  problem.nodes = std::move(nodes);
  problem.finalize();
  EXPECT_EQ(problem.validate(), "");
  return problem;
}

/// A gather that takes a fifth of the compute units and half of the memory, a product, and an elementwise kernel.
Problem gatherBeside(Ns product, Ns elementwise) {
  Demand gather = on(Resource::ComputeUnits, 200);
  gather.set(Resource::Memory, 500'000);
  return make({work(NodeKind::Start, 1, 1000), work(NodeKind::Compute, 0, product),
               work(NodeKind::Compute, 0, elementwise), work(NodeKind::Wait, 0, 0, 0)},
              {gather, on(Resource::ComputeUnits, 1000), on(Resource::Memory, 1000), Demand()}, 2);
}

// Tests that a product beside a gather gets what the gather leaves, and that it runs at its full rate afterwards.
TEST(Contention, AKernelGetsWhatACollectiveLeaves) {
  Problem problem = gatherBeside(1000, 0);
  Timeline line = simulate(problem, identityOrder(problem));
  // 800 ns of the product are done when the gather ends.
  EXPECT_EQ(line.end, (std::vector<Ns>{1000, 1200, 1200, 1200}));
  EXPECT_EQ(line.load, (std::vector<Ns>{1200, 1000}));
  EXPECT_EQ(undisturbedMakespanOf(problem, identityOrder(problem)), 1000);
  ASSERT_EQ(line.uses.size(), 3u);
  EXPECT_EQ(line.uses[0].share[0], kWhole);
  EXPECT_EQ(line.uses[1].begin, 1000);
  EXPECT_EQ(line.uses[1].share[1], 0);
  EXPECT_EQ(line.uses[2].begin, 1200);
}

// Tests that two activities that both need all of a resource get half of it each.
TEST(Contention, SharesAreFair) {
  Problem problem =
      make({work(NodeKind::Start, 1, 300), work(NodeKind::Compute, 0, 100), work(NodeKind::Wait, 0, 0, 0)},
           {on(Resource::Memory, 1000), on(Resource::Memory, 1000), Demand()}, 2);
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.end, (std::vector<Ns>{400, 200, 400}));
  EXPECT_EQ(line.exposed[2], 200);
}

// Tests that weights divide what is left: three quarters and a quarter.
TEST(Contention, WeightsDivideTheRest) {
  Problem problem =
      make({work(NodeKind::Start, 1, 300), work(NodeKind::Compute, 0, 100), work(NodeKind::Wait, 0, 0, 0)},
           {on(Resource::Memory, 1000, 3000), on(Resource::Memory, 1000), Demand()}, 2);
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.end, (std::vector<Ns>{400, 400, 400}));
}

// Tests that a collective that is in flight is slowed by one that begins later, and both go on at the new rates.
TEST(Contention, CollectivesOnOneLinkShareIt) {
  Demand link = on(Resource::NodeLinks, 1000);
  Problem problem = make({work(NodeKind::Start, 1, 100), work(NodeKind::Compute, 0, 50), work(NodeKind::Start, 2, 100),
                          work(NodeKind::Wait, 0, 0, 0), work(NodeKind::Wait, 0, 0, 2)},
                         {link, Demand(), link, Demand(), Demand()}, 3);
  Timeline line = simulate(problem, identityOrder(problem));
  EXPECT_EQ(line.end[0], 150);
  EXPECT_EQ(line.end[2], 200);
}

// Tests that times which no machine needs saturate instead of overflowing.
// Tests that demands are forgotten if no resource is used on two lanes, and that no makespan changes by that.
TEST(Contention, IdleDemandsAreDropped) {
  int dropped = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomOptions options;
    options.nodes = 20;
    options.commLanes = 2;
    Problem problem = randomProblem(seed, options);
    // Each lane has a resource of its own; in every third problem, two share one.
    for (Node &node : problem.nodes)
      if (node.kind == NodeKind::Start || node.kind == NodeKind::Compute) {
        Demand demand;
        LaneId lane = node.kind == NodeKind::Start ? node.lane : kComputeLane;
        demand.set(static_cast<Resource>(seed % 3 == 0 && lane == 2 ? 1 : lane), kWhole);
        problem.setDemand(node, demand);
      }
    Problem without = problem;
    without.dropIdleDemands();
    Order order = identityOrder(problem);
    EXPECT_EQ(makespanOf(problem, order), makespanOf(without, order));
    std::set<LaneId> lanes;
    for (const Node &node : problem.nodes)
      if (node.kind == NodeKind::Start)
        lanes.insert(node.lane);
    EXPECT_EQ(without.hasContention(), seed % 3 == 0 && lanes.size() == 2);
    dropped += !without.hasContention();
  }
  EXPECT_GE(dropped, 40);
}

TEST(Contention, LargeTimesSaturate) {
  Problem problem = make({work(NodeKind::Start, 1, kMaxTotalNs / 4), work(NodeKind::Compute, 0, kMaxTotalNs / 4),
                          work(NodeKind::Wait, 0, 0, 0)},
                         {on(Resource::Memory, 1000, kMaxWeight), on(Resource::Memory, 1000, 1), Demand()}, 2);
  EXPECT_EQ(simulate(problem, identityOrder(problem)).makespan, kMaxTotalNs / 2);
  problem.demands[0].weight[1] = 1;
  problem.demands[1].share[1] = 1;
  problem.demands[0].set(Resource::ComputeUnits, kWhole, 1);
  problem.demands[1].set(Resource::ComputeUnits, kWhole, kMaxWeight);
  EXPECT_LE(simulate(problem, identityOrder(problem)).makespan, kMaxTotalNs);
}

RandomOptions drawn(Random &random) {
  RandomOptions options;
  options.nodes = static_cast<int32_t>(random.between(5, 40));
  options.commLanes = static_cast<int32_t>(random.between(1, 4));
  options.chanceOfStart = static_cast<int32_t>(random.between(10, 50));
  options.maxCost = random.between(5, 60);
  return options;
}

// Tests that the clock is its definition, nanosecond by nanosecond, and that it never undercuts the undisturbed one.
TEST(Contention, ClocksAreTheDefinition) {
  Random random(5);
  int32_t slower = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Problem problem = randomProblem(seed, drawn(random));
    addRandomDemands(problem, seed);
    ASSERT_EQ(problem.validate(), "");
    Order order = randomOrder(problem, random);
    Timeline line = simulate(problem, order), expected = TickByTick(problem, order).line;
    ASSERT_EQ(line.makespan, expected.makespan) << "seed " << seed;
    ASSERT_EQ(line.start, expected.start) << "seed " << seed;
    ASSERT_EQ(line.end, expected.end) << "seed " << seed;
    ASSERT_EQ(line.makespan, makespanOf(problem, order));
    Ns undisturbed = undisturbedMakespanOf(problem, order);
    ASSERT_GE(line.makespan, undisturbed);
    slower += line.makespan > undisturbed;
    // The verifier counts with a clock of its own.
    Schedule schedule;
    schedule.order = order;
    schedule.claims = {line.makespan, peakOf(problem, order)};
    ASSERT_EQ(verify(problem, schedule, {}), "") << "seed " << seed;
    schedule.claims->makespan -= 1;
    ASSERT_NE(verify(problem, schedule, {}), "");
    // No resource is used beyond what there is, and all of its work is done.
    std::array<Wide, kNumResources> used{};
    for (size_t at = 0; at + 1 < line.uses.size(); ++at)
      for (unsigned resource = 0; resource < kNumResources; ++resource) {
        ASSERT_LE(line.uses[at].share[resource], kWhole);
        used[resource] +=
            static_cast<Wide>(line.uses[at].share[resource]) * (line.uses[at + 1].begin - line.uses[at].begin);
      }
    Wide pieces = 4 * static_cast<Wide>(problem.size()) * (line.makespan + 1);
    for (unsigned resource = 0; resource < kNumResources; ++resource) {
      Wide total = 0;
      for (const Node &node : problem.nodes)
        total += static_cast<Wide>(problem.demandOf(node).share[resource]) * node.cost;
      ASSERT_LE(total, static_cast<Wide>(line.makespan) * kWhole);
      ASSERT_LE(total, used[resource] + pieces) << "seed " << seed;
    }
  }
  EXPECT_GE(slower, 150);
}

// Tests that no order whatever is below the bound. COMMSCHED_CONTENTION_PROBLEMS sets the number of problems.
TEST(Contention, NoOrderIsBelowTheBound) {
  const char *asked = std::getenv("COMMSCHED_CONTENTION_PROBLEMS");
  uint64_t problems = asked ? std::strtoull(asked, nullptr, 10) : 400;
  constexpr int32_t kOrders = 400;
  uint64_t complete = 0, tight = 0, byResource = 0, undisturbedTight = 0;
  for (uint64_t seed = 0; seed < problems; ++seed) {
    Random random(seed);
    RandomOptions options = drawn(random);
    options.nodes = static_cast<int32_t>(random.between(2, 8));
    options.chanceOfStart = static_cast<int32_t>(random.between(20, 60));
    Problem problem = randomProblem(seed, options), plain = problem;
    addRandomDemands(problem, seed);
    LowerBound bound = lowerBound(problem);
    ASSERT_GE(bound.makespan, lowerBound(plain).makespan);
    Ns best = kMaxTotalNs;
    int32_t played = 0;
    AllOrders(problem, [&](const Order &order) {
      if (played == kOrders)
        return false;
      if (order.size() < problem.nodes.size())
        return true;
      best = std::min(best, makespanOf(problem, order));
      ++played;
      return false;
    });
    ASSERT_LE(bound.makespan, best) << "seed " << seed << ", " << bound.describe(problem);
    if (played == kOrders)
      continue;
    ++complete;
    tight += bound.makespan == best;
    undisturbedTight += lowerBound(plain).makespan == best;
    byResource += bound.argument == BoundArgument::ResourceLoad;
  }
  // A fall below what was measured means that an argument was lost.
  EXPECT_GE(complete * 100, problems * 60);
  EXPECT_GE(tight * 100, complete * 50) << tight << " of " << complete;
  EXPECT_GE(byResource * 100, complete * 5) << byResource << " of " << complete;
  EXPECT_GT(tight, undisturbedTight);
}

// Tests that makespans of durations between two others are within the envelope.
TEST(Contention, EnvelopesHoldWithIt) {
  Random random(8);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Problem low = randomProblem(seed, drawn(random));
    addRandomDemands(low, seed);
    Problem high = low, between = low;
    for (NodeId id = 0; id < low.size(); ++id) {
      high.nodes[id].cost += random.below(low.nodes[id].cost + 1);
      between.nodes[id].cost = random.between(low.nodes[id].cost, high.nodes[id].cost);
    }
    Order order = randomOrder(low, random);
    Ns least = undisturbedMakespanOf(low, order), largest = largestMakespan(high, order);
    for (const Problem *problem : {&low, &high, &between}) {
      ASSERT_LE(least, makespanOf(*problem, order)) << "seed " << seed;
      ASSERT_GE(largest, makespanOf(*problem, order)) << "seed " << seed;
    }
  }
}

// Tests that demands that are never exceeded change nothing.
TEST(Contention, EnoughOfEverythingChangesNothing) {
  Random random(6);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomOptions options = drawn(random);
    Problem problem = randomProblem(seed, options), plain = problem;
    for (Node &node : problem.nodes)
      problem.setDemand(node, on(Resource::Memory, 1000 / (options.commLanes + 1)));
    Order order = randomOrder(problem, random);
    Timeline with = simulate(problem, order), without = simulate(plain, order);
    ASSERT_EQ(with.start, without.start) << "seed " << seed;
    ASSERT_EQ(with.end, without.end);
    ASSERT_EQ(with.exposed, without.exposed);
    ASSERT_EQ(with.load, without.load);
    ASSERT_EQ(with.makespan, without.makespan);
    ASSERT_EQ(with.exposedTotal, without.exposedTotal);
  }
}

// Tests that the decoder's clock, the timeline and the verifier agree on every answer of a search, with buckets too,
// and that no answer is slower than the input.
TEST(Contention, SearchesPlanWithIt) {
  Random random(7);
  int32_t better = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    RandomOptions options = drawn(random);
    options.nodes = static_cast<int32_t>(random.between(5, 80));
    options.collectiveOrder = static_cast<CollectiveOrder>(random.below(3));
    Problem problem = randomProblem(seed, options);
    addRandomDemands(problem, seed);
    ScheduleOptions solve;
    solve.bucketing = random.percent(60);
    solve.collectiveOrder = options.collectiveOrder;
    solve.effort = 4000;
    Schedule result = schedule(problem, solve);
    ASSERT_EQ(result.defect, "") << "seed " << seed;
    checkResult(problem, solve, result);
    if (testing::Test::HasFatalFailure())
      FAIL() << "seed " << seed;
    better += result.makespan < result.inputMakespan;
  }
  EXPECT_GE(better, 100);
}

// Tests the same on training steps, where buckets pay.
TEST(Contention, SearchesMergeWithIt) {
  int32_t merged = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    LayeredOptions layers;
    layers.layers = 8;
    layers.computes = 2;
    layers.tensorParallel = seed % 2 == 1;
    Problem problem = layeredProblem(seed, layers);
    addRandomDemands(problem, seed);
    ScheduleOptions solve;
    solve.bucketing = true;
    solve.effort = 20000;
    Schedule result = schedule(problem, solve);
    checkResult(problem, solve, result);
    if (testing::Test::HasFatalFailure())
      FAIL() << "seed " << seed;
    merged += !result.buckets.empty();
  }
  EXPECT_GE(merged, 5);
}

/// The order that a policy decodes to. The reference is the given order.
Order decode(const Problem &problem, const Policy &policy) {
  ScheduleFacts facts(problem, /*bucketing=*/false);
  Decoder decoder(facts);
  Reference reference(facts, identityOrder(problem));
  DecodedSchedule decoded;
  EXPECT_TRUE(decoder.run(reference, policy, kUnlimited, kMaxTotalNs, decoded));
  Order order;
  for (DecodeStep step : decoded.steps)
    order.push_back(step.id);
  EXPECT_EQ(decoded.makespan, makespanOf(problem, order));
  return order;
}

// Tests that a policy that compares computes puts the product beside the gather, and the elementwise kernel behind it.
TEST(Contention, PoliciesCompareComputes) {
  Problem problem = gatherBeside(800, 500);
  std::swap(problem.nodes[1], problem.nodes[2]);
  Policy policy;
  EXPECT_EQ(decode(problem, policy), (Order{0, 1, 3, 2}));
  policy.compared = 4;
  EXPECT_EQ(decode(problem, policy), (Order{0, 2, 3, 1}));
}

// Tests that a policy with patience lets a gather wait for the product if it has the time: the elementwise kernel, the
// product and what needs the gather are a chain.
TEST(Contention, PoliciesHoldStartsBack) {
  Demand gather = on(Resource::ComputeUnits, 200);
  gather.set(Resource::Memory, 500'000);
  Problem problem =
      make({work(NodeKind::Start, 1, 300), work(NodeKind::Compute, 0, 500), work(NodeKind::Compute, 0, 800),
            work(NodeKind::Wait, 0, 0, 0), work(NodeKind::Compute, 0, 100)},
           {gather, on(Resource::Memory, 1000), on(Resource::ComputeUnits, 1000), Demand(),
            on(Resource::ComputeUnits, 1000)},
           2);
  problem.preds = IndexLists();
  for (std::vector<int32_t> preds : {std::vector<int32_t>{}, {}, {1}, {0}, {2, 3}})
    problem.preds.append(preds);
  problem.finalize();
  Policy policy;
  EXPECT_EQ(decode(problem, policy), (Order{0, 1, 3, 2, 4}));
  policy.patience = 600;
  Order patient = decode(problem, policy);
  EXPECT_EQ(patient, (Order{1, 0, 2, 3, 4}));
  EXPECT_EQ(makespanOf(problem, patient), 1460);
  EXPECT_EQ(makespanOf(problem, identityOrder(problem)), 1550);
}

// Tests that moves keep every order legal and within the limit, never lengthen it, and know its makespan; on most
// problems they shorten a random order.
TEST(Contention, MovesShortenOrders) {
  Random random(9);
  int32_t shorter = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    RandomOptions options = drawn(random);
    options.nodes = static_cast<int32_t>(random.between(10, 120));
    options.chanceOfArgumentFuture = seed % 3 == 0 ? 10 : 0;
    Problem problem = randomProblem(seed, options);
    addRandomDemands(problem, seed);
    Order order = randomOrder(problem, random);
    Bytes limit = seed % 2 == 0 ? kUnlimited : peakOf(problem, order);
    ContendedMoves moves(problem, order, limit);
    ASSERT_EQ(moves.makespan(), makespanOf(problem, order)) << "seed " << seed;
    int64_t steps = 3000;
    moves.run(steps, /*target=*/0);
    ASSERT_LE(steps, 0);
    ASSERT_EQ(moves.makespan(), makespanOf(problem, moves.order())) << "seed " << seed;
    ASSERT_LE(moves.makespan(), makespanOf(problem, order));
    ScheduleRequirements requirements;
    requirements.peakLimit = limit;
    ASSERT_EQ(verifyOrder(problem, moves.order(), requirements), "") << "seed " << seed;
    shorter += moves.makespan() < makespanOf(problem, order);
  }
  EXPECT_GE(shorter, 80);
}

} // namespace
