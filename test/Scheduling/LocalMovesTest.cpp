//===- LocalMovesTest.cpp - Tests for the search over moves of single nodes -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The incremental clocks are compared with the timeline of the whole order, and the answers with the models and with
// the optimum of small problems.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Moves/LocalMoves.h"
#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "Solver/Exact/ExactSearch.h"
#include "gtest/gtest.h"
#include <limits>

using namespace commsched;
using namespace commsched::test;

namespace {

/// The schedule of an order without buckets.
DecodedSchedule scheduleOf(llvm::ArrayRef<NodeId> order) {
  DecodedSchedule result;
  for (NodeId node : order)
    result.steps.push_back({DecodeStep::Run, node});
  return result;
}

Order orderOf(const LocalMoves &moves) {
  Order order;
  for (DecodeStep step : moves.decoded().steps)
    order.push_back(step.id);
  return order;
}

constexpr Ns kNoCutoff = std::numeric_limits<Ns>::max();

/// A legal order of a part of `order`: what stands at [first, last), drawn at random.
Order shuffledWindow(const Problem &problem, llvm::ArrayRef<NodeId> order, int32_t first, int32_t last,
                     Random &random) {
  Order rest(order.begin() + first, order.begin() + last), window;
  while (!rest.empty()) {
    std::vector<size_t> ready;
    for (size_t at = 0; at < rest.size(); ++at)
      if (llvm::none_of(problem.preds[rest[at]], [&](NodeId pred) { return llvm::is_contained(rest, pred); }))
        ready.push_back(at);
    size_t chosen = ready[random.below(static_cast<int64_t>(ready.size()))];
    window.push_back(rest[chosen]);
    rest.erase(rest.begin() + chosen);
  }
  return window;
}

void expectTheTimelineOf(const Problem &problem, uint64_t seed, int32_t changes, int32_t width) {
  Random random(seed);
  Order order = identityOrder(problem);
  IncrementalTimeline timeline(problem, order);
  ASSERT_EQ(timeline.makespan(), makespanOf(problem, order));
  for (int32_t change = 0; change < changes; ++change) {
    auto first = static_cast<int32_t>(random.below(problem.size()));
    int32_t last = std::min<int32_t>(problem.size(), first + 1 + static_cast<int32_t>(random.below(width)));
    Order window = shuffledWindow(problem, order, first, last, random), next = order;
    std::copy(window.begin(), window.end(), next.begin() + first);
    Ns before = timeline.makespan(), expected = makespanOf(problem, next);
    Ns answer = timeline.makespanIfReplaced(first, window, kNoCutoff);
    if (answer > before) {
      ASSERT_EQ(answer, expected) << "seed " << seed << ", change " << change;
    } else {
      ASSERT_LE(answer, expected) << "seed " << seed << ", change " << change;
      ASSERT_LE(expected, before) << "seed " << seed << ", change " << change;
    }
    ASSERT_EQ(timeline.makespanIfReplaced(first, window, before) > before, expected > before);
    ASSERT_EQ(timeline.makespan(), before);
    if (random.percent(60)) {
      order = next;
      timeline.replace(first, window);
      ASSERT_EQ(timeline.makespan(), expected) << "seed " << seed << ", change " << change;
      // What is kept is what a fresh one has.
      IncrementalTimeline fresh(problem, order);
      for (int32_t at = 0; at < problem.size(); ++at)
        ASSERT_EQ(timeline.isCritical(at), fresh.isCritical(at)) << "seed " << seed << ", position " << at;
    }
  }
}

TEST(IncrementalTimeline, AgreesWithTheTimelineOnSmallProblems) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomOptions options;
    options.nodes = 4 + static_cast<int32_t>(seed % 60);
    options.commLanes = 1 + static_cast<int32_t>(seed % 4);
    options.chanceOfRegion = seed % 3 == 0 ? 20 : 0;
    expectTheTimelineOf(randomProblem(seed, options), seed, 20, 8);
  }
}

