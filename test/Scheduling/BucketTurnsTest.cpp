//===- BucketTurnsTest.cpp - Tests of how often the buckets of two keys take turns -----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 22 counts buckets. The truth is the number of buckets of every bucketing whose best order ends in time.
//
//===------------------------------------------------------------------------------------------===//

#include "Bounds/BucketTurns.h"
#include "CollectiveBuilder.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// A problem, and what is known of it.
struct Layers {
  Problem problem;
  /// All reductions, and all gathers but `before` bytes, follow a compute of `head` ns; a compute of `tail` ns follows
  /// all collectives.
  Ns head = 0, tail = 0;
  Bytes before = 0;
};

/// Layers, each of which needs a gather, and gradients of most, which are computed beside the chain of layers. The lane
/// of the collectives has more to do than the compute lane.
Layers drawLayers(uint64_t seed, Ns latency) {
  Random random(seed);
  CollectiveBuilder builder;
  Problem &problem = builder.problem;
  Layers result;
  problem.copyCost = [launch = random.between(0, 2)](Bytes, Bytes) { return launch; };
  Ns perMember = random.between(0, latency);
  for (CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
    problem.mergeKeys.push_back(keyOf(kind, latency, perMember));
  int64_t layers = random.between(2, 4), most = random.between(5, 40);
  bool isEqual = random.percent(40), isFine = random.percent(30);
  NodeId chain = kNone;
  if (random.percent(40)) {
    result.head = random.between(1, most);
    chain = builder.compute(result.head, {}, {});
  }
  std::vector<NodeId> waits;
  for (int64_t layer = 0; layer < layers; ++layer) {
    // Fine sizes do not fit the cells of a table.
    Bytes bytes = isFine ? 16 * random.between(10, 40) : 64 * (isEqual ? 4 : random.between(1, 8));
    // Small ones do not count beside large ones.
    if (!isEqual && random.percent(15))
      bytes = 16;
    Bytes reduced = bytes * random.between(1, 2);
    bool isEarly = result.head > 0 && random.percent(30);
    if (isEarly)
      result.before += bytes;
    NodeId wait = builder.collective(0, bytes, kNone, bytes / 4, bytes, false,
                                     result.head == 0 || isEarly ? std::vector<NodeId>() : std::vector<NodeId>{0});
    waits.push_back(wait);
    std::vector<NodeId> preds = {wait};
    if (chain != kNone)
      preds.insert(preds.begin(), chain);
    BufferId gathered = problem.members[wait - 1].output, gradient = kNone;
    // A gradient of the layer itself, of a compute beside it, or none.
    bool isBeside = random.percent(50), isReduced = random.percent(80);
    BufferId held = isReduced && isBeside ? builder.buffer(64, problem.size()) : kNone;
    if (isReduced)
      gradient = builder.buffer(reduced, problem.size() + (isBeside ? 1 : 0));
    std::vector<BufferId> touches = {gathered};
    if (isReduced)
      touches.push_back(isBeside ? held : gradient);
    chain = builder.compute(random.between(1, most), preds, touches);
    NodeId last = chain;
    if (isReduced && isBeside)
      last = builder.compute(random.between(1, most), {chain}, {held, gradient});
    if (isReduced)
      waits.push_back(builder.collective(1, reduced, gradient, reduced, reduced / 4, true, {last}));
  }
  if (random.percent(30))
    builder.compute(random.between(1, most), {}, {});
  if (random.percent(30)) {
    result.tail = random.between(1, most);
    builder.compute(result.tail, waits, {});
  }
  result.problem = builder.take();
  return result;
}

/// The buckets, with what stays alone, and the shortest makespan of each bucketing.
std::vector<std::pair<int64_t, Ns>> outcomes(const Problem &problem) {
  int64_t starts = 0;
  for (const Node &node : problem.nodes)
    starts += node.kind == NodeKind::Start;
  std::vector<std::vector<Bucket>> all = Bucketings(problem, 100000, /*isDistinct=*/true).all;
  all.emplace_back();
  std::vector<std::pair<int64_t, Ns>> result;
  for (const std::vector<Bucket> &buckets : all) {
    llvm::Expected<ExpandedProblem> merged = expandBuckets(problem, buckets);
    if (!merged) {
      llvm::consumeError(merged.takeError());
      continue;
    }
    int64_t number = starts;
    for (const Bucket &bucket : buckets)
      number -= static_cast<int64_t>(bucket.members.size()) - 1;
    ExactSearch exact(merged->problem, kUnlimited, 100000);
    int64_t steps = 1000000;
    exact.run(steps);
    EXPECT_GT(steps, 0);
    result.push_back({number, exact.makespan()});
  }
  return result;
}

/// What the bounds know of a problem without casts.
BucketTurns turnsOf(const Layers &layers, const BoundCosts &costs, Ns latency) {
  TurnKey keys[2];
  for (TurnKey &key : keys) {
    key.cost = 1;
    key.bytes = 16;
  }
  for (NodeId id = 0; id < layers.problem.size(); ++id)
    if (int32_t key = layers.problem.nodes[id].mergeKey; key != kNone)
      keys[key].members.push_back(id);
  return BucketTurns(layers.problem, costs, keys[0], layers.before, keys[1], latency, layers.head, layers.tail);
}

BoundCosts computeCosts(const Problem &problem) {
  BoundCosts costs;
  for (const Node &node : problem.nodes)
    costs.compute.push_back(node.kind == NodeKind::Compute ? node.cost : 0);
  return costs;
}

// Tests that no bucketing ends in time with fewer buckets, on problems of which all bucketings and orders are tried.
TEST(BucketTurns, NoBucketingHasFewer) {
  int64_t asked = 0, several = 0, exact = 0;
  for (uint64_t seed = 0; seed < numProblems("COMMSCHED_TURN_PROBLEMS", portion(300)); ++seed) {
    const Ns latency = 1 + static_cast<Ns>(seed % 12);
    Layers layers = drawLayers(seed, latency);
    BoundCosts costs = computeCosts(layers.problem);
    BucketTurns turns = turnsOf(layers, costs, latency);
    std::vector<std::pair<int64_t, Ns>> all = outcomes(layers.problem);
    for (auto [number, makespan] : all) {
      int64_t fewest = INT64_MAX, counted = turns.fewest(makespan);
      for (auto [other, end] : all)
        if (end <= makespan)
          fewest = std::min(fewest, other);
      ASSERT_LE(counted, fewest) << "seed " << seed << ", makespan " << makespan;
      ++asked;
      several += counted > 2;
      exact += counted > 2 && counted == fewest;
    }
  }
  EXPECT_GE(several, asked / 10);
  EXPECT_GE(exact, asked / 50);
}

// Tests against all bucketings and orders of small problems that turns never count too much, without a limit and with
// one.
TEST(BucketTurns, NoBucketingIsBelow) {
  int32_t met = 0;
  for (uint64_t seed = 0; seed < numProblems("COMMSCHED_TURN_PROBLEMS", portion(300)); ++seed) {
    Problem problem = drawLayers(seed, 1 + static_cast<Ns>(seed % 12)).problem;
    BoundOptions limited;
    limited.limit = peakOf(problem, identityOrder(problem));
    LowerBound bound = jointLowerBound(problem, limited);
    for (Bytes limit : {kUnlimited, limited.limit}) {
      Ns below = limit == kUnlimited ? bound.makespan : bound.withLimit;
      ASSERT_EQ(optimum(problem, limit, below, 100000), below) << "seed " << seed;
    }
    met += seed < 100 && optimum(problem, kUnlimited, bound.makespan + 1, 100000) == bound.makespan;
  }
  EXPECT_GE(met, leastOf(10));
}

// Six layers of 30 ns, each with a gather of 20 ns and a reduction of 40 ns, and 10 ns for each bucket. The lane has
// 360 ns to do beside its buckets, and needs five of them. By their heads and tails alone four would do.
TEST(BucketTurns, TheLaneMayNotIdle) {
  CollectiveBuilder builder;
  Problem &problem = builder.problem;
  problem.copyCost = [](Bytes, Bytes) { return Ns(0); };
  for (CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
    problem.mergeKeys.push_back(keyOf(kind, /*latency=*/10, /*perMember=*/0));
  NodeId chain = kNone;
  for (int32_t layer = 0; layer < 6; ++layer) {
    std::vector<NodeId> preds = {builder.collective(0, 320, kNone, 80, 320, false, {})};
    if (chain != kNone)
      preds.insert(preds.begin(), chain);
    BufferId gradient = builder.buffer(640, problem.size());
    chain = builder.compute(30, preds, {problem.members[preds.back() - 1].output, gradient});
    builder.collective(1, 640, gradient, 640, 160, true, {chain});
  }
  Problem taken = builder.take();
  ScheduleOptions options;
  options.memory.ppm = 4000000;
  EXPECT_EQ(schedule(taken, options).makespan, 410);
  EXPECT_EQ(jointLowerBound(taken).makespan, 410);
}

} // namespace
