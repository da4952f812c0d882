//===- VariantsTest.cpp - Tests of the choice between ways to carry out a collective ----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle enumerates all orders and all choices of small problems. Answers of larger ones are compared with the
// verifier's own count and with answers without a choice.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Variants.h"
#include "CheckResult.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "RandomDemands.h"
#include "Solver/Moves/ContendedOrder.h"
#include "gtest/gtest.h"
#include <functional>

using namespace commsched;
using namespace commsched::test;

namespace {

const std::vector<VariantName> kNames = {
    {VariantName::Ring, 4}, {VariantName::CopyEngine, 0}, {VariantName::Symmetric, 0}};

/// Gives most starts, and all merge keys, other ways to be carried out: cheaper and dearer ones.
void addRandomVariants(Problem &problem, uint64_t seed) {
  Random random(seed ^ 0x7a31);
  problem.variantNames = kNames;
  bool contends = problem.hasContention();
  for (Node &node : problem.nodes) {
    if (node.kind != NodeKind::Start || random.percent(20))
      continue;
    node.variants = static_cast<int32_t>(problem.startVariants.size());
    std::vector<StartVariant> list;
    for (int32_t name = 0; name < 3; ++name) {
      if (random.percent(40))
        continue;
      Node with;
      if (contends)
        problem.setDemand(with, randomDemand(random));
      list.push_back({name, random.between(node.cost / 2, 2 * node.cost), with.demand});
    }
    problem.startVariants.push_back(std::move(list));
  }
  for (MergeKey &key : problem.mergeKeys)
    for (int32_t name = 0; name < 3; ++name) {
      int64_t permille = random.between(500, 1500);
      MergeKey given = key;
      given.variants.clear();
      KeyVariant way;
      way.name = name;
      way.cost = [=](Bytes bytes, int32_t members) {
        return (members > 1 ? given.coalescedCost(bytes, members) : given.cost(bytes)) * permille / 1000;
      };
      if (contends)
        way.demand = [demand = randomDemand(random)](Bytes, Ns) { return demand; };
      key.variants.push_back(std::move(way));
    }
}

Problem withoutVariants(Problem problem) {
  problem.variantNames.clear();
  problem.startVariants.clear();
  for (Node &node : problem.nodes)
    node.variants = kNone;
  for (MergeKey &key : problem.mergeKeys)
    key.variants.clear();
  return problem;
}

Node work(NodeKind kind, LaneId lane, Ns cost, NodeId start = kNone) {
  Node node;
  node.kind = kind;
  node.lane = lane;
  node.cost = cost;
  node.start = start;
  return node;
}

Demand on(Resource resource, int64_t permille) {
  Demand demand;
  demand.set(resource, permille * 1000);
  return demand;
}

/// A gather that takes 1,000 ns and a fifth of the compute units, a product of 1,000 ns, and the wait. The gather can
/// also be a ring that takes 1,500 ns and a tenth of them, and copy engines that take 1,100 ns and none.
Problem gatherBesideProduct() {
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  problem.nodes = {work(NodeKind::Start, 1, 1000), work(NodeKind::Compute, 0, 1000), work(NodeKind::Wait, 0, 0, 0)};
  problem.setDemand(problem.nodes[0], on(Resource::ComputeUnits, 200));
  problem.setDemand(problem.nodes[1], on(Resource::ComputeUnits, 1000));
  problem.variantNames = {{VariantName::Ring, 4}, {VariantName::CopyEngine, 0}};
  Node ring, engines;
  problem.setDemand(ring, on(Resource::ComputeUnits, 100));
  problem.setDemand(engines, on(Resource::CopyEngines, 1000));
  problem.startVariants = {{{0, 1500, ring.demand}, {1, 1100, engines.demand}}};
  problem.nodes[0].variants = 0;
  for (std::vector<int32_t> preds : {std::vector<int32_t>{}, {}, {0}}) {
    problem.preds.append(preds);
    problem.touches.append({});
  }
  problem.finalize();
  EXPECT_EQ(problem.validate(), "");
  return problem;
}

// Tests that a slower way is chosen if it leaves the compute units to the product beside it.
TEST(Variants, CopyEnginesLeaveComputeUnits) {
  Problem problem = gatherBesideProduct();
  Schedule without = schedule(withoutVariants(problem)), with = schedule(problem);
  EXPECT_EQ(without.makespan, 1200);
  EXPECT_EQ(with.makespan, 1100);
  ASSERT_EQ(with.variants.size(), 1u);
  EXPECT_EQ(with.variants[0].start, 0);
  EXPECT_EQ(with.variants[0].name, 1);
  EXPECT_EQ(with.expanded.problem.nodes[with.imageOf(0)].cost, 1100);
  // A first answer tries each way for all collectives.
  ScheduleOptions first;
  first.effort = 0;
  Schedule answer = schedule(problem, first);
  EXPECT_EQ(answer.makespan, 1100);
  ASSERT_EQ(answer.variants.size(), 1u);
  EXPECT_EQ(answer.variants[0].name, 1);
}

// Tests that without contention the cheapest way counts, and none if none is cheaper.
TEST(Variants, CheapestWithoutContention) {
  Problem problem = gatherBesideProduct();
  problem.demands.clear();
  for (Node &node : problem.nodes)
    node.demand = kNone;
  problem.startVariants = {{{0, 1500, kNone}, {1, 800, kNone}}};
  problem.nodes[1].cost = 500;
  Schedule cheaper = schedule(problem);
  EXPECT_EQ(cheaper.makespan, 800);
  ASSERT_EQ(cheaper.variants.size(), 1u);
  EXPECT_EQ(cheaper.variants[0].name, 1);
  ScheduleOptions first;
  first.effort = 0;
  EXPECT_EQ(schedule(problem, first).makespan, 800);
  EXPECT_EQ(schedule(problem, first).variants.size(), 1u);
  problem.startVariants = {{{0, 1500, kNone}, {1, 1001, kNone}}};
  Schedule dearer = schedule(problem);
  EXPECT_EQ(dearer.makespan, 1000);
  EXPECT_TRUE(schedule(problem, first).variants.empty());
  EXPECT_TRUE(dearer.variants.empty());
}

// Tests that the verifier looks choices up itself: one that is not offered, one too many, one of a node that is not a
// start, and one that is said to be another are all found.
TEST(Variants, VerifierKnowsChoices) {
  Problem problem = gatherBesideProduct();
  Schedule good = schedule(problem);
  ASSERT_EQ(verify(problem, good, {}), "");
  auto broken = [&](std::vector<VariantChoice> variants) {
    Schedule bad = good;
    bad.variants = std::move(variants);
    return verify(problem, bad, {});
  };
  EXPECT_EQ(broken({{0, 7}}), "the variant of node 0: the start does not have it");
  EXPECT_EQ(broken({{0, 1}, {0, 1}}), "the variant of node 0: there are two");
  EXPECT_EQ(broken({{1, 1}}), "the variant of node 1: it is not a start");
  EXPECT_EQ(broken({{-1, 1}}), "the variant of node -1: it is not a start");
  EXPECT_EQ(broken({{0, 0}}), "the makespan is 1500 ns, the claim 1100");
  EXPECT_EQ(broken({}), "the makespan is 1200 ns, the claim 1100");
}

// Tests that choices keep what every answer keeps, make no answer longer, and many answers shorter, and that
// collectives of buckets are among them.
TEST(Variants, AnswersHold) {
  Random random(21);
  int32_t chosen = 0, shorter = 0, ofBuckets = 0, chosenAtFirst = 0;
  for (uint64_t seed = 0; seed < portion(160u); ++seed) {
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(5, 70));
    options.commLanes = static_cast<int32_t>(random.between(1, 3));
    options.collectiveOrder = static_cast<CollectiveOrder>(random.below(3));
    Problem problem = seed % 4 == 3 ? layeredProblem(seed, {6, 2, 3, seed % 8 == 7, 64}) : randomProblem(seed, options);
    if (seed % 3 != 0)
      addRandomDemands(problem, seed);
    addRandomVariants(problem, seed);
    ASSERT_EQ(problem.validate(), "") << "seed " << seed;
    ScheduleOptions solve;
    solve.bucketing = random.percent(60);
    solve.collectiveOrder = seed % 4 == 3 ? CollectiveOrder::Free : options.collectiveOrder;
    solve.effort = 6000;
    if (seed % 5 == 0)
      solve.memory.ppm = kMillion / 2;
    Schedule without = schedule(withoutVariants(problem), solve), with = schedule(problem, solve);
    checkResult(problem, solve, with);
    if (testing::Test::HasFatalFailure())
      FAIL() << "seed " << seed;
    ASSERT_LE(with.makespan, without.makespan) << "seed " << seed;
    shorter += with.makespan < without.makespan;
    chosen += !with.variants.empty();
    for (const VariantChoice &choice : with.variants)
      ofBuckets += with.expanded.bucketOf[with.imageOf(choice.start)] != kNone;
    // Equal input gives equal output.
    Schedule again = schedule(problem, solve);
    ASSERT_EQ(again.order, with.order) << "seed " << seed;
    ASSERT_EQ(again.variants.size(), with.variants.size());
    // First answers choose, too.
    solve.effort = 0;
    Schedule first = schedule(problem, solve);
    checkResult(problem, solve, first);
    ASSERT_LE(first.makespan, schedule(withoutVariants(problem), solve).makespan) << "seed " << seed;
    chosenAtFirst += !first.variants.empty();
  }
  EXPECT_GE(chosenAtFirst, leastOf(40));
  EXPECT_LE(chosen, shorter);
  EXPECT_GE(shorter, leastOf(80));
  EXPECT_GE(ofBuckets, leastOf(10));
}