TEST(IncrementalTimeline, AgreesWithTheTimelineAcrossKeptPositions) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomOptions options;
    options.nodes = 300;
    options.commLanes = 1 + static_cast<int32_t>(seed % 40);
    expectTheTimelineOf(randomProblem(seed, options), seed, 30, 100);
  }
  expectTheTimelineOf(layeredProblem(3, {30, 6, 3, true, 8}), 3, 100, 40);
}

// Tests that the makespan is exact while a timeline is focused on some positions, and everything else afterwards.
TEST(IncrementalTimeline, FocusesOnSomePositions) {
  int32_t shorter = 0, longer = 0;
  for (uint64_t seed = 0; seed < portion(80u); ++seed) {
    RandomOptions options;
    options.nodes = 200 + static_cast<int32_t>(seed % 7) * 50;
    // With many lanes, blocks are longer.
    options.commLanes = seed % 5 == 4 ? 60 : 1 + static_cast<int32_t>(seed % 5);
    options.chanceOfRegion = seed % 3 == 0 ? 10 : 0;
    Problem problem = seed % 4 == 0 ? layeredProblem(seed, {8, 4, 3, true, 8}) : randomProblem(seed, options);
    Random random(seed);
    for (Node &node : problem.nodes) {
      if (node.kind == NodeKind::Wait && node.start == kNone && random.percent(50))
        node.ready = random.below(2000);
      if (node.kind == NodeKind::Start && random.percent(20))
        node.cost = random.percent(50) ? 0 : 40 * node.cost;
    }
    Order order = identityOrder(problem);
    IncrementalTimeline timeline(problem, order);
    for (int32_t turn = 0; turn < 6; ++turn) {
      const auto begin = static_cast<int32_t>(random.below(problem.size()));
      const int32_t end = std::min<int32_t>(problem.size(), begin + 1 + static_cast<int32_t>(random.below(100)));
      timeline.focus(begin, end);
      ASSERT_EQ(timeline.makespan(), makespanOf(problem, order)) << "seed " << seed;
      for (int32_t change = 0; change < 15; ++change) {
        const auto first = static_cast<int32_t>(begin + random.below(end - begin));
        const int32_t last = std::min<int32_t>(end, first + 1 + static_cast<int32_t>(random.below(20)));
        Order window = shuffledWindow(problem, order, first, last, random), next = order;
        std::copy(window.begin(), window.end(), next.begin() + first);
        const Ns before = timeline.makespan(), expected = makespanOf(problem, next);
        ASSERT_EQ(timeline.makespanIfReplaced(first, window, before) > before, expected > before) << "seed " << seed;
        order = next;
        timeline.replace(first, window);
        ASSERT_EQ(timeline.makespan(), expected) << "seed " << seed << ", turn " << turn << ", change " << change;
        shorter += expected < before;
        longer += expected > before;
      }
      IncrementalTimeline fresh(problem, order);
      for (int32_t at = begin; at < end; ++at)
        ASSERT_EQ(timeline.isCritical(at), fresh.isCritical(at)) << "seed " << seed << ", position " << at;
    }
    timeline.focus(0, problem.size());
    IncrementalTimeline fresh(problem, order);
    for (int32_t at = 0; at < problem.size(); ++at) {
      ASSERT_EQ(timeline.isCritical(at), fresh.isCritical(at)) << "seed " << seed << ", position " << at;
      ASSERT_EQ(timeline.tailAt(at), fresh.tailAt(at)) << "seed " << seed << ", position " << at;
    }
  }
  EXPECT_GT(shorter, leastOf(500));
  EXPECT_GT(longer, leastOf(500));
}

