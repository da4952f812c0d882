//===- QualityTest.cpp - Tests of the quality of decodes and searches -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A decoder that starts the wrong collective first makes legal schedules, only long ones. These tests bound the
// distance from the lower bounds on training steps, and check single rules of a policy. Searches are counted in steps,
// so the figures are the same on every machine; test/Graphs has the same for traced graphs.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include "Solver/Decode/Decoder.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <limits>

using namespace commsched;
using namespace commsched::test;

namespace {

/// How far an answer is from the bound that knows its limit, in millionths of the bound.
int64_t gapOf(const Problem &problem, const ScheduleOptions &options) {
  Schedule result = schedule(problem, options);
  BoundOptions bounds;
  bounds.limit = result.limit;
  Ns bound = options.bucketing ? jointLowerBound(problem, bounds).withLimit : lowerBound(problem, bounds).withLimit;
  return mulDiv(result.makespan - bound, 1000000, bound);
}

struct GapCase {
  /// Computes of a layer: with 8 the compute lane is what binds, with 3 the communication lane.
  int32_t computes;
  bool tensorParallel, bucketing;
  int64_t ppm, effort;
  /// The largest gap that is accepted, in millionths: a tenth more than what the solver reaches.
  int64_t gap;
};

void PrintTo(const GapCase &given, std::ostream *out) {
  *out << given.computes << " computes" << (given.tensorParallel ? ", tensor parallel" : "")
       << (given.bucketing ? ", buckets" : "") << ", budget " << given.ppm << " ppm, effort " << given.effort;
}

class Gaps : public ::testing::TestWithParam<GapCase> {};

// Tests that first answers and searches stay as close to the bounds as they are.
TEST_P(Gaps, OfTrainingSteps) {
  const GapCase &given = GetParam();
  Problem problem = layeredProblem(7, {60, given.computes, 3, given.tensorParallel, 64});
  ScheduleOptions options;
  options.bucketing = given.bucketing;
  options.memory.ppm = given.ppm;
  options.effort = given.effort;
  int64_t gap = gapOf(problem, options);
  EXPECT_GE(gap, 0);
  EXPECT_LE(gap, given.gap);
}

INSTANTIATE_TEST_SUITE_P(
    Quality, Gaps,
    ::testing::Values(GapCase{8, false, false, 0, 0, 13700}, GapCase{8, true, true, 0, 0, 14400},
                      GapCase{8, true, false, 250000, 0, 3000}, GapCase{8, false, true, 250000, 0, 3200},
                      GapCase{3, false, false, 0, 0, 3400}, GapCase{3, false, true, 0, 0, 36700},
                      GapCase{3, true, false, 250000, 0, 3400}, GapCase{3, true, true, 250000, 0, 25800},
                      GapCase{8, false, false, 0, 400000, 11000}, GapCase{8, true, true, 0, 400000, 9700},
                      GapCase{3, false, true, 0, 400000, 33500}, GapCase{3, true, true, 250000, 400000, 22500}));

/// A decode without a limit on memory.
DecodedSchedule decode(const ScheduleFacts &facts, const Policy &policy) {
  Decoder decoder(facts);
  Reference reference(facts, identityOrder(facts.problem));
  DecodedSchedule decoded;
  EXPECT_TRUE(decoder.run(reference, policy, kUnlimited, std::numeric_limits<Ns>::max(), decoded));
  return decoded;
}

// Tests that a lane takes the gathers whose results are due first before the others. All of them are ready from the
// beginning.
TEST(Decodes, StartWhatIsDueFirst) {
  int64_t inOrder = 0, gathers = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Problem problem = layeredProblem(seed, {20, 6, 3, /*tensorParallel=*/seed % 2 == 1, 64});
    ScheduleFacts facts(problem, /*bucketing=*/false);
    Reference reference(facts, identityOrder(problem));
    auto dueOf = [&](NodeId start) { return reference.computeBefore[reference.need[start]]; };
    Ns last = 0;
    for (DecodeStep step : decode(facts, Policy()).steps) {
      const Node &node = problem.nodes[step.id];
      if (node.kind != NodeKind::Start || node.collective != CollectiveKind::AllGather)
        continue;
      ++gathers;
      inOrder += dueOf(step.id) >= last;
      last = dueOf(step.id);
    }
  }
  EXPECT_EQ(gathers, 4 * 2 * 20 * 3);
  EXPECT_EQ(inOrder, gathers);
}

/// What a bucket costs on its lane and in copies, from the contract in Bucketing.h, for members without casts.
Ns costOf(const Problem &problem, const Bucket &bucket) {
  const MergeKey &key = problem.mergeKeys[problem.nodes[bucket.members.front()].mergeKey];
  Bytes bytes = 0, input = 0, shared = 0;
  Ns unpacks = 0;
  for (NodeId start : bucket.members) {
    bytes += problem.nodes[start].bytes;
    input += problem.members[start].inputBytes;
    Bytes output = problem.members[start].outputBytes;
    if (key.kind == CollectiveKind::AllGather)
      (output <= kSmallUnpackBytes ? shared : unpacks) +=
          output <= kSmallUnpackBytes ? output : problem.copyCost(output, output);
  }
  if (bucket.form == BucketForm::Coalesced)
    return key.coalescedCost(bytes, static_cast<int32_t>(bucket.members.size()));
  return key.cost(bytes) + problem.copyCost(input, input) + unpacks +
         (shared > 0 ? problem.copyCost(shared, shared) : 0);
}

// Tests that the search comes close to the bound where many things stand in each other's way: on programs full of
// collectives, hybrids and futures that came in. If moves never lengthen an order, the mean gap is NNN ppm, otherwise
// MMM.
TEST(Search, IsNotStuckInCrowdedPrograms) {
  constexpr uint64_t kFirst = 1120, kPrograms = 60;
  int64_t gaps = 0;
  for (uint64_t seed = kFirst; seed < kFirst + kPrograms; ++seed) {
    RandomOptions shape;
    shape.nodes = 80;
    shape.commLanes = 1 + static_cast<int32_t>(seed % 3);
    shape.chanceOfStart = 60;
    shape.chanceOfHybrid = 15;
    shape.chanceOfArgumentFuture = 20;
    shape.maxIssue = 30;
    shape.maxCost = 2000;
    shape.maxBytes = 64000;
    ScheduleOptions options;
    options.bucketing = false;
    gaps += gapOf(randomProblem(seed, shape), options);
  }
  EXPECT_LE(gaps / static_cast<int64_t>(kPrograms), 1500);
}

// Tests that a decode merges only if the bucket, its copies included, costs less than its members do apart.
TEST(Decodes, MergeOnlyWhatPays) {
  int64_t buckets = 0, chances = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomOptions shape;
    shape.nodes = 60;
    shape.commLanes = 1;
    shape.chanceOfStart = 70;
    shape.chanceOfMergeable = 95;
    shape.chanceOfCast = 0;
    shape.maxIssue = 0;
    Problem problem = randomProblem(seed, shape);
    ScheduleFacts facts(problem, /*bucketing=*/true);
    DecodedSchedule decoded = decode(facts, Policy());
    for (const Bucket &bucket : decoded.buckets) {
      Ns apart = 0;
      for (NodeId start : bucket.members)
        apart += problem.nodes[start].cost;
      ASSERT_LT(costOf(problem, bucket), apart) << "seed " << seed;
      ++buckets;
    }
    chances += llvm::count(facts.mergeable, true);
  }
  // The test is about something: buckets were made, but not of everything.
  EXPECT_GT(buckets, 200);
  EXPECT_GT(chances, 4 * buckets);
}

} // namespace
