//===- SearchTest.cpp - Tests that the search believes nothing --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Corrupts decodes by hand, because no decode is wrong, and offers them to the search.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Search.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "RandomProblem.h"
#include "Solver/Portfolio.h"
#include "gtest/gtest.h"
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace commsched {
struct SearchTestAccess {
  static bool accept(Search &search, const DecodedSchedule &decoded) { return search.accept(decoded); }
};
} // namespace commsched

namespace {

/// A search that has found something, and its answer.
class SearchTest : public ::testing::Test {
protected:
  SearchTest()
      : problem(layeredProblem(2, {6, 4, 2, false, 8})), facts(problem, /*bucketing=*/true),
        limit(2 * peakOf(problem, identityOrder(problem))),
        search(facts, options, Reference(facts, identityOrder(problem)), limit) {
    search.run(20000, 0);
    good = search.best();
  }

  /// Offers a decode that must be refused for a reason with `word` in it, and leave the incumbent alone.
  void expectRefused(const DecodedSchedule &decoded, llvm::StringRef word) {
    Order before = search.order();
    Ns makespan = search.makespan();
    EXPECT_FALSE(SearchTestAccess::accept(search, decoded));
    EXPECT_NE(search.defect().find(word.str()), std::string::npos) << search.defect();
    EXPECT_EQ(search.order(), before);
    EXPECT_EQ(search.makespan(), makespan);
    EXPECT_EQ(search.best().steps.size(), good.steps.size());
  }

  Problem problem;
  ScheduleFacts facts;
  ScheduleOptions options;
  Bytes limit;
  Search search;
  DecodedSchedule good;
};

TEST_F(SearchTest, TakesWhatIsRight) {
  EXPECT_LT(good.makespan, makespanOf(problem, identityOrder(problem)));
  EXPECT_TRUE(SearchTestAccess::accept(search, good));
  EXPECT_EQ(search.defect(), "");
}

TEST_F(SearchTest, RefusesAnOrderAgainstADependence) {
  DecodedSchedule wrong = good;
  std::reverse(wrong.steps.begin(), wrong.steps.end());
  expectRefused(wrong, "before");
}

TEST_F(SearchTest, RefusesAnOrderThatLacksANode) {
  DecodedSchedule wrong = good;
  wrong.steps.pop_back();
  expectRefused(wrong, "order");
}

TEST_F(SearchTest, RefusesClocksThatAreWrong) {
  DecodedSchedule wrong = good;
  --wrong.makespan;
  expectRefused(wrong, "the makespan is");
}

TEST_F(SearchTest, RefusesABucketOfNothing) {
  DecodedSchedule wrong = good;
  wrong.buckets.push_back({{0}, BucketForm::Packed});
  expectRefused(wrong, "bucket");
}

TEST_F(SearchTest, RefusesAnOrderAboveTheLimit) {
  Order given = identityOrder(problem);
  Bytes peak = peakOf(problem, given);
  ASSERT_GT(good.peak, peak);
  Search tight(facts, options, Reference(facts, given), peak);
  EXPECT_FALSE(SearchTestAccess::accept(tight, good));
  EXPECT_NE(tight.defect().find("limit"), std::string::npos) << tight.defect();
  EXPECT_EQ(tight.order(), given);
}

/// Compares the events of a search with one another.
class Watcher : public SearchObserver {
public:
  void begin(const SearchStart &start) override {
    EXPECT_FALSE(running);
    running = true;
    best = start.makespan;
    steps = 0;
    ++searches;
  }
  void observe(const SearchTrial &trial) override {
    EXPECT_TRUE(running);
    EXPECT_GT(trial.steps, 0);
    EXPECT_GE(trial.stepsSoFar, steps + trial.steps);
    steps = trial.stepsSoFar;
    bool isIncumbent = trial.verdict == SearchVerdict::Incumbent;
    EXPECT_EQ(isIncumbent, trial.best < best);
    if (isIncumbent) {
      EXPECT_EQ(trial.makespan, trial.best);
    }
    EXPECT_NE(trial.verdict, SearchVerdict::Rejected);
    EXPECT_EQ(trial.phase == SearchPhase::Exact && !trial.policy.empty(), false);
    best = trial.best;
    ++trials;
    seen[static_cast<size_t>(trial.phase)] = true;
  }
  void end(const SearchEnd &end) override {
    EXPECT_TRUE(running);
    running = false;
    EXPECT_EQ(end.makespan, best);
    EXPECT_GE(end.steps, steps);
    allSteps += end.steps;
  }

