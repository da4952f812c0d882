//===- SettleTest.cpp - Slack that costs nothing ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Solver/Settle.h"
#include "Check/OrderVerifier.h"
#include "CheckResult.h"
#include "CollectiveBuilder.h"
#include "CommSched/Scheduling/Answer/CostScale.h"
#include "RandomProblem.h"

using namespace commsched;
using namespace commsched::test;

namespace {

constexpr CostScale kScales[] = {1000, 1500, 2000};

/// A gather of 100 ns whose wait stands in front of 200 ns of computation that does not need it. The wait holds a
/// buffer of 64 bytes until it has run.
struct EarlyWait {
  explicit EarlyWait(Bytes temporary) {
    builder.problem.mergeKeys = {keyOf(CollectiveKind::AllGather, 100, 0)};
    BufferId input = builder.buffer(64, kNone);
    NodeId wait = builder.collective(0, 0, input, 64, 64, /*isReturned=*/false, {});
    BufferId output = builder.problem.members[0].output;
    BufferId other = builder.buffer(temporary, 2);
    builder.compute(200, {}, {other});
    builder.compute(10, {wait, 2}, {output});
    problem = builder.take();
  }
  CollectiveBuilder builder;
  Problem problem;
};

// A wait moves in front of its first user, and what it waits for is hidden, also if it takes twice as long.
TEST(Settle, MovesAWaitToItsFirstUser) {
  Problem problem = EarlyWait(8).problem;
  Order settled = settle(problem, identityOrder(problem), kUnlimited);
  EXPECT_EQ(settled, (Order{0, 2, 1, 3}));
  EXPECT_EQ(playAtScales(problem, settled, kScales), (std::vector<Ns>{210, 210, 210}));
  EXPECT_EQ(playAtScales(problem, identityOrder(problem), kScales), (std::vector<Ns>{310, 360, 410}));
}

// A wait stays where it is if what it holds does not fit beside what would pass it.
TEST(Settle, KeepsTheLimit) {
  Problem problem = EarlyWait(100).problem;
  const Bytes peak = peakOf(problem, identityOrder(problem));
  EXPECT_EQ(settle(problem, identityOrder(problem), peak), identityOrder(problem));
  EXPECT_NE(settle(problem, identityOrder(problem), peak + 64), identityOrder(problem));
}

// A start moves up to what it needs, if the order becomes no longer by it.
TEST(Settle, MovesAStartToItsOperands) {
  CollectiveBuilder builder;
  builder.problem.mergeKeys = {keyOf(CollectiveKind::AllGather, 100, 0)};
  BufferId input = builder.buffer(64, 0);
  builder.compute(5, {}, {input});
  builder.compute(150, {}, {});
  NodeId wait = builder.collective(0, 0, input, 64, 64, /*isReturned=*/false, {0});
  builder.compute(100, {1}, {});
  builder.compute(10, {wait, 4}, {builder.problem.members[2].output});
  Problem problem = builder.take();
  Order settled = settle(problem, identityOrder(problem), kUnlimited);
  EXPECT_EQ(settled, (Order{0, 2, 1, 4, 3, 5}));
  EXPECT_EQ(playAtScales(problem, settled, kScales), (std::vector<Ns>{265, 265, 265}));
}

// In every random problem, with every limit, the settled order is legal, within the limit, and at no scale longer.
TEST(Settle, IsNeverLongerAndNeverAboveTheLimit) {
  int shorter = 0, limited = 0;
  const int count = portion(2000);
  for (int seed = 1; seed <= count; ++seed) {
    Random random(seed);
    RandomOptions shape;
    shape.nodes = static_cast<int32_t>(random.between(5, 120));
    shape.chanceOfPinned = seed % 4 == 0 ? 10 : 0;
    Problem problem = randomProblem(seed, shape);
    Order order = randomOrder(problem, random);
    if (!verifyOrder(problem, order, {}).empty())
      continue;
    const Bytes peak = peakOf(problem, order), limit = peak + random.below(3) * 64;
    Order settled = settle(problem, order, limit);
    ScheduleRequirements requirements{limit, shape.collectiveOrder};
    ASSERT_EQ(verifyOrder(problem, settled, requirements), "") << "seed " << seed;
    std::vector<Ns> before = playAtScales(problem, order, kScales);
    std::vector<Ns> after = playAtScales(problem, settled, kScales);
    ASSERT_LE(after[0], before[0]) << "seed " << seed;
    ASSERT_LE(after[2], before[2]) << "seed " << seed;
    shorter += after[2] < before[2];
    limited += settled != settle(problem, order, kUnlimited);
  }
  EXPECT_GE(shorter, leastOf(600));
  EXPECT_GE(limited, leastOf(300));
}

// An answer of the solver keeps all of its promises when it is settled: with buckets and units.
TEST(Settle, KeepsThePromisesOfAnswers) {
  int changed = 0;
  const int count = portion(300);
  for (int seed = 1; seed <= count; ++seed) {
    RandomOptions shape;
    shape.nodes = 10 + seed % 90;
    Problem problem = randomProblem(seed, shape);
    ScheduleOptions options;
    options.effort = 20 * shape.nodes;
    Schedule answer = schedule(problem, options);
    const Order before = answer.order;
    const Ns makespan = answer.makespan;
    settleAnswer(problem, options, answer);
    ASSERT_NO_FATAL_FAILURE(checkResult(problem, options, answer)) << "seed " << seed;
    ASSERT_LE(answer.makespan, makespan) << "seed " << seed;
    changed += answer.order != before;
  }
  EXPECT_GE(changed, leastOf(100));
}

// A condition on answers holds for settled ones too.
TEST(Settle, AsksWhatIsAdmitted) {
  Problem problem = EarlyWait(8).problem;
  ScheduleOptions options;
  options.memory.limit = kUnlimited;
  Schedule answer = keepOrder(problem);
  measure(problem, answer);
  options.admits = [](const Problem &, llvm::ArrayRef<NodeId> order) { return llvm::is_sorted(order); };
  settleAnswer(problem, options, answer);
  EXPECT_EQ(answer.order, identityOrder(problem));
  options.admits = nullptr;
  settleAnswer(problem, options, answer);
  EXPECT_EQ(answer.makespan, 210);
}

// A collective that ends as much later as it may leaves the makespan as it is, and one ns more does not.
TEST(Settle, ToleratedDelaysAreExact) {
  int64_t positive = 0;
  const int count = portion(200);
  for (int seed = 1; seed <= count; ++seed) {
    RandomOptions shape;
    shape.nodes = 40;
    shape.chanceOfMergeable = 0;
    Problem problem = randomProblem(seed, shape);
    const Order order = identityOrder(problem);
    const Ns makespan = makespanOf(problem, order);
    std::vector<Ns> delays = toleratedDelays(problem, order);
    for (NodeId id = 0; id < problem.size(); ++id) {
      if (problem.nodes[id].kind != NodeKind::Start)
        continue;
      Problem later = problem;
      later.nodes[id].cost += delays[id];
      ASSERT_EQ(makespanOf(later, order), makespan) << "seed " << seed << ", node " << id;
      later.nodes[id].cost += 1;
      ASSERT_EQ(makespanOf(later, order), makespan + 1) << "seed " << seed << ", node " << id;
      positive += delays[id] > 0;
    }
  }
  EXPECT_GE(positive, leastOf(300));
}

} // namespace
