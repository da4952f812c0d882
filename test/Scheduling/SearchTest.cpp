//===- SearchTest.cpp - Tests that the search believes nothing --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Corrupts decodes by hand, because the list scheduler makes none that are wrong, and offers them to the search.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Search.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

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
        limit(2 * peakOf(problem, identityOrder(problem))), search(facts, options, identityOrder(problem), limit) {
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
  Search tight(facts, options, given, peak);
  EXPECT_FALSE(SearchTestAccess::accept(tight, good));
  EXPECT_NE(tight.defect().find("limit"), std::string::npos) << tight.defect();
  EXPECT_EQ(tight.order(), given);
}

} // namespace