// Tests that buckets are an offer with variants too: the order alone may gain more by its choices.
TEST(Variants, IsNeverSlowerWithBuckets) {
  int32_t faster = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Random random(seed * 77 + 5);
    RandomOptions shape;
    shape.nodes = static_cast<int32_t>(random.between(30, 120));
    shape.commLanes = static_cast<int32_t>(random.between(1, 3));
    shape.chanceOfStart = 50;
    shape.chanceOfMergeable = 95;
    shape.mergeKinds = 1;
    Problem problem = randomProblem(seed, shape);
    if (seed % 3 != 0)
      addRandomDemands(problem, seed);
    addRandomVariants(problem, seed);
    ScheduleOptions solve;
    solve.effort = seed % 4 == 0 ? 0 : 6000;
    solve.bucketing = false;
    Schedule apart = schedule(problem, solve);
    solve.bucketing = true;
    Schedule together = schedule(problem, solve);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, solve, together)) << "seed " << seed;
    ASSERT_LE(together.makespan, apart.makespan) << "seed " << seed;
    faster += together.makespan < apart.makespan;
  }
  EXPECT_GE(faster, 10);
}

/// The shortest makespan over all orders and all choices; 0 if there are too many.
Ns bestOfAll(Problem problem) {
  std::vector<NodeId> starts;
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].variants != kNone)
      starts.push_back(id);
  constexpr int64_t kMost = 40000;
  int64_t played = 0;
  Ns best = kMaxTotalNs;
  Problem given = problem;
  Order order;
  std::vector<char> placed(problem.size(), 0);
  std::function<void()> place = [&] {
    if (played > kMost)
      return;
    if (order.size() == given.nodes.size()) {
      ++played;
      best = std::min(best, makespanOf(problem, order));
    }
    for (NodeId id = 0; id < given.size(); ++id) {
      bool isReady = !placed[id] && llvm::all_of(given.preds[id], [&](NodeId pred) { return placed[pred] != 0; });
      if (!isReady)
        continue;
      placed[id] = 1;
      order.push_back(id);
      place();
      order.pop_back();
      placed[id] = 0;
    }
  };
  std::function<void(size_t)> choose = [&](size_t at) {
    if (at == starts.size())
      return place();
    Node &node = problem.nodes[starts[at]];
    const Node &usual = given.nodes[starts[at]];
    node.cost = usual.cost;
    node.demand = usual.demand;
    choose(at + 1);
    for (const StartVariant &variant : given.startVariants[usual.variants]) {
      node.cost = variant.cost;
      node.demand = variant.demand;
      choose(at + 1);
    }
  };
  choose(0);
  return played > kMost ? 0 : best;
}

