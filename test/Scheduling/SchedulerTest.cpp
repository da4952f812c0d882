//===- SchedulerTest.cpp - Tests of the solver's promises -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What is particular: caps, pins, kept orders, degenerate problems, equal answers. RandomSchedulesTest.cpp has the
// promises that hold for every problem.
//
//===------------------------------------------------------------------------------------------===//

#include "CheckResult.h"
#include "CommSched/Scheduling/Answer/Explain.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomDemands.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>
#include <thread>

using namespace commsched;
using namespace commsched::test;

namespace {

TEST(Scheduler, TakesDegenerateProblems) {
  Problem empty;
  empty.laneNames = {"compute"};
  empty.finalize();
  Schedule result = schedule(empty);
  EXPECT_EQ(result.makespan, 0);
  EXPECT_TRUE(result.order.empty());

  Problem one = empty;
  one.nodes.emplace_back();
  one.nodes.front().cost = 7;
  one.preds.append({});
  one.touches.append({});
  one.finalize();
  result = schedule(one);
  EXPECT_EQ(result.makespan, 7);
  EXPECT_EQ(result.order, Order({0}));
}

TEST(Scheduler, ImprovesOnTheFirstAnswer) {
  Problem problem = layeredProblem(3, LayeredOptions());
  ScheduleOptions options;
  options.effort = 0;
  Schedule first = schedule(problem, options);
  options.effort = 400000;
  Schedule second = schedule(problem, options);
  checkResult(problem, options, first);
  checkResult(problem, options, second);
  EXPECT_LT(first.makespan, first.inputMakespan);
  EXPECT_LE(second.makespan, first.makespan);
  EXPECT_GT(second.steps, first.steps);
}

/// A program with much to merge.
Problem mergeableProblem(uint64_t seed) {
  RandomOptions shape;
  shape.nodes = 60;
  shape.commLanes = 1;
  shape.chanceOfStart = 70;
  shape.chanceOfMergeable = 95;
  return randomProblem(seed, shape);
}

TEST(Scheduler, KeepsToBucketCaps) {
  constexpr Bytes kCap = 700;
  int64_t merged = 0;
  for (uint64_t seed = 0; seed < portion(80u); ++seed) {
    Problem problem = mergeableProblem(seed);
    ScheduleOptions options;
    options.effort = 10000;
    options.memory.ppm = 1000000;
    options.bucketCap = kCap;
    Schedule result = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result));
    for (const Bucket &bucket : result.buckets) {
      Bytes bytes = 0;
      for (NodeId member : bucket.members)
        bytes += problem.nodes[member].bytes;
      EXPECT_LE(bytes, kCap);
      ++merged;
    }
  }
  EXPECT_GT(merged, leastOf(10));
}

TEST(Scheduler, MergesNeighboursWhereCollectivesKeepTheirOrder) {
  for (CollectiveOrder order : {CollectiveOrder::Program, CollectiveOrder::Group}) {
    size_t merged = 0;
    for (uint64_t seed = 0; seed < portion(30u); ++seed) {
      RandomOptions shape;
      shape.nodes = 60;
      shape.commLanes = 1 + static_cast<int32_t>(seed % 2);
      shape.chanceOfStart = 70;
      shape.chanceOfMergeable = 95;
      shape.mergeKinds = 1;
      shape.collectiveOrder = order;
      Problem problem = randomProblem(seed, shape);
      ScheduleOptions options;
      options.effort = 10000;
      options.memory.ppm = 1000000;
      options.collectiveOrder = order;
      Schedule result = schedule(problem, options);
      ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result)) << "seed " << seed;
      merged += result.buckets.size();
    }
    EXPECT_GT(merged, leastOf(10u));
  }
}

/// Solves three times at once: nothing is shared between threads. Returns the number of buckets.
size_t solveOnThreads(const Problem &problem) {
  ScheduleOptions options;
  options.effort = 100000;
  options.memory.ppm = 1000000;
  Schedule results[3];
  std::vector<std::thread> threads;
  for (Schedule &result : results)
    threads.emplace_back([&] { result = schedule(problem, options); });
  for (std::thread &thread : threads)
    thread.join();
  const Schedule &first = results[0];
  for (const Schedule &other : results) {
    EXPECT_EQ(first.order, other.order);
    EXPECT_EQ(first.steps, other.steps);
    EXPECT_EQ(first.buckets.size(), other.buckets.size());
    for (auto [mine, theirs] : llvm::zip(first.buckets, other.buckets)) {
      EXPECT_EQ(mine.members, theirs.members);
      EXPECT_EQ(mine.form, theirs.form);
    }
  }
  return first.buckets.size();
}

