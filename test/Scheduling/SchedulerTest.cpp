//===- SchedulerTest.cpp - Tests of the solver's promises -------------------------------------===//
//
// Never above the limit, never slower than the given order, always legal, always the same; and how far from the true
// optimum on problems that are small enough to try every order.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Scheduler.h"
#include "CommSched/Scheduling/Bounds.h"
#include "CommSched/Scheduling/Memory.h"
#include "CommSched/Scheduling/Timeline.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <limits>

using namespace commsched;
using namespace commsched::test;

namespace {

RandomOptions optionsFor(uint64_t seed) {
  RandomOptions options;
  options.nodes = 1 + static_cast<int32_t>(seed % 50);
  options.commLanes = 1 + static_cast<int32_t>(seed % 3);
  options.collectiveOrder = static_cast<CollectiveOrder>(seed % 11 < 3 ? seed % 11 : 2);
  options.chanceOfPinned = seed % 9 == 0 ? 20 : 0;
  options.chanceOfStart = seed % 4 == 0 ? 70 : 30;
  options.maxBytes = seed % 5 == 0 ? 3 * kSmallUnpackBytes : 640;
  return options;
}

/// Checks everything that a result promises, with the models and the verifier.
void checkResult(const Problem &problem, const ScheduleOptions &options, const ScheduleResult &result) {
  ASSERT_EQ(result.defect, "");
  ASSERT_EQ(result.expanded.problem.validate(), "");
  ScheduleRequirements requirements;
  requirements.collectiveOrder = options.collectiveOrder;
  requirements.peakLimit = result.peak;
  ASSERT_EQ(verifySchedule(result.expanded.problem, result.order, requirements), "");
  ASSERT_EQ(makespanOf(result.expanded.problem, result.order), result.makespan);
  ASSERT_EQ(peakOf(result.expanded.problem, result.order), result.peak);
  ASSERT_EQ(makespanOf(problem, identityOrder(problem)), result.inputMakespan);
  ASSERT_EQ(peakOf(problem, identityOrder(problem)), result.inputPeak);
  ASSERT_EQ(result.withinLimit, result.peak <= result.limit);
  if (result.inputPeak <= result.limit) {
    ASSERT_TRUE(result.withinLimit);
    ASSERT_LE(result.makespan, result.inputMakespan);
  } else {
    ASSERT_LE(result.peak, result.inputPeak);
  }
  LowerBound bound = options.bucketing ? jointLowerBound(problem) : lowerBound(problem);
  ASSERT_GE(result.makespan, bound.makespan);
}

TEST(Scheduler, KeepsItsPromisesOnRandomProblems) {
  int64_t shorter = 0, buckets = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomOptions shape = optionsFor(seed);
    Problem problem = randomProblem(seed, shape);
    ScheduleOptions options;
    options.collectiveOrder = shape.collectiveOrder;
    options.bucketing = seed % 3 != 0;
    options.memoryBudgetPpm = seed % 7 == 0 ? 250000 : 0;
    options.effort = 40 * shape.nodes;
    ScheduleResult result = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result)) << "seed " << seed;
    shorter += result.makespan < result.inputMakespan;
    buckets += static_cast<int64_t>(result.buckets.size());
  }
  EXPECT_GT(shorter, 1000);
  EXPECT_GT(buckets, 20);
}

TEST(Scheduler, BringsThePeakBelowALimit) {
  int64_t within = 0, asked = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomOptions shape = optionsFor(seed);
    Problem problem = randomProblem(seed, shape);
    Bytes peak = peakOf(problem, identityOrder(problem)), lowest = peakLowerBound(problem);
    if (lowest >= peak)
      continue;
    ScheduleOptions options;
    options.collectiveOrder = shape.collectiveOrder;
    options.memoryLimitBytes = (peak + lowest) / 2;
    options.effort = 400 * shape.nodes;
    ScheduleResult result = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result)) << "seed " << seed;
    ++asked;
    within += result.withinLimit;
  }
  ASSERT_GT(asked, 80);
  EXPECT_GT(within * 100, asked * 60);
}

TEST(Scheduler, TakesDegenerateProblems) {
  Problem empty;
  empty.laneNames = {"compute"};
  empty.finalize();
  ScheduleResult result = schedule(empty);
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
  ScheduleResult first = schedule(problem, options);
  options.effort = 400000;
  ScheduleResult second = schedule(problem, options);
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
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Problem problem = mergeableProblem(seed);
    ScheduleOptions options;
    options.effort = 10000;
    options.memoryBudgetPpm = 1000000;
    options.allGatherCap = options.reduceScatterCap = options.allReduceCap = kCap;
    ScheduleResult result = schedule(problem, options);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result));
    for (const Bucket &bucket : result.buckets) {
      Bytes bytes = 0;
      for (NodeId member : bucket.members)
        bytes += problem.nodes[member].bytes;
      EXPECT_LE(bytes, kCap);
      ++merged;
    }
  }
  EXPECT_GT(merged, 10);
}