// Tests that no order with any choice is below the bound, that no answer is below the best of all, and that most
// answers are the best of all.
TEST(Variants, BruteForce) {
  int32_t complete = 0, optimal = 0;
  for (uint64_t seed = 0; seed < portion(300u); ++seed) {
    Random random(seed);
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(2, 7));
    options.commLanes = static_cast<int32_t>(random.between(1, 2));
    options.chanceOfStart = static_cast<int32_t>(random.between(20, 50));
    Problem problem = randomProblem(seed, options);
    if (seed % 3 != 0)
      addRandomDemands(problem, seed);
    addRandomVariants(problem, seed);
    Ns best = bestOfAll(problem);
    if (best == 0)
      continue;
    ++complete;
    ASSERT_LE(lowerBound(problem).makespan, best) << "seed " << seed;
    ASSERT_LE(jointLowerBound(problem).makespan, best) << "seed " << seed;
    ScheduleOptions solve;
    solve.bucketing = false;
    solve.memory.limit = kUnlimited;
    Schedule result = schedule(problem, solve);
    ASSERT_GE(result.makespan, best) << "seed " << seed;
    optimal += result.makespan == best;
  }
  EXPECT_GE(complete, leastOf(200));
  // Measured: 278 of 283. One is left out of account, for a portion of the programs.
  EXPECT_GE((optimal + 1) * 100, complete * 97) << optimal << " of " << complete;
}

// Tests that an order is played right again after a start in the middle has got another cost or demand.
TEST(Variants, ChangedStartsArePlayedAgain) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(20, 150));
    Problem problem = randomProblem(seed, options);
    addRandomDemands(problem, seed);
    if (!problem.hasContention())
      continue;
    Order order = randomOrder(problem, random);
    ContendedOrder played(problem);
    played.place(order, 0);
    for (int32_t at = 0; at < problem.size(); ++at) {
      Node &node = problem.nodes[order[at]];
      if (node.kind != NodeKind::Start)
        continue;
      node.cost = random.between(0, 40);
      if (random.percent(70))
        node.demand = static_cast<int32_t>(random.below(static_cast<int64_t>(problem.demands.size())));
      int64_t nodes = 0;
      Ns again = played.play(at, at + 1, [&](int32_t place) { return order[place]; }, kMaxTotalNs, nodes, order[at]);
      ASSERT_EQ(again, makespanOf(problem, order)) << "seed " << seed << " position " << at;
      played.place(order, at);
      ASSERT_EQ(played.makespan(), again);
    }
  }
}

} // namespace