TEST(LocalMoves, NeverLengthenAndKeepTheLimit) {
  int32_t shorter = 0;
  for (uint64_t seed = 0; seed < portion(300u); ++seed) {
    RandomOptions options;
    options.nodes = 30;
    Problem problem = randomProblem(seed, options);
    Order given = identityOrder(problem);
    Bytes limit = peakOf(problem, given);
    LocalMoves moves(ScheduleFacts(problem, /*bucketing=*/false), scheduleOf(given), limit);
    int64_t steps = 5000;
    moves.run(steps, 0);
    ASSERT_LE(steps, 0);
    Order order = orderOf(moves);
    std::vector<int32_t> position(problem.size(), -1);
    for (int32_t at = 0; at < problem.size(); ++at)
      position[order[at]] = at;
    for (NodeId node = 0; node < problem.size(); ++node)
      for (NodeId pred : problem.preds[node])
        ASSERT_LT(position[pred], position[node]) << "seed " << seed;
    ASSERT_EQ(moves.makespan(), makespanOf(problem, order)) << "seed " << seed;
    ASSERT_LE(peakOf(problem, order), limit) << "seed " << seed;
    ASSERT_LE(moves.makespan(), makespanOf(problem, given)) << "seed " << seed;
    shorter += moves.makespan() < makespanOf(problem, given);
  }
  EXPECT_GT(shorter, leastOf(200));
}

// Tests that a focus knows of a collective that is in flight from before it until behind it.
TEST(IncrementalTimeline, FocusesUnderACollective) {
  constexpr NodeId kComputes = 200;
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  for (NodeId id = 0; id < kComputes + 2; ++id) {
    Node node;
    node.kind = id == 0 ? NodeKind::Start : id <= kComputes ? NodeKind::Compute : NodeKind::Wait;
    node.cost = id == 0 ? 10 * kComputes : id <= kComputes ? 1 : 0;
    node.lane = id == 0 ? 1 : kComputeLane;
    node.start = id <= kComputes ? kNone : 0;
    problem.nodes.push_back(node);
    problem.members.emplace_back();
    problem.preds.append(id <= kComputes ? std::vector<NodeId>{} : std::vector<NodeId>{0});
    problem.touches.append(std::vector<BufferId>{});
  }
  // What follows the wait: without the collective, the makespan would be less.
  problem.nodes[kComputes].cost = 5;
  problem.finalize();
  Order order = identityOrder(problem);
  std::swap(order[kComputes], order[kComputes + 1]);
  IncrementalTimeline timeline(problem, order);
  timeline.focus(80, 100);
  EXPECT_EQ(timeline.makespan(), 10 * kComputes + 5);
}

// Tests that an order that is worked on piece by piece has the makespan that it claims, with buckets and without.
TEST(LocalMoves, ShortenLongOrders) {
  const Problem problem = layeredProblem(4, {650, 8, 3, true, 64});
  ASSERT_GT(problem.size(), kLongOrder);
  const Order given = identityOrder(problem);
  const Bytes limit = peakOf(problem, given);
  for (bool bucketing : {false, true}) {
    const ScheduleFacts facts(problem, bucketing);
    LocalMoves moves(facts, scheduleOf(given), limit);
    for (int slice = 0; slice < 2; ++slice) {
      const Ns before = moves.makespan();
      int64_t steps = 60000;
      moves.run(steps, 0);
      EXPECT_LT(moves.makespan(), before);
      const DecodedSchedule found = moves.decoded();
      const ExpandedProblem carried = llvm::cantFail(expandBuckets(problem, found.buckets));
      const Order order = commsched::orderOf(found, carried);
      ASSERT_EQ(makespanOf(carried.problem, order), moves.makespan());
      ASSERT_LE(peakOf(carried.problem, order), limit);
    }
  }
}

// Tests that moves may lengthen an order if they have slack, that they do not afterwards without, and that no order is
// illegal.
TEST(LocalMoves, LengthenOnlyWithSlack) {
  int32_t longer = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomOptions options;
    options.nodes = 40;
    Problem problem = randomProblem(seed, options);
    Order given = identityOrder(problem);
    Bytes limit = peakOf(problem, given);
    ScheduleFacts facts(problem, /*bucketing=*/false);
    LocalMoves moves(facts, scheduleOf(given), limit);
    for (Ns slack : {Ns(0), makespanOf(problem, given) / 50, Ns(0)}) {
      Ns before = moves.makespan();
      int64_t steps = 1000;
      moves.run(steps, 0, slack);
      Order order = orderOf(moves);
      ASSERT_EQ(verifyOrder(problem, order, ScheduleRequirements()), "") << "seed " << seed;
      ASSERT_EQ(moves.makespan(), makespanOf(problem, order)) << "seed " << seed;
      ASSERT_LE(peakOf(problem, order), limit) << "seed " << seed;
      if (slack == 0) {
        ASSERT_LE(moves.makespan(), before) << "seed " << seed;
      }
      longer += moves.makespan() > before;
    }
  }
  EXPECT_GT(longer, 0);
}