TEST(Scheduler, GivesEqualAnswersToEqualQuestions) {
  size_t buckets = 0;
  for (uint64_t seed = 0; seed < portion(20u); ++seed)
    buckets += solveOnThreads(mergeableProblem(seed));
  EXPECT_GE(buckets, leastOf(6u));
  solveOnThreads(layeredProblem(1, LayeredOptions()));
}

// Tests that pinned nodes keep their order though no edge of the problem says so: two gathers that the computes want in
// the opposite order.
TEST(Scheduler, KeepsThePinnedInOrder) {
  for (bool pinned : {false, true}) {
    Problem problem;
    problem.laneNames = {"compute", "@dp"};
    auto add = [&](NodeKind kind, Ns cost, NodeId start, std::vector<NodeId> preds) {
      Node node;
      node.kind = kind;
      node.lane = kind == NodeKind::Start ? 1 : 0;
      node.cost = cost;
      node.start = start;
      node.pinned = pinned && kind == NodeKind::Start;
      problem.nodes.push_back(node);
      problem.preds.append(preds);
      problem.touches.append({});
    };
    add(NodeKind::Start, 100, kNone, {});
    add(NodeKind::Start, 10, kNone, {});
    add(NodeKind::Wait, 0, 1, {1});
    add(NodeKind::Compute, 100, kNone, {2});
    add(NodeKind::Wait, 0, 0, {0});
    add(NodeKind::Compute, 10, kNone, {3, 4});
    problem.finalize();
    ASSERT_EQ(problem.validate(), "");
    ScheduleOptions options;
    Schedule result = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result));
    EXPECT_EQ(result.makespan, pinned ? 220 : 120);
  }
}

/// The shortest of all orders within a limit that begin with `prefix`.
Ns shortestFrom(const Problem &problem, Bytes limit, Order &prefix, std::vector<bool> &done) {
  if (static_cast<int32_t>(prefix.size()) == problem.size())
    return peakOf(problem, prefix) <= limit ? makespanOf(problem, prefix) : std::numeric_limits<Ns>::max();
  Ns best = std::numeric_limits<Ns>::max();
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (done[node] || !llvm::all_of(problem.preds[node], [&](NodeId pred) { return done[pred]; }))
      continue;
    done[node] = true;
    prefix.push_back(node);
    best = std::min(best, shortestFrom(problem, limit, prefix, done));
    prefix.pop_back();
    done[node] = false;
  }
  return best;
}

// What a search says of all orders is true of all orders, with and without a limit, and with merging allowed.
TEST(Scheduler, SaysTheLeastOfAllOrders) {
  int64_t said = 0;
  for (uint64_t seed = 1; seed <= portion(uint64_t(300)); ++seed) {
    RandomOptions shape;
    shape.nodes = 5;
    Problem problem = randomProblem(seed, shape);
    if (problem.size() > 8)
      continue;
    ScheduleOptions options;
    options.bucketing = seed % 4 == 0;
    options.memory.limit = seed % 2 == 0 ? kUnlimited : peakOf(problem, identityOrder(problem));
    Schedule result = scheduleCore(problem, options);
    if (!result.leastOrder)
      continue;
    ++said;
    Order prefix;
    std::vector<bool> done(problem.size());
    Ns best = shortestFrom(problem, result.limit, prefix, done);
    ASSERT_EQ(*result.leastOrder, best) << "seed " << seed;
    ASSERT_EQ(schedule(problem, options).leastOrder.value_or(best), best) << "seed " << seed;
  }
  EXPECT_GE(said, leastOf(int64_t(60)));
}

