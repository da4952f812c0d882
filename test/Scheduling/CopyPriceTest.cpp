//===- CopyPriceTest.cpp - Tests of bounds with copies and latencies ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Problems in which the compute lane and the lane of collectives have about the same to do, so that it matters whether
// a bucket is packed. The optimum is that of all bucketings and all orders.
//
//===------------------------------------------------------------------------------------------===//

#include "CollectiveBuilder.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// A chain of computes that use gathers and have their gradients reduced, and computes beside it.
Problem drawProblem(uint64_t seed) {
  Random random(seed);
  CollectiveBuilder builder;
  Problem &problem = builder.problem;
  Ns latency = random.between(2, 20), perMember = random.between(0, latency), launch = random.between(0, 4);
  Bytes rate = random.between(1, 6);
  problem.copyCost = [=](Bytes read, Bytes written) { return launch + (read + written) / (16 * rate); };
  for (CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter})
    problem.mergeKeys.push_back(keyOf(kind, latency, perMember));
  int64_t gathers = random.between(2, 4), reduces = random.between(0, 2);
  bool isEqual = random.percent(60);
  NodeId chain = kNone;
  BufferId held = builder.buffer(64 * random.between(1, 12), 0);
  if (random.percent(60))
    chain = builder.compute(random.between(1, 20), {}, {held});
  else
    problem.buffers[held].def = kNone;
  for (int64_t index = 0; index < gathers; ++index) {
    Bytes bytes = 64 * (isEqual ? 4 : random.between(1, 8));
    NodeId wait = builder.collective(0, bytes, kNone, bytes / 4, bytes, false, {});
    std::vector<NodeId> preds = {wait};
    if (chain != kNone)
      preds.insert(preds.begin(), chain);
    BufferId gradient = index < reduces ? builder.buffer(bytes, problem.size()) : kNone;
    std::vector<BufferId> touches = {static_cast<BufferId>(problem.members[wait - 1].output)};
    if (index + 1 == gathers || random.percent(50))
      touches.insert(touches.begin(), held);
    if (gradient != kNone)
      touches.push_back(gradient);
    chain = builder.compute(random.between(1, 60), preds, touches);
    if (gradient != kNone)
      builder.collective(1, bytes, gradient, bytes, bytes / 4, true, {chain});
  }
  for (int64_t index = random.between(0, 2); index > 0; --index)
    builder.compute(random.between(1, 60), {}, {});
  return builder.take();
}

// Tests against all bucketings and orders of small problems that copies never count too much, without a limit and with
// one.
TEST(CopyPrice, NoBucketingIsBelow) {
  int32_t raised = 0, raisedWithin = 0, met = 0;
  for (uint64_t seed = 0; seed < portion(3000u); ++seed) {
    Problem problem = drawProblem(seed);
    BoundOptions limited;
    limited.limit = peakOf(problem, identityOrder(problem));
    LowerBound bound = jointLowerBound(problem, limited);
    for (Bytes limit : {kUnlimited, limited.limit}) {
      Ns below = limit == kUnlimited ? bound.makespan : bound.withLimit;
      ASSERT_EQ(optimum(problem, limit, below, 80), below) << "seed " << seed;
    }
    // Without casts, copies are part of no other argument.
    Problem isFree = problem;
    isFree.copyCost = [](Bytes, Bytes) { return Ns(0); };
    LowerBound less = jointLowerBound(isFree, limited);
    ASSERT_GE(bound.makespan, less.makespan) << "seed " << seed;
    raised += bound.makespan > less.makespan;
    raisedWithin += bound.withLimit > less.withLimit;
    met += seed < 300 && optimum(problem, kUnlimited, bound.makespan + 1, 80) == bound.makespan;
  }
  EXPECT_GE(raised, leastOf(150));
  EXPECT_GE(raisedWithin, leastOf(50));
  EXPECT_GE(met, leastOf(20));
}