  bool running = false;
  Ns best = 0;
  int64_t steps = 0, allSteps = 0, trials = 0;
  int32_t searches = 0;
  std::array<bool, kNumSearchPhases> seen = {};
};

// Tests that observers see every trial of both searches, in an order that makes sense, and change nothing.
TEST(SearchObserver, SeesEveryTrialAndChangesNothing) {
  std::array<bool, kNumSearchPhases> seen = {};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomOptions shape;
    shape.nodes = 5 + static_cast<int32_t>(seed % 80);
    Problem problem = seed % 20 == 7 ? layeredProblem(seed, {6, 4, 2, false, 8}) : randomProblem(seed, shape);
    ScheduleOptions options;
    options.effort = 4000;
    options.slowDown.computePermille = seed % 3 == 0 ? 300 : 0;
    Schedule unwatched = schedule(problem, options);
    Watcher watcher;
    SearchStatistics statistics;
    options.observers = {&watcher, &statistics};
    Schedule watched = schedule(problem, options);
    EXPECT_EQ(watched.order, unwatched.order) << "seed " << seed;
    EXPECT_EQ(watched.steps, unwatched.steps) << "seed " << seed;
    EXPECT_EQ(watched.makespan, watcher.best) << "seed " << seed;
    EXPECT_EQ(watched.steps, watcher.allSteps) << "seed " << seed;
    EXPECT_FALSE(watcher.running);
    EXPECT_EQ(statistics.searches, watcher.searches);
    EXPECT_EQ(statistics.total().trials, watcher.trials);
    // Each search counts the given order as its first incumbent.
    EXPECT_EQ(statistics.total().incumbents + watcher.searches, watched.incumbents) << "seed " << seed;
    for (size_t phase = 0; phase < kNumSearchPhases; ++phase)
      seen[phase] = seen[phase] || watcher.seen[phase];
  }
  for (bool phase : seen)
    EXPECT_TRUE(phase) << "a phase without a trial";
}

// Tests that each of the numbers that help most is a value of its knob, and changes a policy.
TEST(Portfolio, TuningsAreValuesOfKnobs) {
  std::set<std::pair<int32_t, int32_t>> seen;
  for (KnobValue setting : tunings()) {
    ASSERT_GE(setting.value, 0);
    ASSERT_LT(setting.value, numValues(setting.knob));
    EXPECT_TRUE(seen.insert({setting.knob, setting.value}).second) << setting.knob << ", " << setting.value;
    Policy before, after = withKnob(before, setting.knob, setting.value, /*limit=*/Bytes(1) << 40);
    EXPECT_TRUE(areEqual(before, before));
    EXPECT_EQ(areEqual(before, after), areEqual(after, before));
  }
}

/// Counts the trials whose policy caps buckets that computes need at `cap`, and is otherwise smallBucketPolicy().
class CapCounter : public SearchObserver {
public:
  explicit CapCounter(Bytes cap) : cap(cap) {}
  void begin(const SearchStart &) override {}
  void observe(const SearchTrial &trial) override {
    Policy policy = smallBucketPolicy(kUnlimited);
    policy.maxNeeded = cap;
    llvm::SmallVector<PolicyValue, 8> wanted;
    describePolicy(policy, wanted);
    count += llvm::equal(trial.policy, wanted, [](const PolicyValue &a, const PolicyValue &b) {
      return a.name == b.name && a.value == b.value;
    });
  }
  void end(const SearchEnd &) override {}
  Bytes cap;
  int64_t count = 0;
};

// Tests that a search tries small buckets, that a first answer does not take the time for that, and that small ones are
// never larger than others.
TEST(Portfolio, SmallBucketsAreAPartOfTheLimit) {
  EXPECT_EQ(smallBucketPolicy(Bytes(64) << 30).maxNeeded, Policy().maxNeeded);
  EXPECT_EQ(smallBucketPolicy(Bytes(1) << 50).maxNeeded, Policy().maxNeeded);
  EXPECT_EQ(smallBucketPolicy(Bytes(32) << 30).maxNeeded, Bytes(512) << 20);
  Problem problem = layeredProblem(2, {6, 4, 2, false, 8});
  ScheduleFacts facts(problem, /*bucketing=*/true);
  Order given = identityOrder(problem);
  const Bytes limit = 64 * peakOf(problem, given);
  for (int64_t effort : {0, 40000}) {
    CapCounter counter(limit / 64);
    ScheduleOptions options;
    options.observers = {&counter};
    Search search(facts, options, Reference(facts, given), limit);
    search.run(effort, /*bound=*/0);
    EXPECT_EQ(counter.count > 0, effort > 0);
  }
}

