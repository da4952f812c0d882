//===- BothCostsTest.cpp - Answers that somebody else's costs do not contradict ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/BothCosts.h"
#include "CheckResult.h"
#include "CollectiveBuilder.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include <random>
#include <thread>

using namespace commsched;
using namespace commsched::test;

namespace {

/// The times of an order at each scale, by the clock of Timeline.h alone.
std::vector<Ns> clocked(Problem problem, llvm::ArrayRef<NodeId> order) {
  std::vector<Ns> times;
  for (CostScale scale : kPlayedScales)
    times.push_back(simulate(scaleCollectives(problem, scale), order).makespan);
  return times;
}

struct OpinionCase {
  Problem problem;
  SecondOpinion second;
  ScheduleOptions options;
};

/// A random program in the order that its other costs ask for.
OpinionCase randomCase(uint64_t seed) {
  RandomOptions shape;
  shape.nodes = static_cast<int32_t>(20 + seed % 40);
  OpinionCase test;
  const Problem drawn = randomProblem(seed, shape), byPeer = withOtherCosts(drawn, seed);
  ScheduleOptions planned;
  planned.effort = 400 * shape.nodes;
  planned.bucketing = false;
  const Order order = schedule(byPeer, planned).order;
  test.problem = inOrder(drawn, order);
  test.second.byPeer = inOrder(byPeer, order);
  test.options.objective = Objective::Robust;
  test.options.effort = 60 * shape.nodes;
  test.options.bucketing = seed % 3 != 0;
  return test;
}

// By hand: with the model's costs an order gains a tenth, with the other ones it loses a half.
TEST(BothCosts, IsSlowerIfItIsByEitherCosts) {
  const BothCosts given = {{100, 100, 100, 100, 100}, {200, 200, 200, 200, 200}};
  EXPECT_FALSE(BothCosts({{101, 90, 90, 90, 101}, {202, 200, 200, 200, 202}}).isSlowerThan(given));
  EXPECT_TRUE(BothCosts({{90, 90, 90, 90, 102}, {100, 100, 100, 100, 100}}).isSlowerThan(given));
  EXPECT_TRUE(BothCosts({{90, 90, 90, 90, 90}, {203, 100, 100, 100, 100}}).isSlowerThan(given));
  EXPECT_EQ(given.asPeerPlanned(), 200);
  EXPECT_EQ(mixTimes(100, 300, kByBoth), 200);
  EXPECT_EQ(mixTimes(100, 300, kByModel), 100);
  EXPECT_EQ(mixTimes(100, 300, kByPeer), 300);
}

// A mix has the costs of both, of nodes, of single merged collectives, and of coalesced ones; memory stays.
TEST(BothCosts, MixesNodesAndMergeKeys) {
  CollectiveBuilder model, peer;
  for (CollectiveBuilder *builder : {&model, &peer}) {
    builder->problem.mergeKeys.push_back(keyOf(CollectiveKind::AllGather, builder == &model ? 100 : 300, 10));
    builder->collective(0, 1600, kNone, 400, 1600, true, {});
    builder->compute(builder == &model ? 50 : 70, {}, {});
  }
  const Problem mixed = mixCosts(model.take(), peer.take(), kByBoth);
  EXPECT_EQ(mixed.nodes[0].cost, (200 + 400) / 2);
  EXPECT_EQ(mixed.nodes[2].cost, 60);
  EXPECT_EQ(mixed.mergeKeys[0].cost(3200), (100 + 300) / 2 + 200);
  EXPECT_EQ(mixed.mergeKeys[0].coalescedCost(3200, 2), (100 + 300) / 2 + 20 + 200);
}

// An answer with a second opinion is legal, and loses to the given order by neither costs at any scale. What it says of
// itself is what a clock says that knows nothing of second opinions.
TEST(SecondOpinion, LosesToTheGivenOrderByNeitherCosts) {
  int lost = 0, replaced = 0;
  const uint64_t count = portion(uint64_t(200));
  for (uint64_t seed = 1; seed <= count; ++seed) {
    OpinionCase test = randomCase(seed);
    const Schedule first = schedule(test.problem, test.options);
    test.options.second = &test.second;
    const Schedule answer = schedule(test.problem, test.options);
    ASSERT_NO_FATAL_FAILURE(checkResult(test.problem, test.options, answer)) << "seed " << seed;
    ASSERT_TRUE(answer.opinion) << "seed " << seed;
    const Order given = identityOrder(test.problem);
    const BothCosts before = {clocked(test.problem, given), clocked(test.second.byPeer, given)};
    auto timesOf = [&](const Schedule &schedule) {
      const Problem byPeer = llvm::cantFail(expandBuckets(test.second.byPeer, schedule.buckets)).problem;
      return BothCosts{clocked(schedule.carriedOut(test.problem), schedule.order), clocked(byPeer, schedule.order)};
    };
    const BothCosts times = timesOf(answer);
    EXPECT_FALSE(times.isSlowerThan(before)) << "seed " << seed;
    EXPECT_EQ(answer.opinion->answer.byModel, times.byModel) << "seed " << seed;
    EXPECT_EQ(answer.opinion->answer.byPeer, times.byPeer) << "seed " << seed;
    EXPECT_EQ(answer.opinion->given.byPeer, before.byPeer) << "seed " << seed;
    for (const ScaledTimes &at : answer.scales)
      EXPECT_EQ(at.makespan,
                simulate(scaleCollectives(answer.carriedOut(test.problem), at.scale), answer.order).makespan);
    const bool loses = timesOf(first).isSlowerThan(before);
    lost += loses;
    replaced += answer.opinion->isReplaced;
    // Whatever does not lose stays.
    if (!loses) {
      EXPECT_EQ(answer.order, first.order) << "seed " << seed;
      EXPECT_FALSE(answer.opinion->isReplaced) << "seed " << seed;
    }
  }
  EXPECT_GE(lost, leastOf(10));
  EXPECT_EQ(replaced, lost);
}

// Orders of somebody else count if they are within the limit, and are asked for at most once. An order that no other
// can reach leaves an answer that loses, and the outcome says by how much.
TEST(SecondOpinion, ComparesWithOrdersWithinTheLimit) {
  int asked = 0, losing = 0;
  for (uint64_t seed = 1; seed <= portion(uint64_t(40)); ++seed) {
    OpinionCase test = randomCase(seed);
    int calls = 0;
    PeerAnswer other;
    other.times = {clocked(test.problem, identityOrder(test.problem)), std::vector<Ns>(std::size(kPlayedScales), 1)};
    other.peak = seed % 2 ? 0 : kUnlimited;
    test.second.others = [&] { return ++calls, std::vector<PeerAnswer>{other}; };
    test.options.second = &test.second;
    const Schedule answer = schedule(test.problem, test.options);
    ASSERT_NO_FATAL_FAILURE(checkResult(test.problem, test.options, answer)) << "seed " << seed;
    ASSERT_LE(calls, 1) << "seed " << seed;
    asked += calls;
    if (calls == 0)
      continue;
    ASSERT_EQ(answer.opinion->incumbents, seed % 2 ? 2 : 1) << "seed " << seed;
    if (seed % 2 == 0)
      continue;
    const Ns worst = *std::max_element(answer.opinion->answer.byPeer.begin(), answer.opinion->answer.byPeer.end());
    EXPECT_GE(answer.opinion->lossPpm, (worst - 1) * 1000000) << "seed " << seed;
    ++losing;
  }
  EXPECT_GE(asked, leastOf(20));
  EXPECT_GE(losing, leastOf(10));
}

/// What somebody else tells of a schedule: nodes of the given problem in its order, and what it merges.
PeerAnswer toldOf(const Problem &problem, const Schedule &schedule) {
  PeerAnswer told;
  for (const Bucket &bucket : schedule.buckets)
    told.buckets.push_back(bucket.members);
  for (NodeId node : schedule.order) {
    const int32_t bucket = schedule.isExpanded() ? schedule.expanded.bucketOf[node] : kNone;
    if (bucket == kNone) {
      told.order.push_back(schedule.isExpanded() ? schedule.expanded.origin[node] : node);
      continue;
    }
    const BucketNodes &nodes = schedule.expanded.buckets[bucket];
    for (NodeId member : schedule.buckets[bucket].members)
      if (node == nodes.start || node == nodes.wait)
        told.order.push_back(node == nodes.start ? member : problem.members[member].wait);
  }
  return told;
}

// An order that is told comes back; so do buckets, with their starts and waits where they were. What is told of other
// programs, or of a part of one, is an answer, too.
TEST(SecondOpinion, TakesOverWhatIsTold) {
  int merged = 0;
  for (uint64_t seed = 1; seed <= portion(uint64_t(200)); ++seed) {
    OpinionCase test = randomCase(seed);
    const Schedule answer = schedule(test.problem, test.options);
    PeerAnswer told = toldOf(test.problem, answer);
    Schedule like = answerLike(test.problem, told);
    ASSERT_EQ(like.buckets.size(), answer.buckets.size()) << "seed " << seed;
    // A pack of its own may contain a cast.
    const Order taken = toldOf(test.problem, like).order;
    Order expected;
    llvm::copy_if(told.order, std::back_inserter(expected),
                  [&](NodeId node) { return llvm::is_contained(taken, node); });
    EXPECT_EQ(taken, expected) << "seed " << seed;
    if (answer.buckets.empty())
      EXPECT_EQ(taken, told.order) << "seed " << seed;
    for (size_t bucket = 0; bucket < like.buckets.size(); ++bucket)
      EXPECT_EQ(like.buckets[bucket].members, answer.buckets[bucket].members) << "seed " << seed;
    merged += !answer.buckets.empty();
    std::mt19937_64 random(seed);
    std::shuffle(told.order.begin(), told.order.end(), random);
    told.order.resize(told.order.size() / 2);
    like = answerLike(test.problem, told);
    measure(test.problem, like);
    like.claims = {like.makespan, like.peak};
    EXPECT_EQ(verify(test.problem, like, {kUnlimited, test.options.collectiveOrder}), "") << "seed " << seed;
  }
  EXPECT_GE(merged, leastOf(40));
}

// An order of somebody else that loses less than what a short search finds is taken over.
TEST(SecondOpinion, LosesNoMoreThanAnOrderThatIsTold) {
  int taken = 0, losing = 0;
  for (uint64_t seed = 1; seed <= portion(uint64_t(100)); ++seed) {
    OpinionCase test = randomCase(seed);
    ScheduleOptions longer = test.options;
    longer.objective = Objective::Makespan;
    longer.effort = 40 * test.options.effort;
    Schedule found = schedule(mixCosts(test.problem, test.second.byPeer, kByBoth), longer);
    PeerAnswer told = toldOf(test.problem, found);
    const Schedule like = answerLike(test.problem, told);
    told.times = playWithBothCosts(test.problem, test.second.byPeer, like);
    test.second.others = [&] { return std::vector<PeerAnswer>{told}; };
    test.options.second = &test.second;
    test.options.effort = 2 * test.problem.size();
    ScheduleOptions without = test.options;
    without.second = nullptr;
    const Schedule first = schedule(test.problem, without);
    const Schedule answer = schedule(test.problem, test.options);
    ASSERT_NO_FATAL_FAILURE(checkResult(test.problem, test.options, answer)) << "seed " << seed;
    if (!answer.opinion || answer.opinion->incumbents < 2)
      continue;
    ++losing;
    taken += answer.opinion->isReplaced;
    const Problem &carriedOut = like.carriedOut(test.problem);
    if (peakOf(carriedOut, like.order) > answer.limit ||
        makespanOf(carriedOut, like.order) > makespanOf(test.problem, identityOrder(test.problem)))
      continue;
    // What an answer loses to the better of both orders, and what it is slower as planned than a search without them.
    const BothCosts &given = answer.opinion->given;
    auto givenAway = [&](const BothCosts &times) {
      std::vector<int64_t> lossPpm;
      for (size_t at = 0; at < std::size(kPlayedScales); ++at) {
        const Ns byModel = std::min(told.times.byModel[at], given.byModel[at]);
        const Ns byPeer = std::min(told.times.byPeer[at], given.byPeer[at]);
        lossPpm.push_back((times.byModel[at] - byModel) * 1000000 / std::max<Ns>(byModel, 1));
        lossPpm.push_back((times.byPeer[at] - byPeer) * 1000000 / std::max<Ns>(byPeer, 1));
      }
      const int64_t loss = *std::max_element(lossPpm.begin(), lossPpm.end());
      return std::pair(loss, loss + (times.byModel[1] - first.makespan) * 1000000 / std::max<Ns>(first.makespan, 1));
    };
    auto [loss, sum] = givenAway(answer.opinion->answer);
    auto [toldLoss, toldSum] = givenAway(told.times);
    EXPECT_EQ(loss, answer.opinion->lossPpm) << "seed " << seed;
    if (loss > 10000) {
      EXPECT_GT(toldLoss, 10000) << "seed " << seed;
      EXPECT_LE(sum, toldSum + 1) << "seed " << seed;
    }
  }
  EXPECT_GE(losing, leastOf(20));
  EXPECT_GE(taken, leastOf(10));
}

// The number of threads does not change the answer, and an objective of the makespan asks nobody.
TEST(SecondOpinion, IsEqualForAnyNumberOfThreads) {
  for (uint64_t seed = 1; seed <= portion(uint64_t(20)); ++seed) {
    OpinionCase test = randomCase(seed);
    test.options.second = &test.second;
    const Schedule alone = schedule(test.problem, test.options);
    test.options.executor.threads = 3;
    test.options.executor.forEach = [](size_t tasks, llvm::function_ref<void(size_t)> task) {
      std::vector<std::thread> threads;
      for (size_t index = tasks; index-- > 0;)
        threads.emplace_back([=] { task(index); });
      for (std::thread &thread : threads)
        thread.join();
    };
    const Schedule together = schedule(test.problem, test.options);
    ASSERT_EQ(alone.order, together.order) << "seed " << seed;
    ASSERT_EQ(alone.opinion->lossPpm, together.opinion->lossPpm) << "seed " << seed;
    test.options.objective = Objective::Makespan;
    EXPECT_FALSE(schedule(test.problem, test.options).opinion) << "seed " << seed;
  }
}

} // namespace
