//===- ScenariosTest.cpp - Tests of durations that vary ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The distributions against the standard library's functions, and bounds and searches under noise against all orders of
// small problems.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Scenarios.h"
#include "CommSched/Scheduling/Bounds/SampledBound.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <cmath>
#include <map>

using namespace commsched;
using namespace commsched::test;

namespace {

double asDouble(NoiseFactor factor) { return static_cast<double>(factor) / static_cast<double>(kFactorOne); }

/// Tests that numbers are those that they were on the machine on which this was written.
TEST(Scenarios, DrawsTheSameOnEveryMachine) {
  NodeNoise spread{/*key=*/7, /*spreadPermille=*/300};
  NodeNoise bar{/*key=*/7, /*spreadPermille=*/300, kFactorOne / 2, 2 * kFactorOne};
  EXPECT_EQ(factorOf(spread, 0), 606708712);
  EXPECT_EQ(factorOf(spread, 1), 896241424);
  EXPECT_EQ(factorOf(bar, 0), 1063403520);
  EXPECT_EQ(factorOf(bar, 1), 1032822784);
}

/// Tests that a factor is exp(s z - s^2 / 2): two spreads of one key tell the same z, by the library's logarithm.
TEST(Scenarios, FactorsAreLogNormal) {
  for (uint64_t key = 0; key < 2000; ++key) {
    auto drawn = [&](int32_t permille) {
      double spread = permille / 1000.0;
      return (std::log(asDouble(factorOf({key, permille}, 3))) + spread * spread / 2) / spread;
    };
    EXPECT_NEAR(drawn(1000), drawn(500), 1e-5);
    EXPECT_NEAR(drawn(1000), drawn(50), 1e-4);
  }
}

/// Tests mean, variance, skewness and a quantile of z, and the mean of the factors.
TEST(Scenarios, DrawsAreNearlyNormal) {
  constexpr int32_t kDraws = 200000;
  double sum = 0, squares = 0, cubes = 0, factors = 0;
  int32_t beyond = 0;
  for (int32_t draw = 0; draw < kDraws; ++draw) {
    double factor = asDouble(factorOf({/*key=*/draw % 100u, /*spreadPermille=*/300}, draw / 100));
    double z = (std::log(factor) + 0.045) / 0.3;
    sum += z;
    squares += z * z;
    cubes += z * z * z;
    factors += factor;
    beyond += std::abs(z) > 1.959964;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.012);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(cubes / kDraws, 0, 0.05);
  EXPECT_NEAR(beyond / double(kDraws), 0.05, 0.004);
  EXPECT_NEAR(factors / kDraws, 1, 0.004);
}

/// Tests that factors of an error bar stay within it, come close to its ends, and have the median 1.
TEST(Scenarios, BarsHoldTheirFactors) {
  NodeNoise bar{/*key=*/0, /*spreadPermille=*/0, kFactorOne * 9 / 10, kFactorOne * 3 / 2};
  NoiseFactor least = kFactorOne, most = kFactorOne;
  int32_t above = 0;
  for (bar.key = 0; bar.key < 20000; ++bar.key) {
    NoiseFactor factor = factorOf(bar, 5);
    least = std::min(least, factor);
    most = std::max(most, factor);
    above += factor > kFactorOne;
  }
  EXPECT_GE(least, bar.low);
  EXPECT_LE(most, bar.high);
  EXPECT_NEAR(asDouble(least), 0.9, 0.002);
  EXPECT_NEAR(asDouble(most), 1.5, 0.01);
  EXPECT_NEAR(above / 20000.0, 0.5, 0.02);
}

TEST(Scenarios, NoNoiseChangesNothing) {
  for (uint64_t key = 0; key < 100; ++key)
    EXPECT_EQ(factorOf({key}, static_cast<int32_t>(key)), kFactorOne);
  EXPECT_EQ(scaleCost(12345, kFactorOne, 0), 12345);
  EXPECT_EQ(scaleCost(12345, 2 * kFactorOne, kMaxTotalNs), 24690);
  EXPECT_EQ(scaleCost(12345, 2 * kFactorOne, 20000), 20000);
  EXPECT_EQ(scaleCost(kMaxTotalNs, kFactorOne << 10, 7), kMaxTotalNs);
}

TEST(Scenarios, SummarizesByTheNearestRank) {
  EXPECT_EQ(summarize({5}), (SampledMakespan{5, 5}));
  EXPECT_EQ(summarize({1, 4}), (SampledMakespan{2, 4}));
  std::vector<Ns> hundred;
  for (Ns value = 100; value > 0; --value)
    hundred.push_back(value);
  EXPECT_EQ(summarize(hundred), (SampledMakespan{50, 95}));
  hundred.resize(40); // 61 to 100: 38 of 40 are at most 98
  EXPECT_EQ(summarize(hundred), (SampledMakespan{80, 98}));
}

TEST(Scenarios, RefusesOptionsOutOfRange) {
  EXPECT_EQ(validate({32, 300, 0}), "");
  EXPECT_EQ(validate({-1, 300, 0}), "expected scenarios from 0 to 4096, got -1");
  EXPECT_EQ(validate({32, 1001, 0}), "expected collective-spread-permille from 0 to 1000, got 1001");
  EXPECT_EQ(validate({32, 300, -3}), "expected compute-spread-permille from 0 to 1000, got -3");
}

//===-----------------------------------------------------------------------------------------===//
// Against all orders
//===-----------------------------------------------------------------------------------------===//

/// A small problem with costs that are large enough to be scaled, and noise on some of its nodes.
Problem smallProblem(uint64_t seed, Noise &noise, int32_t nodes, int32_t chanceOfStart = 45) {
  RandomOptions shape;
  shape.nodes = nodes;
  shape.chanceOfStart = chanceOfStart;
  shape.chanceOfMergeable = 95;
  Problem problem = randomProblem(seed, shape);
  noise.scenarios = 7;
  Random random(seed);
  for (Node &node : problem.nodes) {
    node.cost *= 1000;
    node.issue *= 1000;
    NodeNoise entry{random.next(), 400};
    if (random.percent(20))
      entry.low = kFactorOne / 2, entry.high = 3 * kFactorOne;
    noise.nodes.push_back(random.percent(70) ? entry : NodeNoise{});
  }
  for (MergeKey &key : problem.mergeKeys) {
    key.cost = [cost = std::move(key.cost)](Bytes bytes) { return 1000 * cost(bytes); };
    if (key.groupCost)
      key.groupCost = [cost = std::move(key.groupCost)](Bytes bytes, int32_t members) {
        return 1000 * cost(bytes, members);
      };
  }
  return problem;
}

/// The best mean and the best quantile over all topological orders within a limit, each for itself. The makespans of a
/// scenario are those of a problem whose costs have been replaced here.
class AllOrders {
public:
  AllOrders(const Problem &problem, const Noise &noise, Bytes limit) : problem(problem), limit(limit) {
    for (int32_t index = 0; index < noise.scenarios; ++index) {
      scenarios.push_back(problem);
      for (NodeId id = 0; id < problem.size(); ++id) {
        // The same product in floating point, which has 53 bits for at most 15 of a cost and 32 of a factor.
        double cost = static_cast<double>(problem.nodes[id].cost) * asDouble(factorOf(noise.nodes[id], index));
        scenarios.back().nodes[id].cost = static_cast<Ns>(std::floor(cost));
      }
    }
    for (NodeId id = 0; id < problem.size(); ++id)
      waiting.push_back(static_cast<int32_t>(problem.preds[id].size()));
    extend();
  }