/// The shortest of all orders of all buckets within a limit. Numbers of buckets count through all starts like digits,
/// so the same buckets come several times.
Ns shortestOfAllBuckets(const Problem &problem, Bytes limit) {
  std::vector<NodeId> starts;
  for (NodeId node = 0; node < problem.size(); ++node)
    if (problem.nodes[node].mergeKey != kNone && isMergeable(problem, node))
      starts.push_back(node);
  const size_t digits = starts.size();
  std::vector<size_t> bucketOf(digits, 0), formOf(digits, 0);
  auto count = [&](std::vector<size_t> &number, size_t base) {
    for (size_t &digit : number) {
      if (++digit < base)
        return true;
      digit = 0;
    }
    return false;
  };
  Ns best = std::numeric_limits<Ns>::max();
  do {
    do {
      std::vector<Bucket> buckets;
      for (size_t index = 0; index < digits; ++index) {
        Bucket bucket;
        bucket.form = formOf[index] ? BucketForm::Packed : BucketForm::Coalesced;
        for (size_t member = 0; member < digits; ++member)
          if (bucketOf[member] == index)
            bucket.members.push_back(starts[member]);
        if (bucket.members.size() > 1)
          buckets.push_back(std::move(bucket));
      }
      const bool isTooLarge = llvm::any_of(buckets, [&](const Bucket &bucket) {
        Bytes bytes = 0;
        for (NodeId member : bucket.members)
          bytes += problem.nodes[member].bytes;
        const Bytes cap = problem.mergeKeys[problem.nodes[bucket.members.front()].mergeKey].cap;
        return cap >= 0 && bytes > cap;
      });
      const bool packs = llvm::any_of(buckets, [](const Bucket &b) { return b.form == BucketForm::Packed; });
      if (isTooLarge || (packs && !problem.copyCost))
        continue;
      llvm::Expected<ExpandedProblem> merged = expandBuckets(problem, buckets);
      if (!merged) {
        llvm::consumeError(merged.takeError());
        continue;
      }
      Order prefix;
      std::vector<bool> done(merged->problem.size());
      best = std::min(best, shortestFrom(merged->problem, limit, prefix, done));
    } while (count(formOf, 2));
  } while (count(bucketOf, digits));
  return best;
}

// What a search says of all orders of all buckets is true, with and without a limit, with caps and kept orders.
TEST(Scheduler, SaysTheLeastOfAllSchedules) {
  int64_t said = 0, shorter = 0;
  for (uint64_t seed = 1; seed <= portion(uint64_t(100)); ++seed) {
    RandomOptions shape;
    shape.nodes = 4;
    shape.chanceOfStart = 60;
    shape.chanceOfMergeable = 95;
    shape.mergeKinds = seed % 3 == 0 ? 1 : 3;
    shape.collectiveOrder = seed % 5 == 0 ? CollectiveOrder::Program : CollectiveOrder::Free;
    Problem problem = randomProblem(seed, shape);
    if (problem.size() > 8)
      continue;
    ScheduleOptions options;
    options.collectiveOrder = shape.collectiveOrder;
    options.memory.limit = seed % 2 == 0 ? kUnlimited : peakOf(problem, identityOrder(problem));
    Schedule result = scheduleCore(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result));
    if (!result.leastSchedule)
      continue;
    ++said;
    const Ns best = shortestOfAllBuckets(problem, result.limit);
    ASSERT_EQ(*result.leastSchedule, best) << "seed " << seed;
    ASSERT_EQ(result.makespan, best) << "seed " << seed;
    shorter += result.leastOrder.value_or(best) > best;
  }
  EXPECT_GE(said, leastOf(int64_t(10)));
  EXPECT_GE(shorter, leastOf(int64_t(1)));
}

/// Checks that the outcomes of all starts account for all exposed time.
void checkOutcomes(const Problem &problem, const Schedule &result) {
  Timeline before = simulate(problem, identityOrder(problem)), after = simulate(result.expanded.problem, result.order);
  Ns exposedBefore = 0, exposedAfter = 0;
  size_t starts = 0;
  for (const Node &node : problem.nodes)
    starts += node.kind == NodeKind::Start;
  std::vector<StartOutcome> outcomes = explain(problem, result, result.limit);
  EXPECT_EQ(outcomes.size(), starts);
  for (const StartOutcome &outcome : outcomes) {
    exposedBefore += outcome.exposedBefore;
    exposedAfter += outcome.exposedAfter;
    EXPECT_TRUE(outcome.exposedAfter == 0 || outcome.reason.factor != LimitingFactor::AlreadyHidden);
  }
  EXPECT_EQ(exposedBefore, before.exposedTotal);
  EXPECT_EQ(exposedAfter, after.exposedTotal);
}

