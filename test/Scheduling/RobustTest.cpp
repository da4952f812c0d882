//===- RobustTest.cpp - Answers that do not lose when costs are wrong -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Robust.h"
#include "CheckResult.h"
#include "CommSched/Scheduling/Bounds/RegretProof.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Solver/Settle.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomDemands.h"
#include "RandomProblem.h"
#include "llvm/ADT/STLExtras.h"
#include <thread>

using namespace commsched;
using namespace commsched::test;

namespace {

constexpr size_t kAsPlanned = 1;

/// Whether `a` is more than `permille` thousandths above `b`.
bool exceeds(Ns a, Ns b, int64_t permille) { return compareProducts(a, 1000, b, 1000 + permille) > 0; }

std::vector<Ns> play(const Problem &problem, const Schedule &schedule, const ScheduleOptions &options) {
  return playAtScales(schedule.carriedOut(problem), schedule.order, kPlayedScales);
}

Ns playAt(const Problem &problem, const Schedule &schedule, const ScheduleOptions &options, CostScale scale) {
  return playAtScales(schedule.carriedOut(problem), schedule.order, scale).front();
}

std::vector<Ns> playGiven(const Problem &problem, const ScheduleOptions &options) {
  return playAtScales(problem, identityOrder(problem), kPlayedScales);
}

/// Whether an order takes over 1 % longer than the given one at any scale.
bool loses(llvm::ArrayRef<Ns> makespans, llvm::ArrayRef<Ns> given) {
  return llvm::any_of(llvm::zip(makespans, given),
                      [](auto pair) { return exceeds(std::get<0>(pair), std::get<1>(pair), kLossPermille); });
}

std::vector<Ns> boundsOf(const Problem &problem, bool bucketing, Bytes limit) {
  std::vector<Ns> bounds;
  for (CostScale scale : kPlayedScales) {
    Problem scaled = scaleCollectives(problem, scale);
    BoundOptions options;
    options.limit = limit;
    bounds.push_back((bucketing ? jointLowerBound(scaled, options) : lowerBound(scaled, options)).withLimit);
  }
  return bounds;
}

/// The largest distance to the bounds, times a billion.
Wide regretOf(llvm::ArrayRef<Ns> makespans, llvm::ArrayRef<Ns> bounds) {
  Wide worst = 0;
  for (auto [makespan, bound] : llvm::zip(makespans, bounds))
    worst = std::max(worst, Wide(makespan) * 1000000000 / std::max<Ns>(bound, 1));
  return worst;
}

struct RobustCase {
  Problem problem;
  ScheduleOptions options;
};

/// Random programs of all kinds, with room for more memory, pinned nodes and ordered collectives among
/// them.
RobustCase randomCase(int seed) {
  Random random(seed);
  RandomOptions shape;
  shape.nodes = static_cast<int32_t>(random.between(10, 120));
  shape.chanceOfPinned = seed % 7 == 0 ? 10 : 0;
  shape.collectiveOrder = seed % 11 == 0 ? CollectiveOrder::Group : CollectiveOrder::Free;
  RobustCase result{randomProblem(seed, shape), {}};
  ScheduleOptions &options = result.options;
  options.objective = Objective::Robust;
  options.effort = 60 * shape.nodes;
  options.bucketing = seed % 3 != 0;
  options.collectiveOrder = shape.collectiveOrder;
  options.memory = *MemoryBudget::parse(seed % 4 == 0 ? 0.2 : 0, -1);
  return result;
}

/// The answer of the makespan as objective.
Schedule settledAnswer(const RobustCase &test) {
  ScheduleOptions options = test.options;
  options.objective = Objective::Makespan;
  return schedule(test.problem, options);
}

// What is promised of every answer holds: it is legal and within the limit, it takes at most 1 % longer than the given
// order at any scale, and if the fastest answer does so too, at most 0.1 % longer than that as planned, with no more
// regret unless it is faster as planned. What is said of other scales is what they give.
TEST(Robust, KeepsItsPromises) {
  int changed = 0, lost = 0, compared = 0;
  const int count = portion(300);
  for (int seed = 1; seed <= count; ++seed) {
    RobustCase test = randomCase(seed);
    Schedule answer = schedule(test.problem, test.options);
    Schedule plain = settledAnswer(test);
    ASSERT_NO_FATAL_FAILURE(checkResult(test.problem, test.options, answer)) << "seed " << seed;
    ASSERT_TRUE(answer.isWithinLimit()) << "seed " << seed;
    ASSERT_EQ(answer.limit, plain.limit) << "seed " << seed;
    std::vector<Ns> times = play(test.problem, answer, test.options);
    std::vector<Ns> before = play(test.problem, plain, test.options), given = playGiven(test.problem, test.options);
    ASSERT_FALSE(loses(times, given)) << "seed " << seed;
    std::vector<Ns> bounds = boundsOf(test.problem, test.options.bucketing, plain.limit);
    if (!loses(before, given)) {
      ASSERT_FALSE(exceeds(times[kAsPlanned], before[kAsPlanned], kTolerancePermille)) << "seed " << seed;
      if (before[kAsPlanned] <= times[kAsPlanned]) {
        ++compared;
        ASSERT_LE(regretOf(times, bounds), regretOf(before, bounds)) << "seed " << seed;
      }
    }
    lost += loses(before, given);
    changed += times != before;
    ASSERT_EQ(answer.objective, Objective::Robust);
    ASSERT_TRUE(llvm::is_sorted(answer.scales, [](auto &a, auto &b) { return a.scale < b.scale; }));
    for (size_t index = 0; index < times.size(); ++index) {
      const auto at =
          llvm::find_if(answer.scales, [&](const ScaledTimes &times) { return times.scale == kPlayedScales[index]; });
      ASSERT_NE(at, answer.scales.end()) << "seed " << seed;
      ASSERT_EQ(at->makespan, times[index]) << "seed " << seed;
      ASSERT_EQ(at->given, given[index]) << "seed " << seed;
      ASSERT_TRUE(at->bound == 0 || at->bound == bounds[index]) << "seed " << seed;
    }
    for (const ScaledTimes &at : answer.scales)
      ASSERT_EQ(at.makespan, playAt(test.problem, answer, test.options, at.scale)) << "seed " << seed;
  }
  EXPECT_GE(changed, leastOf(50));
  EXPECT_GE(lost, leastOf(1));
  EXPECT_GE(compared, leastOf(100));
}

// The regret as objective has no more regret than the default.
TEST(Robust, RegretIsLeastForItsObjective) {
  int less = 0;
  const int count = portion(100);
  for (int seed = 1; seed <= count; ++seed) {
    RobustCase test = randomCase(seed);
    Schedule robust = schedule(test.problem, test.options);
    test.options.objective = Objective::Regret;
    Schedule answer = schedule(test.problem, test.options);
    ASSERT_NO_FATAL_FAILURE(checkResult(test.problem, test.options, answer)) << "seed " << seed;
    std::vector<Ns> given = playGiven(test.problem, test.options);
    ASSERT_FALSE(loses(play(test.problem, answer, test.options), given)) << "seed " << seed;
    std::vector<Ns> bounds = boundsOf(test.problem, test.options.bucketing, answer.limit);
    const Wide regret = regretOf(play(test.problem, answer, test.options), bounds);
    const Wide other = regretOf(play(test.problem, robust, test.options), bounds);
    ASSERT_LE(regret, other) << "seed " << seed;
    less += regret < other;
  }
  EXPECT_GE(less, leastOf(5));
}

// The number of threads, and in which order they run, do not change the answer.
TEST(Robust, IsEqualForAnyNumberOfThreads) {
  const int count = portion(30);
  for (int seed = 1; seed <= count; ++seed) {
    RobustCase test = randomCase(seed);
    Schedule alone = schedule(test.problem, test.options);
    test.options.executor.threads = 3;
    test.options.executor.forEach = [](size_t tasks, llvm::function_ref<void(size_t)> task) {
      std::vector<std::thread> threads;
      for (size_t index = tasks; index-- > 0;)
        threads.emplace_back([=] { task(index); });
      for (std::thread &thread : threads)
        thread.join();
    };
    Schedule together = schedule(test.problem, test.options);
    ASSERT_EQ(alone.order, together.order) << "seed " << seed;
    ASSERT_EQ(alone.steps, together.steps) << "seed " << seed;
    ASSERT_EQ(alone.regretPpm, together.regretPpm) << "seed " << seed;
  }
}

// Between the scales that were played, no answer is further from any bound than what is said: not at a scale that
// nothing was computed for.
TEST(Robust, RegretHoldsBetweenScales) {
  int said = 0;
  const int count = portion(100);
  for (int seed = 1; seed <= count; ++seed) {
    RobustCase test = randomCase(seed);
    // Times of some milliseconds, beside which a rounded nanosecond is nothing.
    constexpr Ns kUnit = 1000000;
    RandomOptions shape;
    shape.nodes = 10 + seed % 60;
    shape.maxCost = 20 * kUnit;
    test.problem = randomProblem(seed, shape);
    Schedule answer = schedule(test.problem, test.options);
    ASSERT_TRUE(answer.regretPpm.has_value()) << "seed " << seed;
    ++said;
    for (CostScale scale = kPlayedScales[0]; scale <= 2000; scale += 50) {
      Problem scaled = scaleCollectives(test.problem, scale);
      BoundOptions bound;
      bound.limit = answer.limit;
      const Ns least = (test.options.bucketing ? jointLowerBound(scaled, bound) : lowerBound(scaled, bound)).withLimit;
      const Ns makespan = playAtScales(answer.carriedOut(test.problem), answer.order, scale).front();
      // The bounds here may be better than those that were computed at the ends, never worse than what they imply.
      ASSERT_LE(Wide(makespan - least) * 1000000, (Wide(*answer.regretPpm) + 2) * least)
          << "seed " << seed << ", scale " << scale;
    }
  }
  EXPECT_GE(said, leastOf(60));
}

// By hand: 100 us of collectives and 100 us of computation, all of it hidden at 1, and as good as any order at 2.
// Between the two, the bound is that of the computation up to 1, then that of the collectives.
TEST(Robust, RegretIsThatOfTheWorstScale) {
  EXPECT_EQ(regretPpm({{1000, 100, 100, 100}, {2000, 200, 200, 200}}), 0);
  // Bounds of 100 and 200 cross at 1000, so the chord from 110 to 200 is furthest there.
  EXPECT_EQ(regretPpm({{1000, 110, 100, 100}, {2000, 200, 200, 200}}), 100000);
  // Bounds of 100 and 160 meet at 1250; the chord from 100 to 160 is at 115 there.
  EXPECT_EQ(regretPpm({{1000, 100, 100, 100}, {2000, 160, 160, 160}}), 150000);
  // Rounded up.
  EXPECT_EQ(regretPpm({{1000, 4, 4, 3}}), 333334);
  EXPECT_EQ(regretPpm({{1000, 4, 4, 0}}), std::nullopt);
  EXPECT_EQ(regretPpm({}), std::nullopt);
  // A bound that follows from the one at the other scale counts, too: 80 at 1000, half of 160, and 90 at 2000.
  EXPECT_EQ(regretPpm({{1000, 100, 100, 1}, {2000, 160, 160, 160}}), 250000);
  EXPECT_EQ(regretPpm({{1000, 90, 90, 90}, {2000, 180, 180, 1}}), 1000000);
  // No digit is lost: two weeks and a picosecond.
  constexpr int64_t kWeeks = int64_t(14) * 86400 * 1000000000000;
  EXPECT_EQ(regretPpm({{1000, kWeeks + 1, kWeeks, kWeeks}, {2000, kWeeks + 1, kWeeks, kWeeks}}), 1);
  EXPECT_EQ(regretPpm({{1000, kWeeks, kWeeks, kWeeks}, {2000, kWeeks, kWeeks, kWeeks}}), 0);
}

// In picoseconds no time is rounded, and at the planned scale nothing else changes.
TEST(CostScale, PicosecondsRoundNothing) {
  for (int seed = 1; seed <= portion(50); ++seed) {
    Problem problem = randomCase(seed).problem;
    const Order order = identityOrder(problem);
    ASSERT_EQ(makespanOf(scaleExactly(problem, kScaleOne), order), 1000 * makespanOf(problem, order))
        << "seed " << seed;
    for (CostScale scale : {750, 1250, 1333, 2000}) {
      const Problem exact = scaleExactly(problem, scale), rounded = scaleCollectives(problem, scale);
      // Each collective on a path is rounded down by less than a nanosecond.
      const Ns most = makespanOf(exact, order), least = 1000 * makespanOf(rounded, order);
      ASSERT_LE(least, most) << "seed " << seed << ", scale " << scale;
      ASSERT_LE(most, least + 1000 * Ns(problem.size() + 1)) << "seed " << seed << ", scale " << scale;
      for (auto [key, given] : llvm::zip(exact.mergeKeys, problem.mergeKeys))
        ASSERT_EQ(key.cost(4096), scale * given.cost(4096));
      if (problem.copyCost) {
        ASSERT_EQ(exact.copyCost(4096, 2048), 1000 * problem.copyCost(4096, 2048));
      }
    }
  }
}

// A proof has what its regret follows from, and no regret without a bound at each scale.
TEST(RegretProof, FollowsFromItsScales) {
  for (int seed = 1; seed <= portion(50); ++seed) {
    RobustCase test = randomCase(seed);
    const Order order = identityOrder(test.problem);
    const Ns bound = proveBound(test.problem, {}, test.options.bucketing).makespan;
    RegretQuestion question{test.problem, test.problem, order, bound, {}, test.options.bucketing};
    std::optional<RegretProof> proof = proveRegret(question, kPlayedScales);
    ASSERT_EQ(proof.has_value(), bound > 0) << "seed " << seed;
    if (!proof)
      continue;
    std::vector<ScaledTimes> times = {{kScaleOne, 1000 * makespanOf(test.problem, order), 0, 1000 * bound}};
    for (const ScaleProof &at : proof->scales) {
      ASSERT_NE(at.scale, kScaleOne);
      ASSERT_EQ(at.makespanPs, makespanOf(scaleExactly(test.problem, at.scale), order)) << "seed " << seed;
      ASSERT_LE(at.witness.makespan, at.makespanPs) << "seed " << seed;
      times.push_back({at.scale, at.makespanPs, 0, at.witness.makespan});
    }
    llvm::sort(times, [](const ScaledTimes &a, const ScaledTimes &b) { return a.scale < b.scale; });
    ASSERT_EQ(times.size(), std::size(kPlayedScales));
    ASSERT_EQ(proof->regretPpm, regretPpm(times)) << "seed " << seed;
    Problem large = test.problem;
    large.nodes.front().cost = kMaxTotalNs / 1000;
    ASSERT_FALSE(proveRegret({large, large, order, bound, {}, false}, kPlayedScales)) << "seed " << seed;
    Problem contended = test.problem;
    addRandomDemands(contended, seed);
    ASSERT_EQ(proveRegret({contended, contended, order, bound, {}, false}, kPlayedScales).has_value(),
              !contended.hasContention());
  }
}

// Where nothing can be done for other scales, the makespan is minimized, and the answer says so.
TEST(Robust, SaysWhyItIsTheMakespan) {
  RobustCase test = randomCase(1);
  auto whyOf = [&](const Problem &problem, const ScheduleOptions &options) {
    Schedule answer = schedule(problem, options);
    EXPECT_EQ(answer.objective, answer.whyMakespan.empty() ? Objective::Robust : Objective::Makespan);
    EXPECT_EQ(answer.scales.empty(), !answer.whyMakespan.empty());
    return answer.whyMakespan;
  };
  EXPECT_EQ(whyOf(test.problem, test.options), "");
  ScheduleOptions first = test.options, admitting = test.options, tight = test.options;
  first.effort = 0;
  EXPECT_EQ(whyOf(test.problem, first), "only a first answer is asked for");
  admitting.admits = [](const Problem &, llvm::ArrayRef<NodeId>) { return true; };
  EXPECT_EQ(whyOf(test.problem, admitting), "answers have to meet a further condition");
  tight.memory = *MemoryBudget::parse(0, 1);
  EXPECT_EQ(whyOf(test.problem, tight), "no order within the limit was found");
}

// If activities share resources, answers are played at other scales as well, and none loses to the order as given. But
// a makespan need not be convex in the scale, so nothing is claimed of the scales between those that were played.
TEST(Robust, ClaimsNoRegretIfActivitiesShareResources) {
  for (uint64_t seed = 1; seed <= portion(uint64_t(20)); ++seed) {
    RobustCase test = randomCase(seed);
    addRandomDemands(test.problem, seed);
    Schedule answer = schedule(test.problem, test.options);
    if (!answer.whyMakespan.empty())
      continue;
    EXPECT_EQ(answer.objective, Objective::Robust);
    EXPECT_FALSE(answer.regretPpm.has_value());
    ASSERT_EQ(answer.scales.size(), std::size(kPlayedScales));
    for (const ScaledTimes &at : answer.scales) {
      EXPECT_LE(at.bound, at.makespan) << "seed " << seed;
      EXPECT_LE(at.makespan * 1000, at.given * 1010) << "seed " << seed;
    }
  }
}

} // namespace