TEST(Scheduler, MergesNeighboursWhereCollectivesKeepTheirOrder) {
  for (CollectiveOrder order : {CollectiveOrder::Program, CollectiveOrder::Group}) {
    size_t merged = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
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
      options.memoryBudgetPpm = 1000000;
      options.collectiveOrder = order;
      ScheduleResult result = schedule(problem, options);
      ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, result)) << "seed " << seed;
      merged += result.buckets.size();
    }
    EXPECT_GT(merged, 10u);
  }
}

TEST(Scheduler, GivesEqualAnswersToEqualQuestions) {
  for (uint64_t seed : {1, 2, 3}) {
    Problem problem = layeredProblem(seed, LayeredOptions());
    ScheduleOptions options;
    options.effort = 100000;
    ScheduleResult first = schedule(problem, options), second = schedule(problem, options);
    EXPECT_EQ(first.order, second.order);
    EXPECT_EQ(first.steps, second.steps);
    ASSERT_EQ(first.buckets.size(), second.buckets.size());
    for (size_t index = 0; index < first.buckets.size(); ++index)
      EXPECT_EQ(first.buckets[index].members, second.buckets[index].members);
  }
}

TEST(Scheduler, ExplainsEveryStart) {
  Problem problem = layeredProblem(5, LayeredOptions());
  ScheduleOptions options;
  options.effort = 100000;
  ScheduleResult result = schedule(problem, options);
  Timeline before = simulate(problem, identityOrder(problem)), after = simulate(result.expanded.problem, result.order);
  Ns exposedBefore = 0, exposedAfter = 0;
  size_t starts = 0;
  for (const Node &node : problem.nodes)
    starts += node.kind == NodeKind::Start;
  EXPECT_EQ(result.starts.size(), starts);
  for (const StartOutcome &outcome : result.starts) {
    exposedBefore += outcome.exposedBefore;
    exposedAfter += outcome.exposedAfter;
    EXPECT_TRUE(outcome.exposedAfter == 0 || outcome.factor != LimitingFactor::AlreadyHidden);
  }
  EXPECT_EQ(exposedBefore, before.exposedTotal);
  EXPECT_EQ(exposedAfter, after.exposedTotal);
}

/// The shortest makespan of all orders within a limit, without buckets.
struct BruteForce {
  const Problem &problem;
  Bytes limit;
  Ns best = std::numeric_limits<Ns>::max();
  int64_t visited = 0;
  Order order = {};
  std::vector<int32_t> pending = {};

  void run() {
    for (NodeId node = 0; node < problem.size(); ++node)
      pending.push_back(static_cast<int32_t>(problem.preds[node].size()));
    extend();
  }
  void extend() {
    if (++visited > 300000)
      return;
    if (order.size() == problem.nodes.size()) {
      if (peakOf(problem, order) <= limit)
        best = std::min(best, makespanOf(problem, order));
      return;
    }
    if (makespanOf(problem, order) >= best)
      return;
    for (NodeId node = 0; node < problem.size(); ++node) {
      if (pending[node] != 0)
        continue;
      order.push_back(node);
      pending[node] = -1;
      for (NodeId user : problem.succs[node])
        --pending[user];
      extend();
      for (NodeId user : problem.succs[node])
        ++pending[user];
      pending[node] = 0;
      order.pop_back();
    }
  }
};

TEST(Scheduler, ComesCloseToTheOptimumOfSmallProblems) {
  std::vector<int64_t> gaps;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    RandomOptions shape;
    shape.nodes = 8;
    shape.commLanes = 2;
    shape.chanceOfStart = 40;
    Problem problem = randomProblem(seed, shape);
    BruteForce brute{problem, peakOf(problem, identityOrder(problem))};
    brute.run();
    if (brute.visited > 300000 || brute.best == 0)
      continue;
    ScheduleOptions options;
    options.bucketing = false;
    options.effort = 20000;
    ScheduleResult result = schedule(problem, options);
    ASSERT_GE(result.makespan, brute.best) << "seed " << seed;
    gaps.push_back((result.makespan - brute.best) * 1000 / brute.best);
  }
  ASSERT_GT(gaps.size(), 200u);
  std::sort(gaps.begin(), gaps.end());
  RecordProperty("median_gap_permille", std::to_string(gaps[gaps.size() / 2]));
  RecordProperty("p90_gap_permille", std::to_string(gaps[gaps.size() * 9 / 10]));
  RecordProperty("worst_gap_permille", std::to_string(gaps.back()));
  printf("gap to the optimum over %zu problems, permille: median %lld, 90 %% %lld, worst %lld\n", gaps.size(),
         static_cast<long long>(gaps[gaps.size() / 2]), static_cast<long long>(gaps[gaps.size() * 9 / 10]),
         static_cast<long long>(gaps.back()));
  EXPECT_EQ(gaps.back(), 0) << "a block of this size is searched exactly";
}

} // namespace