TEST(Scheduler, ExplainsEveryStart) {
  Problem problem = layeredProblem(5, LayeredOptions());
  ScheduleOptions options;
  options.effort = 100000;
  Schedule result = schedule(problem, options);
  checkOutcomes(problem, result);
}

// Buckets are an offer: at equal effort, allowing them never makes an answer slower.
TEST(Scheduler, IsNeverSlowerWithBuckets) {
  int32_t faster = 0;
  auto compare = [&](const Problem &problem, ScheduleOptions options) {
    options.bucketing = false;
    Schedule apart = schedule(problem, options);
    options.bucketing = true;
    Schedule together = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, together));
    EXPECT_LE(together.makespan, apart.makespan);
    faster += together.makespan < apart.makespan;
  };
  for (int64_t effort : {0, 3000, -1})
    for (uint64_t seed = 0; seed < portion(effort < 0 ? 12u : 100u); ++seed) {
      ScheduleOptions options;
      options.effort = effort;
      options.memory.ppm = seed % 3 == 0 ? 500000 : 0;
      Problem problem = mergeableProblem(seed);
      if (seed % 5 == 0)
        addRandomDemands(problem, seed);
      ASSERT_NO_FATAL_FAILURE(compare(problem, options)) << "seed " << seed << ", effort " << effort;
    }
  for (int64_t effort : {0, 60000})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      ScheduleOptions options;
      options.effort = effort;
      compare(layeredProblem(seed, {40, 8, 3, seed % 2 == 0, 64}), options);
    }
  EXPECT_GE(faster, leastOf(20));
}

// More memory than the input's is an offer, too: the answer within the input's peak is a candidate for every larger
// limit. A search alone does not keep this, since it goes other ways under another limit.
TEST(Scheduler, IsNeverSlowerWithMoreMemoryThanTheInput) {
  int32_t saved = 0, faster = 0;
  auto compare = [&](const Problem &problem, ScheduleOptions options) {
    Schedule least = schedule(problem, options);
    for (int64_t ppm : {20'000, 100'000, 300'000, 1'000'000}) {
      options.memory.ppm = ppm;
      Schedule answer = schedule(problem, options);
      ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, answer));
      EXPECT_LE(answer.makespan, least.makespan) << "ppm " << ppm;
      EXPECT_EQ(answer.limit, options.memory.limitFor(answer.inputPeak));
      faster += answer.makespan < least.makespan;
      ScheduleOptions without = options;
      without.without = {"input-peak"};
      saved += schedule(problem, without).makespan > least.makespan;
    }
  };
  for (int64_t effort : {0, 3000})
    for (uint64_t seed = 0; seed < portion(30u); ++seed) {
      ScheduleOptions options;
      options.effort = effort;
      Problem problem = mergeableProblem(seed);
      if (seed % 5 == 0)
        addRandomDemands(problem, seed);
      ASSERT_NO_FATAL_FAILURE(compare(problem, options)) << "seed " << seed << ", effort " << effort;
    }
  for (int64_t effort : {0, 10000})
    for (uint64_t seed = 0; seed < 2; ++seed) {
      ScheduleOptions options;
      options.effort = effort;
      ASSERT_NO_FATAL_FAILURE(compare(layeredProblem(seed, {20, 8, 3, seed % 2 == 0, 64}), options)) << "seed " << seed;
    }
  EXPECT_GE(saved, leastOf(8));
  EXPECT_GE(faster, leastOf(20));
}

