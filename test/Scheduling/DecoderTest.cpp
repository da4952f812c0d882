//===- DecoderTest.cpp - Tests of single decodes against the models ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Whatever the policy, a decode has to be legal and within the limit, and its own clocks and count of bytes have to be
// those of the timeline and the memory model on the expanded problem.
//
//===------------------------------------------------------------------------------------------===//

#include "Solver/Decode/Decoder.h"
#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "Problem/ProblemPrinter.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <limits>

using namespace commsched;
using namespace commsched::test;

namespace {

constexpr Ns kNoCutoff = std::numeric_limits<Ns>::max();

/// Any policy at all, for values of about `size` bytes.
Policy randomPolicy(Random &random, Bytes size) {
  Policy policy;
  policy.tailShare = static_cast<int32_t>(random.percent(50) ? 0 : random.between(0, 1000));
  policy.window = static_cast<int32_t>(random.percent(30) ? 1000000 : random.between(0, 50));
  policy.terminalDelay = random.between(0, 20000);
  policy.horizon = random.between(800, 2000);
  policy.maxNeeded = random.between(0, 8 * size);
  policy.maxTerminal = random.between(0, 8 * size);
  return policy;
}

/// How often something happened, so that a test says when it tests nothing.
struct Decodes {
  int64_t buckets = 0, packed = 0, moved = 0;
};

void checkDecode(const Problem &problem, const DecodedSchedule &decoded, Bytes limit, Decodes &counts) {
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, decoded.buckets);
  ASSERT_TRUE(bool(expanded)) << llvm::toString(expanded.takeError());
  ASSERT_EQ(expanded->problem.validate(), "");
  Order order = orderOf(decoded, *expanded);
  ScheduleRequirements requirements;
  requirements.peakLimit = limit;
  ASSERT_EQ(verifyOrder(expanded->problem, order, requirements), "");
  ASSERT_EQ(decoded.makespan, makespanOf(expanded->problem, order));
  ASSERT_EQ(decoded.peak, peakOf(expanded->problem, order));
  counts.buckets += static_cast<int64_t>(decoded.buckets.size());
  for (const Bucket &bucket : decoded.buckets)
    counts.packed += bucket.form == BucketForm::Packed;
  counts.moved += order != identityOrder(expanded->problem);
}

void checkProblem(const Problem &problem, uint64_t seed, Bytes size, Decodes &counts) {
  Random random(seed);
  for (bool bucketing : {false, true}) {
    ScheduleFacts facts(problem, bucketing);
    Decoder decoder(facts);
    Order fallback = random.percent(50) ? identityOrder(problem) : randomOrder(problem, random);
    Reference reference(facts, fallback);
    for (int round = 0; round < 4; ++round) {
      Bytes limit = random.percent(25) ? kUnlimited : reference.peak + (random.percent(50) ? 0 : random.below(size));
      DecodedSchedule decoded;
      Policy policy = randomPolicy(random, size);
      ASSERT_TRUE(decoder.run(reference, policy, limit, kNoCutoff, decoded));
      checkDecode(problem, decoded, limit, counts);
      if (testing::Test::HasFatalFailure())
        return;
      // What is just shorter than the cutoff is found: nothing is given up for work that a pack does away with.
      DecodedSchedule again;
      ASSERT_TRUE(decoder.run(reference, policy, limit, decoded.makespan + 1, again));
      ASSERT_EQ(again.makespan, decoded.makespan);
    }
  }
}

TEST(Decoder, DecodesAgreeWithTheModels) {
  Decodes counts;
  for (uint64_t seed = 0; seed < portion(3000u); ++seed) {
    RandomOptions options;
    options.nodes = 3 + static_cast<int32_t>(seed % 60);
    options.commLanes = 1 + static_cast<int32_t>(seed % 3);
    options.collectiveOrder = static_cast<CollectiveOrder>(seed / 7 % 3);
    if (options.collectiveOrder != CollectiveOrder::Free && seed % 2)
      options.collectiveOrder = CollectiveOrder::Free;
    // Around the size below which unpacks are shared, too.
    if (seed % 4 == 0)
      options.maxBytes = 3 * kSmallUnpackBytes;
    if (seed % 5 > 1) {
      // Much to merge.
      options.commLanes = 1;
      options.chanceOfStart = 70;
      options.chanceOfMergeable = 95;
    }
    Problem problem = randomProblem(seed, options);
    ASSERT_NO_FATAL_FAILURE(checkProblem(problem, seed, options.maxBytes, counts)) << "seed " << seed << "\n"
                                                                                   << printAsMlir(problem).text;
  }
  EXPECT_GT(counts.buckets, leastOf(1000));
  EXPECT_GT(counts.packed, leastOf(300));
  EXPECT_GT(counts.moved, leastOf(10000));
}