// Products of 10 ns, each with a reduction of 12 ns that nothing waits for, in front of a long collective. Beside it
// the products cost nothing, and one bucket reduces them in 16 ns; but a product that goes there alone costs 2 ns more
// than it saves.
TEST(LocalMoves, PutOffSeveralProductsAtOnce) {
  constexpr NodeId kProducts = 8;
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  problem.mergeKeys.push_back(
      {CollectiveKind::ReduceScatter, 1, 2, [](Bytes bytes) { return 11 + (bytes + 1) / 2; }, -1, {}, {}, {}});
  auto add = [&](NodeKind kind, Ns cost, std::vector<int32_t> preds) {
    NodeId id = problem.size();
    Node node;
    node.kind = kind;
    node.cost = cost;
    if (kind == NodeKind::Start) {
      node.lane = 1;
      node.collective = CollectiveKind::ReduceScatter;
    }
    if (kind == NodeKind::Wait)
      node.start = preds.front();
    problem.nodes.push_back(node);
    problem.members.emplace_back();
    problem.preds.append(preds);
    problem.touches.append(std::vector<int32_t>{});
    return id;
  };
  std::vector<std::vector<int32_t>> touches;
  std::vector<NodeId> starts;
  for (NodeId product = 0; product < kProducts; ++product) {
    NodeId work = add(NodeKind::Compute, 10, {}), start = add(NodeKind::Start, 12, {work});
    starts.push_back(start);
    problem.nodes[start].bytes = 1;
    problem.nodes[start].mergeKey = 0;
    BufferId input = static_cast<BufferId>(problem.buffers.size()), output = input + 1;
    problem.buffers.push_back({2, work, false});
    problem.buffers.push_back({1, start, true});
    problem.members[start] = {kNone, input, output, 2, 1, kNone, 2};
    touches.insert(touches.end(), {{input}, {input, output}});
  }
  NodeId last = add(NodeKind::Compute, 5, {}), longest = add(NodeKind::Start, 200, {last});
  add(NodeKind::Wait, 0, {longest});
  touches.resize(problem.nodes.size());
  for (NodeId start : starts) {
    problem.members[start].wait = add(NodeKind::Wait, 0, {start});
    touches.push_back(touches[start]);
  }
  problem.touches = IndexLists();
  for (const std::vector<int32_t> &list : touches)
    problem.touches.append(list);
  problem.finalize();
  ASSERT_EQ(problem.validate(), "");
  // In the given order the long collective begins behind all products and their reductions.
  Order given = identityOrder(problem);
  ASSERT_EQ(makespanOf(problem, given), 10 + kProducts * 12 + 200);
  ScheduleFacts facts(problem, /*bucketing=*/true);
  LocalMoves moves(facts, scheduleOf(given), peakOf(problem, given));
  int64_t steps = 1000;
  moves.run(steps, 0);
  EXPECT_EQ(moves.makespan(), 5 + 200 + 11 + kProducts / 2);
}

