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
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include "Solver/Portfolio.h"
#include "Solver/SearchPhases.h"
#include "gtest/gtest.h"
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace commsched {
struct SearchTestAccess {
  static bool accept(Search &search, const DecodedSchedule &decoded) { return search.state.accept(decoded); }
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
    EXPECT_TRUE(trial.isDecode || trial.policy.empty());
    best = trial.best;
    ++trials;
    seen.insert(trial.phase);
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
  std::set<llvm::StringRef> seen;
};

// Tests that observers see every trial of both searches, in an order that makes sense, and change nothing.
TEST(SearchObserver, SeesEveryTrialAndChangesNothing) {
  std::set<llvm::StringRef> seen;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomOptions shape;
    shape.nodes = 5 + static_cast<int32_t>(seed % 80);
    Problem problem = seed % 20 == 7 ? layeredProblem(seed, {6, 4, 2, false, 8}) : randomProblem(seed, shape);
    ScheduleOptions options;
    options.effort = 4000;
    Schedule unwatched = scheduleCore(problem, options);
    Watcher watcher;
    SearchStatistics statistics;
    options.observers = {&watcher, &statistics};
    Schedule watched = scheduleCore(problem, options);
    EXPECT_EQ(watched.order, unwatched.order) << "seed " << seed;
    EXPECT_EQ(watched.steps, unwatched.steps) << "seed " << seed;
    EXPECT_EQ(watched.makespan, watcher.best) << "seed " << seed;
    EXPECT_EQ(watched.steps, watcher.allSteps) << "seed " << seed;
    EXPECT_FALSE(watcher.running);
    EXPECT_EQ(statistics.searches, watcher.searches);
    EXPECT_EQ(statistics.total().trials, watcher.trials);
    // Each search counts the given order as its first incumbent.
    EXPECT_EQ(statistics.total().incumbents + watcher.searches, watched.incumbents) << "seed " << seed;
    seen.insert(watcher.seen.begin(), watcher.seen.end());
  }
  for (const SearchPhase &phase : searchPhases())
    EXPECT_TRUE(seen.count(phase.name)) << phase.name.str() << " makes no trial";
}

// Tests that a phase that the options leave out makes no trial, and that the others run as before.
TEST(Search, LeavesOutPhases) {
  Problem problem = layeredProblem(2, {6, 4, 2, false, 8});
  for (const SearchPhase &phase : searchPhases()) {
    Watcher watcher;
    ScheduleOptions options;
    options.effort = 40000;
    options.observers = {&watcher};
    options.without = {phase.name.str()};
    Schedule answer = schedule(problem, options);
    EXPECT_FALSE(watcher.seen.count(phase.name)) << phase.name.str();
    EXPECT_EQ(answer.defect, "");
    EXPECT_LE(answer.makespan, answer.inputMakespan);
  }
}

/// Looks at the slices of the moves.
class SliceCounter : public SearchObserver {
public:
  void begin(const SearchStart &) override { fruitless = 0; }
  void observe(const SearchTrial &trial) override {
    if (trial.phase != "moves")
      return;
    fruitless = trial.verdict == SearchVerdict::CutOff ? fruitless + 1 : 0;
    most = std::max(most, fruitless);
  }
  void end(const SearchEnd &) override {}
  int32_t fruitless = 0, most = 0;
};

/// The largest number of slices of the moves one after the other that find nothing, for some problems of so many
/// layers.
static int32_t mostFruitlessSlices(int32_t layers, bool bucketing, int64_t effort) {
  SliceCounter counter;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    Problem problem = layeredProblem(seed, {layers, 4, 2, false, 8});
    ScheduleFacts facts(problem, bucketing);
    Order given = identityOrder(problem);
    ScheduleOptions options;
    options.observers = {&counter};
    Search search(facts, options, Reference(facts, given), peakOf(problem, given));
    search.run(effort, /*bound=*/0);
    EXPECT_EQ(search.defect(), "");
  }
  return counter.most;
}

// Tests that moves that find nothing end after a few slices, and that where moves may lengthen the order, with buckets
// and in small problems, as many slices without lengthening follow.
TEST(Search, MovesEndIfTheyFindNothing) {
  EXPECT_EQ(mostFruitlessSlices(/*layers=*/6, /*bucketing=*/true, /*effort=*/400000), 16);
  EXPECT_EQ(mostFruitlessSlices(/*layers=*/6, /*bucketing=*/false, /*effort=*/400000), 16);
  EXPECT_EQ(mostFruitlessSlices(/*layers=*/200, /*bucketing=*/false, /*effort=*/2000000), 8);
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