// A copy takes half a nanosecond for each byte, and a key has gathers of 40 ns and 1 ns for each byte; of a coalesced
// bucket each member takes `perMember` ns more.
static void addGathers(Problem &problem, Ns perMember) {
  problem.copyCost = [](Bytes, Bytes written) { return written / 2; };
  MergeKey key;
  key.lane = 1;
  key.ranks = 4;
  key.cost = [](Bytes bytes) { return Ns(40 + bytes); };
  key.groupCost = [perMember](Bytes bytes, int32_t members) { return Ns(40 + bytes + perMember * members); };
  problem.mergeKeys.push_back(key);
}

// Four gathers of 100 bytes beside a compute of 480 ns. In one packed bucket they take 440 ns, but then copies take 248
// ns; alone they take 560 ns; the best answer is a coalesced bucket of 520 ns.
TEST(CopyPrice, PackingIsNotFree) {
  CollectiveBuilder builder;
  addGathers(builder.problem, /*perMember=*/20);
  builder.compute(480, {}, {});
  for (int32_t index = 0; index < 4; ++index)
    builder.collective(0, 100, kNone, 25, 100, true, {});
  Problem taken = builder.take();
  EXPECT_EQ(optimum(taken, kUnlimited, 1000, 1000), 520);
  Ns bound = jointLowerBound(taken).makespan;
  EXPECT_GE(bound, 503);
  EXPECT_LE(bound, 520);
  taken.copyCost = [](Bytes, Bytes) { return Ns(0); };
  EXPECT_EQ(jointLowerBound(taken).makespan, 480);
}

// Twelve gathers of 100 bytes beside a compute of 1,100 ns. With six of them packed the lane takes 640 + 6 * 140 =
// 1,480 ns and the compute lane 1,100 + 6 * 62 = 1,472 ns. Coalesced buckets are dear.
TEST(CopyPrice, SomeArePacked) {
  CollectiveBuilder builder;
  addGathers(builder.problem, /*perMember=*/200);
  for (int32_t index = 0; index < 10; ++index)
    builder.compute(110, {}, {});
  for (int32_t index = 0; index < 12; ++index)
    builder.collective(0, 100, kNone, 25, 100, true, {});
  Problem taken = builder.take();
  ScheduleOptions options;
  options.memory.ppm = 4000000;
  Schedule best = schedule(taken, options);
  EXPECT_LE(best.makespan, 1490);
  Ns bound = jointLowerBound(taken).makespan;
  EXPECT_LE(bound, best.makespan);
  EXPECT_GE(bound, 1425);
}

// A collective of 100 ns behind a compute of 1,000 ns, and four of 5 ns behind computes of 10 ns. The four computes
// hide behind the long collective, and then their collectives follow it, in a bucket of 8 ns: 4 ns more than the shares
// say.
TEST(CopyPrice, WhatIsPutOffHasALatency) {
  CollectiveBuilder builder;
  Problem &problem = builder.problem;
  MergeKey key;
  key.kind = CollectiveKind::ReduceScatter;
  key.lane = 1;
  key.ranks = 4;
  key.cost = [](Bytes bytes) { return Ns(4 + bytes); };
  problem.mergeKeys.push_back(key);
  for (int32_t index = 0; index < 5; ++index) {
    BufferId gradient = builder.buffer(64, problem.size());
    NodeId compute = builder.compute(index == 0 ? 1000 : 10, {}, {gradient});
    builder.collective(0, index == 0 ? 96 : 1, gradient, 64, 16, true, {compute});
  }
  Problem taken = builder.take();
  EXPECT_EQ(optimum(taken, kUnlimited, 2000, 1000), 1108);
  Ns bound = jointLowerBound(taken).makespan;
  EXPECT_GE(bound, 1107);
  EXPECT_LE(bound, 1108);
  // The certificate's argument has no latencies.
  EXPECT_EQ(proveBound(taken, {}, /*bucketing=*/true).makespan, 1104);
}

} // namespace