// A lane stands still until a chain of products has run that stands behind 3,000 other computes. Each product has a
// second user, so that none of them moves along with the start alone, and all of them have to come earlier at once. The
// collective is the first of two stages, which nothing needs before the end.
TEST(LocalMoves, LetALaneBeginEarlier) {
  constexpr int32_t kOthers = 3000, kProducts = 20;
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  auto add = [&](NodeKind kind, llvm::ArrayRef<NodeId> preds, Ns cost) {
    Node node;
    node.kind = kind;
    node.cost = cost;
    node.lane = kind == NodeKind::Start ? 1 : kComputeLane;
    node.start = kind == NodeKind::Wait ? preds.front() : kNone;
    problem.preds.append(preds);
    problem.touches.append({});
    problem.nodes.push_back(node);
    return problem.size() - 1;
  };
  NodeId last = add(NodeKind::Compute, {}, 10);
  for (int32_t index = 1; index < kOthers; ++index)
    last = add(NodeKind::Compute, last, 10);
  NodeId product = add(NodeKind::Compute, {}, 10);
  const NodeId first = product;
  for (int32_t index = 1; index < kProducts; ++index)
    product = add(NodeKind::Compute, product, 10);
  NodeId start = add(NodeKind::Start, product, 50000);
  for (NodeId used = first; used <= product; ++used)
    add(NodeKind::Compute, used, 1);
  const NodeId division = add(NodeKind::Compute, add(NodeKind::Wait, start, 0), 1);
  const NodeId second = add(NodeKind::Start, division, 100);
  const NodeId wait = add(NodeKind::Wait, second, 0);
  problem.finalize();
  ASSERT_EQ(problem.validate(), "");
  const Order given = identityOrder(problem);
  ASSERT_EQ(makespanOf(problem, given), (kOthers + kProducts) * 10 + 50101);
  const ScheduleFacts facts(problem, /*bucketing=*/false);
  EXPECT_TRUE(facts.hasDeferredStages);
  LocalMoves moves(facts, scheduleOf(given), kUnlimited);
  int64_t steps = 100000;
  moves.run(steps, 0);
  EXPECT_LE(moves.makespan(), kProducts * 10 + 50101);

  // A layer that uses the result needs both stages.
  add(NodeKind::Compute, wait, 10);
  problem.finalize();
  EXPECT_FALSE(ScheduleFacts(problem, /*bucketing=*/false).hasDeferredStages);
}

TEST(LocalMoves, ReachMostOptimaOfSmallProblems) {
  int32_t optimal = 0, complete = 0;
  for (uint64_t seed = 0; seed < portion(100u); ++seed) {
    RandomOptions options;
    options.nodes = 14;
    Problem problem = randomProblem(seed, options);
    Order given = identityOrder(problem);
    Bytes limit = 2 * peakOf(problem, given);
    ExactSearch exact(problem, limit, makespanOf(problem, given) + 1);
    int64_t exactSteps = 1000000, steps = 20000;
    if (!exact.run(exactSteps))
      continue;
    ++complete;
    LocalMoves moves(ScheduleFacts(problem, /*bucketing=*/false), scheduleOf(given), limit);
    moves.run(steps, 0);
    ASSERT_GE(moves.makespan(), exact.makespan()) << "seed " << seed;
    optimal += moves.makespan() == exact.makespan();
  }
  EXPECT_GT(complete, leastOf(80));
  EXPECT_GE(optimal * 10, complete * 9) << optimal << " of " << complete;
}

TEST(LocalMoves, StopAtTheTargetAndRepeat) {
  Problem problem = layeredProblem(2, {20, 4, 2, true, 8});
  Order given = identityOrder(problem);
  Bytes limit = peakOf(problem, given);
  LocalMoves one(ScheduleFacts(problem, /*bucketing=*/false), scheduleOf(given), limit),
      two(ScheduleFacts(problem, /*bucketing=*/false), scheduleOf(given), limit),
      reached(ScheduleFacts(problem, /*bucketing=*/false), scheduleOf(given), limit);
  int64_t steps = 20000, same = 20000, unused = 20000;
  one.run(steps, 0);
  two.run(same, 0);
  EXPECT_EQ(orderOf(one), orderOf(two));
  EXPECT_LT(one.makespan(), makespanOf(problem, given));
  reached.run(unused, makespanOf(problem, given));
  EXPECT_EQ(unused, 20000);
  EXPECT_EQ(orderOf(reached), given);
}

TEST(LocalMoves, TakeEmptyAndSingleProblems) {
  Problem empty;
  empty.laneNames = {"compute"};
  empty.finalize();
  LocalMoves none(ScheduleFacts(empty, /*bucketing=*/true), {}, 0);
  int64_t steps = 10;
  none.run(steps, -1);
  EXPECT_EQ(none.makespan(), 0);
  EXPECT_EQ(steps, 10);
}

} // namespace