TEST(Decoder, DecodesLayeredPrograms) {
  Decodes counts;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    LayeredOptions options;
    options.layers = 6;
    options.tensorParallel = seed % 2;
    Problem problem = layeredProblem(seed, options);
    ASSERT_NO_FATAL_FAILURE(checkProblem(problem, seed, Bytes(64) << 20, counts)) << "seed " << seed;
  }
}

TEST(Decoder, RefusesAReferenceAboveTheLimit) {
  Problem problem = layeredProblem(1, LayeredOptions());
  ScheduleFacts facts(problem, false);
  Decoder decoder(facts);
  Reference reference(facts, identityOrder(problem));
  DecodedSchedule decoded;
  EXPECT_FALSE(decoder.run(reference, Policy(), reference.peak - 1, kNoCutoff, decoded));
}

TEST(Decoder, StopsAtTheCutoff) {
  Problem problem = layeredProblem(1, LayeredOptions());
  ScheduleFacts facts(problem, false);
  Decoder decoder(facts);
  Reference reference(facts, identityOrder(problem));
  DecodedSchedule decoded;
  ASSERT_TRUE(decoder.run(reference, Policy(), kUnlimited, kNoCutoff, decoded));
  EXPECT_FALSE(decoder.run(reference, Policy(), kUnlimited, decoded.makespan, decoded));
}

// Two gathers behind casts of 60 ns, which one pack of 30 ns does away with, beside a long compute: the compute lane
// has less to do than all computes together, and a cutoff between the two sums is met.
TEST(Decoder, CutoffsKnowThatPacksDoCasts) {
  Problem problem;
  problem.laneNames = {"compute", "@dp"};
  problem.copyCost = [](Bytes read, Bytes written) { return (read + written) / 10; };
  problem.mergeKeys.push_back(
      {CollectiveKind::AllGather, 1, 2, [](Bytes bytes) { return 2000 + bytes; }, -1, {}, {}, {}});
  auto add = [&](const Node &node, std::vector<int32_t> preds, std::vector<int32_t> touches) {
    problem.nodes.push_back(node);
    problem.members.emplace_back();
    problem.preds.append(preds);
    problem.touches.append(touches);
  };
  for (NodeId first : {0, 3}) {
    int32_t input = 2 * first / 3, output = input + 1;
    problem.buffers.push_back({50, first, false});
    problem.buffers.push_back({100, first + 1, true});
    Node cast, start, wait;
    cast.cost = 60;
    start.kind = NodeKind::Start;
    start.lane = 1;
    start.cost = 2100;
    start.bytes = 100;
    start.collective = CollectiveKind::AllGather;
    start.mergeKey = 0;
    wait.kind = NodeKind::Wait;
    wait.start = first + 1;
    add(cast, {}, {input});
    add(start, {first}, {input, output});
    add(wait, {first + 1}, {input, output});
    problem.members[first + 1] = {first + 2, input, output, 50, 100, first, 100};
  }
  Node work;
  work.cost = 9000;
  add(work, {}, {});
  problem.finalize();
  ASSERT_EQ(problem.validate(), "");
  ScheduleFacts facts(problem, /*bucketing=*/true);
  Decoder decoder(facts);
  Reference reference(facts, identityOrder(problem));
  Policy policy;
  DecodedSchedule decoded, again;
  ASSERT_TRUE(decoder.run(reference, policy, kUnlimited, kNoCutoff, decoded));
  ASSERT_EQ(decoded.buckets.size(), 1u);
  ASSERT_LT(decoded.makespan, 60 + 60 + 9000);
  EXPECT_TRUE(decoder.run(reference, policy, kUnlimited, decoded.makespan + 1, again));
  EXPECT_EQ(again.makespan, decoded.makespan);
  // Behind the pack and the start, the work that is left is known, the unpacks included.
  EXPECT_FALSE(decoder.run(reference, policy, kUnlimited, decoded.makespan, again));
  EXPECT_EQ(again.steps.size(), 2u);
}

// Tests that a lane is served earlier by the time of its packs: a pack that waits until the lane is dry leaves a gap.
TEST(Decoder, PacksGoAheadOfDryLanes) {
  int32_t different = 0;
  Ns ahead = 0, late = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Problem problem = layeredProblem(seed, {12, 4, 3, false, 64});
    ScheduleFacts facts(problem, /*bucketing=*/true);
    Decoder decoder(facts);
    Reference reference(facts, identityOrder(problem));
    Policy policy;
    DecodedSchedule one, other;
    ASSERT_TRUE(decoder.run(reference, policy, kUnlimited, kNoCutoff, one));
    policy.packAhead = 0;
    ASSERT_TRUE(decoder.run(reference, policy, kUnlimited, kNoCutoff, other));
    different += one.makespan != other.makespan;
    ahead += one.makespan;
    late += other.makespan;
  }
  EXPECT_GT(different, 0);
  EXPECT_LT(ahead, late);
}

} // namespace