/// Notes which policies there were, whatever their deadlines, and whether moves that shortened nothing were followed by
/// further moves.
class PolicyList : public SearchObserver {
public:
  void begin(const SearchStart &) override {}
  void observe(const SearchTrial &trial) override {
    seen.insert(textOf(trial.policy));
    bool isMove = trial.phase == SearchPhase::Moves;
    wentOn |= isMove && wasFruitless;
    wasFruitless = isMove && trial.verdict == SearchVerdict::CutOff;
  }
  void end(const SearchEnd &) override {}
  static std::string textOf(llvm::ArrayRef<PolicyValue> policy) {
    std::string text;
    for (const PolicyValue &number : policy)
      if (number.name != "horizon")
        text += (number.name + "=" + llvm::Twine(number.value) + " ").str();
    return text;
  }
  std::set<std::string> seen;
  bool wentOn = false, wasFruitless = false;
};

// Tests that a search decodes the sampled policies, and that a first answer does not take the time for that.
TEST(Portfolio, SampledPoliciesAreDecoded) {
  Problem problem = layeredProblem(2, {6, 4, 2, false, 8});
  ScheduleFacts facts(problem, /*bucketing=*/true);
  Order given = identityOrder(problem);
  const Bytes limit = 64 * peakOf(problem, given);
  std::vector<Policy> sampled = sampledPolicies(facts, limit, makespanOf(problem, given));
  for (int64_t effort : {0, 40000}) {
    PolicyList list;
    ScheduleOptions options;
    options.observers = {&list};
    Search search(facts, options, Reference(facts, given), limit);
    search.run(effort, /*bound=*/0);
    std::set<std::string> texts;
    for (const Policy &policy : sampled) {
      llvm::SmallVector<PolicyValue, 8> values;
      describePolicy(policy, values);
      texts.insert(PolicyList::textOf(values));
      EXPECT_EQ(list.seen.count(PolicyList::textOf(values)) > 0, effort > 0) << PolicyList::textOf(values);
    }
    EXPECT_EQ(texts.size(), sampled.size());
  }
}

/// Whether the moves of a search go on when they have shortened nothing, for one of some problems of so many layers.
static bool movesGoOn(int32_t layers, bool bucketing) {
  bool wentOn = false;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Problem problem = layeredProblem(seed, {layers, 4, 2, false, 8});
    ScheduleFacts facts(problem, bucketing);
    Order given = identityOrder(problem);
    PolicyList list;
    ScheduleOptions options;
    options.observers = {&list};
    Search search(facts, options, Reference(facts, given), peakOf(problem, given));
    search.run(/*effort=*/200000, /*bound=*/0);
    EXPECT_EQ(search.defect(), "");
    wentOn |= list.wentOn;
  }
  return wentOn;
}

// Tests that the moves go on when they shorten nothing, because they may lengthen the order, with buckets and in small
// problems, and that they end then in large problems without buckets.
TEST(Search, MovesMayLengthen) {
  EXPECT_TRUE(movesGoOn(/*layers=*/6, /*bucketing=*/true));
  EXPECT_TRUE(movesGoOn(/*layers=*/6, /*bucketing=*/false));
  EXPECT_FALSE(movesGoOn(/*layers=*/200, /*bucketing=*/false));
}

/// Remembers which searches there were.
class SearchList : public SearchObserver {
public:
  void begin(const SearchStart &start) override { withBuckets.push_back(start.bucketing); }
  void observe(const SearchTrial &) override {}
  void end(const SearchEnd &end) override { steps += end.steps; }
  std::vector<bool> withBuckets;
  int64_t steps = 0;
};

// Tests that the order alone is searched unless a first answer with buckets is shorter than every order: where the lane
// of collectives binds because of their latencies.
TEST(Scheduler, SearchesTheOrderAloneOnlyIfItCouldBeBest) {
  for (bool binds : {false, true}) {
    LayeredOptions shape;
    shape.layers = 12;
    Problem problem = layeredProblem(4, shape);
    constexpr Ns kLatency = 1000000;
    for (Node &node : problem.nodes)
      if (node.kind == NodeKind::Start)
        node.cost = binds ? kLatency : 1;
    for (MergeKey &key : problem.mergeKeys)
      key.cost = [binds](Bytes) { return binds ? kLatency : Ns(1); };
    SearchList list;
    ScheduleOptions options;
    options.effort = 40000;
    options.memory.ppm = 10000000;
    options.observers = {&list};
    Schedule together = schedule(problem, options);
    EXPECT_EQ(llvm::is_contained(list.withBuckets, false), !binds);
    EXPECT_EQ(list.steps, together.steps);
    options.observers = {};
    options.bucketing = false;
    EXPECT_LE(together.makespan, schedule(problem, options).makespan);
  }
}

} // namespace