// A search ends where the bound says that nothing is left to gain, with buckets too.
TEST(Scheduler, StopsAtTheBound) {
  LayeredOptions shape;
  shape.layers = 30;
  Problem problem = layeredProblem(4, shape);
  // Collectives that take next to nothing: compute binds, and is met at once.
  for (Node &node : problem.nodes)
    if (node.kind == NodeKind::Start)
      node.cost = 1;
  for (MergeKey &key : problem.mergeKeys)
    key.cost = [](Bytes bytes) { return Ns(1) + bytes / (Bytes(1) << 40); };
  // Nor does a pack save anything: the bound would grant it the time of a cast.
  for (MergeMember &member : problem.members)
    member.cast = kNone;
  ScheduleOptions options;
  options.memory.ppm = 1000000;
  for (bool bucketing : {false, true}) {
    options.bucketing = bucketing;
    Schedule result = schedule(problem, options);
    EXPECT_LT(result.steps, 20 * problem.size()) << "bucketing " << bucketing;
    EXPECT_LT(result.steps, defaultEffort(problem.size()) / 2);
  }
}

TEST(Scheduler, TakesTheMemoryBudget) {
  Problem problem = layeredProblem(3, {40, 8, 3, false, 64});
  ScheduleOptions options;
  options.effort = 20000;
  Schedule tight = schedule(problem, options);
  EXPECT_EQ(tight.limit, tight.inputPeak);
  options.memory.ppm = 250000;
  Schedule wide = schedule(problem, options);
  checkResult(problem, options, wide);
  EXPECT_EQ(wide.limit, wide.inputPeak + wide.inputPeak / 4);
  // It is of use: the answer takes some of it.
  EXPECT_GT(wide.peak, wide.inputPeak);
  EXPECT_LT(wide.makespan, tight.makespan);
  options.memory.limit = wide.inputPeak + 5;
  EXPECT_EQ(schedule(problem, options).limit, wide.inputPeak + 5);
}

/// Two computes whose workspace leaves no room for the gather's result, which is needed right behind them, and `more`
/// computes that take nothing.
static Problem fullProblem(int32_t more) {
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  problem.buffers.push_back({300, 2, true});
  auto add = [&](NodeKind kind, Ns cost, Bytes workspace, NodeId start, std::vector<NodeId> preds,
                 std::vector<BufferId> touches) {
    Node node;
    node.kind = kind;
    node.lane = kind == NodeKind::Start ? 1 : 0;
    node.cost = cost;
    node.workspace = workspace;
    node.start = start;
    problem.nodes.push_back(node);
    problem.preds.append(preds);
    problem.touches.append(touches);
  };
  add(NodeKind::Compute, 50, 500, kNone, {}, {});
  add(NodeKind::Compute, 50, 400, kNone, {0}, {});
  add(NodeKind::Start, 90, 0, kNone, {}, {0});
  add(NodeKind::Wait, 0, 0, 2, {2}, {0});
  add(NodeKind::Compute, 10, 0, kNone, {1, 3}, {0});
  for (int32_t index = 0; index < more; ++index)
    add(NodeKind::Compute, 0, 0, kNone, {}, {});
  problem.finalize();
  EXPECT_EQ(problem.validate(), "");
  return problem;
}

TEST(Scheduler, SaysThatMemoryIsFull) {
  Problem problem = fullProblem(/*more=*/0);
  Schedule result = schedule(problem);
  std::vector<StartOutcome> starts = explain(problem, result, result.limit);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].exposedAfter, 90);
  EXPECT_EQ(starts[0].reason.factor, LimitingFactor::PeakMemory);
  EXPECT_EQ(starts[0].reason.reached, 800);
  // With room for it, the gather begins with the block: nothing is in its way, and there is too little to compute.
  problem.nodes[2].cost = 200;
  ScheduleOptions wide;
  wide.memory.limit = 800;
  result = schedule(problem, wide);
  starts = explain(problem, result, result.limit);
  EXPECT_EQ(starts[0].exposedAfter, 100);
  EXPECT_EQ(starts[0].reason.factor, LimitingFactor::StartsAtOnce);
}

// Of a block that is too large to be played again, what is live at the places in question says it.
TEST(Scheduler, SaysThatMemoryIsFullOfALargeBlock) {
  Problem problem = fullProblem(/*more=*/200'000);
  std::vector<StartOutcome> starts = explain(problem, keepOrder(problem), /*limit=*/500);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].reason.factor, LimitingFactor::PeakMemory);
  EXPECT_EQ(starts[0].reason.reached, 800);
}

} // namespace
