//===- JointBoundTest.cpp - Tests of the bound for all bucketings and orders -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bound beside the optimum of all bucketings and all orders, for problems with packed and coalesced buckets.
//
//===------------------------------------------------------------------------------------------===//

#include "Bounds/BoundArguments.h"
#include "CollectiveBuilder.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
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

// Tests against all bucketings and orders of small problems that the bound never says too much, without a limit and
// with one.
TEST(JointBound, NoBucketingIsBelow) {
  int32_t met = 0;
  for (uint64_t seed = 0; seed < portion(3000u); ++seed) {
    Problem problem = drawProblem(seed);
    BoundOptions limited;
    limited.limit = peakOf(problem, identityOrder(problem));
    LowerBound bound = jointLowerBound(problem, limited);
    for (Bytes limit : {kUnlimited, limited.limit}) {
      Ns below = limit == kUnlimited ? bound.makespan : bound.withLimit;
      ASSERT_EQ(optimum(problem, limit, below, 80), below) << "seed " << seed;
    }
    met += seed < 300 && optimum(problem, kUnlimited, bound.makespan + 1, 80) == bound.makespan;
  }
  EXPECT_GE(met, leastOf(20));
}

// Tests that the bound of the arguments that are said to be certified is the one that a witness proves, and that the
// bound says of itself whether it is.
TEST(JointBound, SaysWhatCertificatesCarry) {
  int32_t uncertified = 0;
  for (uint64_t seed = 0; seed < portion(1000u); ++seed) {
    Problem problem = drawProblem(seed);
    BoundOptions all, certified;
    all.limit = certified.limit = seed % 2 == 0 ? kUnlimited : peakOf(problem, identityOrder(problem));
    for (const BoundArgumentEntry &argument : boundArguments())
      if (!argument.isCertified)
        certified.without.push_back(argument.name.str());
    const LowerBound bound = jointLowerBound(problem, all), less = jointLowerBound(problem, certified);
    ASSERT_EQ(less.withLimit, proveBound(problem, all, /*bucketing=*/true).makespan) << "seed " << seed;
    ASSERT_TRUE(less.isCertified && less.isLimitCertified);
    const bool isCertified = bound.limitLane == kNone ? bound.isCertified : bound.isLimitCertified;
    ASSERT_EQ(isCertified, bound.withLimit == less.withLimit) << "seed " << seed;
    uncertified += !isCertified;
  }
  EXPECT_GE(uncertified, leastOf(100));
}

// A collective of 100 ns behind a compute of 1,000 ns, and four of 5 ns behind computes of 10 ns. The four computes
// hide behind the long collective, and then their collectives follow it, in a bucket of 8 ns: 4 ns more than the shares
// say.
TEST(JointBound, WhatIsPutOffHasALatency) {
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

/// A collective of `cost` ns on lane 1 that waits for a node, and its wait.
NodeId addStage(Problem &problem, NodeId pred, Ns cost) {
  Node start, wait;
  start.kind = NodeKind::Start;
  start.lane = 1;
  start.cost = cost;
  wait.kind = NodeKind::Wait;
  wait.start = problem.size();
  for (const Node &node : {start, wait}) {
    problem.preds.append(node.kind == NodeKind::Start ? pred : problem.size() - 1);
    problem.touches.append({});
    problem.nodes.push_back(node);
  }
  return problem.size() - 1;
}

/// The same of a compute, which depends on nothing or on one node.
NodeId addCompute(Problem &problem, llvm::ArrayRef<NodeId> preds, Ns cost) {
  Node node;
  node.cost = cost;
  problem.preds.append(preds);
  problem.touches.append({});
  problem.nodes.push_back(node);
  return problem.size() - 1;
}

// A gradient of 1,000 ns is reduced in two stages of 100 and 30 ns, with a division of 2 ns between them. Ten of 10 ns
// are reduced in stages of 3 and 4 ns without one. Whatever is put off behind the first stage of the long one costs its
// own two stages, and the second stage of the long one follows anyway.
TEST(JointBound, StagesOfAReductionFollow) {
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  NodeId wait = addStage(problem, addCompute(problem, {}, 1000), 100);
  addStage(problem, addCompute(problem, wait, 2), 30);
  for (int32_t index = 0; index < 10; ++index)
    addStage(problem, addStage(problem, addCompute(problem, {}, 10), 3), 4);
  problem.finalize();
  ASSERT_EQ(problem.validate(), "");
  // All computes but the division run before the end of the long first stage. An argument that knows no stages says
  // 1132, since it forgets the stages of 30 and of 4 ns.
  EXPECT_EQ(lowerBound(problem).makespan, 1200);
  EXPECT_EQ(jointLowerBound(problem).makespan, 1200);
  // With the second stages of the ten without cost, the long one still has its own.
  for (NodeId node = 0; node < problem.size(); ++node)
    if (problem.nodes[node].cost == 4)
      problem.nodes[node].cost = 0;
  EXPECT_EQ(lowerBound(problem).makespan, 1160);
}

} // namespace