  Ns mean = INT64_MAX, p95 = INT64_MAX;
  int64_t played = 0;
  bool complete() const { return played < kMost; }

private:
  static constexpr int64_t kMost = 8000;

  void extend() {
    if (played >= kMost)
      return;
    if (static_cast<NodeId>(order.size()) == problem.size())
      return play();
    for (NodeId id = 0; id < problem.size(); ++id) {
      if (waiting[id] != 0)
        continue;
      waiting[id] = -1;
      order.push_back(id);
      for (NodeId succ : problem.succs[id])
        --waiting[succ];
      extend();
      for (NodeId succ : problem.succs[id])
        ++waiting[succ];
      order.pop_back();
      waiting[id] = 0;
    }
  }

  void play() {
    ++played;
    if (peakOf(problem, order) > limit)
      return;
    std::multimap<Ns, int> sorted;
    Ns sum = 0;
    for (const Problem &scenario : scenarios) {
      Ns makespan = simulate(scenario, order).makespan;
      sorted.insert({makespan, 0});
      sum += makespan;
    }
    mean = std::min(mean, sum / static_cast<Ns>(scenarios.size()));
    // Of seven, 95 % are all.
    p95 = std::min(p95, sorted.rbegin()->first);
  }

  const Problem &problem;
  Bytes limit;
  std::vector<Problem> scenarios;
  std::vector<int32_t> waiting;
  Order order;
};

/// Tests that bounds are never above the best order, and that half of them are reached.
TEST(Scenarios, BoundsAgreeWithAllOrdersOfSmallProblems) {
  int64_t compared = 0, tight = 0;
  for (uint64_t seed = 0; seed < portion(300u); ++seed) {
    Noise noise;
    Problem problem = smallProblem(seed, noise, 7);
    ASSERT_EQ(problem.validate(), "");
    ScheduleOptions options;
    options.bucketing = false;
    options.memory.ppm = 200000;
    AllOrders all(problem, noise, schedule(problem, options).limit);
    if (!all.complete() || problem.hasStreams())
      continue;
    ++compared;
    SampledMakespan bound = sampledLowerBound(problem, noise, /*bucketing=*/false);
    ASSERT_LE(bound.mean, all.mean) << "seed " << seed;
    ASSERT_LE(bound.p95, all.p95) << "seed " << seed;
    tight += bound.mean == all.mean;
  }
  RecordProperty("compared", std::to_string(compared));
  EXPECT_GT(compared, leastOf(200));
  EXPECT_GT(tight, compared / 2);
}

/// Tests that bounds with merging hold for every answer with buckets, which vary as their first members do.
TEST(Scenarios, BoundsHoldWithBuckets) {
  int64_t merged = 0;
  for (uint64_t seed = 1000; seed < 1000 + portion(120u); ++seed) {
    Noise noise;
    Problem problem = smallProblem(seed, noise, 40, /*chanceOfStart=*/70);
    SampledMakespan bound = sampledLowerBound(problem, noise, /*bucketing=*/true);
    ScenarioSampler sampler(problem, noise);
    for (int64_t effort : {0, 4000, 40000}) {
      ScheduleOptions options;
      options.memory.ppm = 1000000;
      options.effort = effort;
      Schedule answer = schedule(problem, options);
      ASSERT_EQ(answer.defect, "");
      SampledMakespan reached = summarize(sampler.play(answer));
      ASSERT_GE(reached.mean, bound.mean) << "seed " << seed;
      ASSERT_GE(reached.p95, bound.p95) << "seed " << seed;
      merged += static_cast<int64_t>(answer.buckets.size());
    }
  }
  EXPECT_GT(merged, leastOf(50));
}

} // namespace
