//===- RematerializationTest.cpp - Choice of kept and recomputed values -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Rematerialization.h"
#include "CheckResult.h"
#include "CommSched/Scheduling/Lenses/MemoryPlan.h"
#include "Lenses/MemoryPlan/PlanBound.h"
#include "RepeatedProgram.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;
using namespace commsched::test;

namespace {

llvm::BitVector setOf(int32_t size, uint32_t bits) {
  llvm::BitVector set(size);
  for (int32_t index = 0; index < size; ++index)
    set[index] = (bits >> index) & 1;
  return set;
}

/// Indexed by node: all nodes before it, along any path.
std::vector<llvm::BitVector> ancestorsOf(const Problem &problem) {
  std::vector<llvm::BitVector> ancestors(problem.size(), llvm::BitVector(problem.size()));
  for (NodeId node = 0; node < problem.size(); ++node)
    for (NodeId pred : problem.preds[node]) {
      ancestors[node] |= ancestors[pred];
      ancestors[node].set(pred);
    }
  return ancestors;
}

/// Whether two problems are the same, but for edges that others imply.
void expectEqual(const Problem &a, const Problem &b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (NodeId node = 0; node < a.size(); ++node) {
    EXPECT_EQ(a.nodes[node].kind, b.nodes[node].kind);
    EXPECT_EQ(a.nodes[node].cost, b.nodes[node].cost);
    EXPECT_EQ(a.nodes[node].start, b.nodes[node].start);
    EXPECT_EQ(a.touches[node], b.touches[node]);
  }
  for (auto [left, right] : llvm::zip_equal(a.buffers, b.buffers)) {
    EXPECT_EQ(left.bytes, right.bytes);
    EXPECT_EQ(left.def, right.def);
    EXPECT_EQ(left.liveOut, right.liveOut);
  }
  EXPECT_EQ(ancestorsOf(a), ancestorsOf(b));
}

// Every set of kept values of small random programs gives the problem of the program that is changed by hand.
TEST(Rematerialization, EqualsTheChangedProgram) {
  int32_t unread = 0, chains = 0;
  for (uint64_t seed = 1; seed <= portion<uint64_t>(2000); ++seed) {
    RepeatedProgram program = randomProgram(seed, 16, 5);
    std::vector<std::vector<NodeId>> nodesOf;
    Problem whole = toProblem(program, nodesOf);
    std::vector<Repetition> repetitions = repetitionsOf(program, nodesOf);
    ASSERT_EQ(whole.validate(), "");
    ASSERT_EQ(validate(whole, repetitions), "") << "seed " << seed;
    for (const Step &step : program.steps)
      chains += step.repeats != kNone && program.steps[step.repeats].repeats != kNone;
    for (uint32_t bits = 0; bits < 1u << program.units; ++bits) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", kept " + std::to_string(bits));
      llvm::BitVector kept = setOf(program.units, bits);
      ReducedProblem reduced = keepValues(whole, repetitions, kept);
      RepeatedProgram changed = keepInProgram(program, kept);
      Problem expected = toProblem(changed, nodesOf);
      ASSERT_EQ(reduced.problem.validate(), "");
      expectEqual(reduced.problem, expected);
      if (::testing::Test::HasFailure())
        return;
      Order order = identityOrder(expected);
      ASSERT_EQ(makespanOf(reduced.problem, order), makespanOf(expected, order));
      ASSERT_EQ(peakOf(reduced.problem, order), peakOf(expected, order));
      for (auto [index, repetition] : llvm::enumerate(repetitions))
        unread += !kept.test(index) && reduced.image[repetition.again.front()] == kNone;
      for (auto [node, origin] : llvm::enumerate(reduced.origin))
        ASSERT_EQ(reduced.image[origin], static_cast<NodeId>(node));
    }
  }
  EXPECT_GT(unread, leastOf(1000));
  EXPECT_GT(chains, leastOf(500));
}

// What is made again is made right in front of what comes after it, and nothing else changes.
TEST(Rematerialization, MakesLate) {
  int32_t moved = 0;
  for (uint64_t seed = 1; seed <= portion<uint64_t>(500); ++seed) {
    RepeatedProgram program = randomProgram(seed, 20, 6);
    std::vector<std::vector<NodeId>> nodesOf;
    Problem whole = toProblem(program, nodesOf);
    std::vector<Repetition> repetitions = repetitionsOf(program, nodesOf);
    llvm::BitVector kept = setOf(program.units, static_cast<uint32_t>(seed * 7));
    ReducedProblem given = keepValues(whole, repetitions, kept), late = lateProblem(whole, repetitions, kept);
    ASSERT_EQ(late.problem.validate(), "") << "seed " << seed;
    llvm::BitVector isAgain(whole.size());
    for (const Repetition &repetition : repetitions)
      for (NodeId node : repetition.again)
        isAgain.set(node);
    NodeId last = kNone;
    for (NodeId node = 0; node < late.problem.size(); ++node) {
      NodeId origin = late.origin[node], before = given.image[origin];
      ASSERT_EQ(late.image[origin], node);
      ASSERT_EQ(late.problem.nodes[node].cost, given.problem.nodes[before].cost);
      ASSERT_EQ(late.problem.touches[node], given.problem.touches[before]);
      std::vector<NodeId> preds, expected;
      for (NodeId pred : late.problem.preds[node])
        preds.push_back(late.origin[pred]);
      for (NodeId pred : given.problem.preds[before])
        expected.push_back(given.origin[pred]);
      llvm::sort(preds);
      llvm::sort(expected);
      ASSERT_EQ(preds, expected);
      moved += node != before;
      if (!isAgain.test(origin)) {
        ASSERT_GT(origin, last);
        last = origin;
        continue;
      }
      // Between it and the first node that comes after it, there is only what is made again.
      auto users = late.problem.succs[node];
      for (NodeId next = node + 1; !users.empty() && next < users.front(); ++next)
        ASSERT_TRUE(isAgain.test(late.origin[next])) << "seed " << seed << ", node " << node;
    }
  }
  EXPECT_GT(moved, leastOf(500));
}

// A cast that is kept for a second gather is no longer part of the pack of the first one. If the gather is kept, too,
// it is.
TEST(Rematerialization, SharesNoCastOfAPack) {
  RepeatedProgram program;
  auto add = [&](Step::Kind kind, std::vector<int32_t> reads, int32_t repeats, int32_t unit) {
    Step step;
    step.kind = kind;
    step.reads = std::move(reads);
    step.bytes = 64;
    step.repeats = repeats;
    step.unit = unit;
    program.steps.push_back(step);
  };
  add(Step::Compute, {}, kNone, kNone);
  add(Step::Gather, {0}, kNone, kNone);
  add(Step::Compute, {1}, kNone, kNone);
  add(Step::Compute, {}, 0, 0);
  add(Step::Gather, {3}, 1, 1);
  add(Step::Compute, {2, 4}, kNone, kNone);
  program.units = 2;
  std::vector<std::vector<NodeId>> nodesOf;
  Problem whole = toProblem(program, nodesOf);
  whole.members.resize(whole.size());
  whole.mergeKeys.emplace_back();
  whole.mergeKeys[0].lane = 1;
  for (int32_t step : {1, 4}) {
    MergeMember &member = whole.members[nodesOf[step][0]];
    member.wait = nodesOf[step][1];
    member.cast = nodesOf[step - 1][0];
    member.castInputBytes = 128;
    whole.nodes[nodesOf[step][0]].mergeKey = 0;
  }
  std::vector<Repetition> repetitions = repetitionsOf(program, nodesOf);
  auto castOf = [&](uint32_t bits, int32_t step) {
    ReducedProblem reduced = keepValues(whole, repetitions, setOf(2, bits));
    NodeId start = reduced.image[nodesOf[step][0]];
    return start == kNone ? -2 : reduced.problem.members[start].cast;
  };
  EXPECT_EQ(castOf(0, 1), 0);
  EXPECT_NE(castOf(0, 4), kNone);
  EXPECT_EQ(castOf(1, 1), kNone);
  EXPECT_EQ(castOf(1, 4), kNone);
  EXPECT_EQ(castOf(3, 1), 0);
  EXPECT_EQ(castOf(2, 1), 0);
  EXPECT_EQ(castOf(2, 4), -2);
}

// What is no repetition is refused.
TEST(Rematerialization, SaysWhatIsWrong) {
  RepeatedProgram program;
  program.steps.resize(3);
  program.steps[0].bytes = program.steps[1].bytes = 64;
  program.steps[2].kind = Step::Gather;
  std::vector<std::vector<NodeId>> nodesOf;
  Problem problem = toProblem(program, nodesOf);
  auto check = [&](std::vector<NodeId> first, std::vector<NodeId> again) {
    return validate(problem, Repetition{std::move(first), std::move(again)});
  };
  EXPECT_EQ(check({0}, {1}), "");
  EXPECT_NE(check({}, {}), "");
  EXPECT_NE(check({0}, {1, 2}), "");
  EXPECT_NE(check({1}, {0}), "");
  EXPECT_NE(check({1}, {2}), "");
  EXPECT_NE(check({0}, {9}), "");
  problem.buffers[1].bytes = 32;
  EXPECT_NE(check({0}, {1}), "");
  problem.buffers[1].bytes = 64;
  problem.nodes[1].lane = 1;
  EXPECT_NE(check({0}, {1}), "");
  problem.nodes[1].lane = kComputeLane;
  EXPECT_NE(validate(problem, {Repetition{{0}, {1}}, Repetition{{0}, {1}}}), "");
}

// The search never answers worse than the program as given, and mostly as well as the best of all plans.
TEST(MemoryPlan, ComesCloseToTheBestOfAllPlans) {
  int32_t programs = 0, better = 0, best = 0;
  for (uint64_t seed = 1; seed <= portion<uint64_t>(120); ++seed) {
    RepeatedProgram program = randomProgram(seed, 14, 5);
    std::vector<std::vector<NodeId>> nodesOf;
    Problem whole = toProblem(program, nodesOf);
    std::vector<Repetition> repetitions = repetitionsOf(program, nodesOf);
    Random random(seed);
    llvm::BitVector given = setOf(program.units, static_cast<uint32_t>(random.below(1 << program.units)));
    ReducedProblem asGiven = keepValues(whole, repetitions, given);
    ScheduleOptions options;
    options.bucketing = false;
    Bytes peak = peakOf(asGiven.problem, identityOrder(asGiven.problem));
    options.memory.limit = peak * random.between(7, 12) / 10;
    Schedule known = schedule(asGiven.problem, options);
    MemoryPlan plan = planMemory(whole, repetitions, given, known, options);
    SCOPED_TRACE("seed " + std::to_string(seed));
    if (plan.kept != given) {
      ASSERT_EQ(plan.reduced.image, lateProblem(whole, repetitions, plan.kept).image);
      ASSERT_TRUE(isWorthIt(plan.schedule, known));
      checkResult(plan.reduced.problem, options, plan.schedule);
    }
    std::optional<Ns> least;
    for (uint32_t bits = 0; bits < 1u << program.units; ++bits) {
      Schedule answer = schedule(keepValues(whole, repetitions, setOf(program.units, bits)).problem, options);
      if (answer.isWithinLimit() && (!least || answer.makespan < *least))
        least = answer.makespan;
    }
    if (!least)
      continue;
    ++programs;
    ASSERT_TRUE(!plan.schedule.isWithinLimit() || plan.schedule.makespan >= *least);
    better += *least < known.makespan || !known.isWithinLimit();
    best += plan.schedule.isWithinLimit() && plan.schedule.makespan == *least;
  }
  EXPECT_GT(better, leastOf(20));
  EXPECT_GE(best * 100, programs * 90) << best << " of " << programs;
}

/// Gathers of one key: every one costs the same for equal bytes, and any of them may be merged.
void makeMergeable(RepeatedProgram &program) {
  for (Step &step : program.steps)
    if (step.kind == Step::Gather)
      step.cost = 5 + step.bytes / 64;
}

void addMergeKey(Problem &problem, const RepeatedProgram &program, const std::vector<std::vector<NodeId>> &nodesOf) {
  problem.members.resize(problem.size());
  MergeKey &key = problem.mergeKeys.emplace_back();
  key.lane = 1;
  key.cost = [](Bytes bytes) { return Ns(5 + bytes / 64); };
  problem.copyCost = [](Bytes read, Bytes written) { return Ns((read + written) / 640); };
  for (auto [index, step] : llvm::enumerate(program.steps)) {
    if (step.kind != Step::Gather || step.bytes == 0)
      continue;
    const NodeId start = nodesOf[index][0], wait = nodesOf[index][1];
    problem.nodes[start].mergeKey = 0;
    MergeMember &member = problem.members[start];
    member.wait = wait;
    for (BufferId buffer : problem.touches[start])
      (problem.buffers[buffer].def == start ? member.output : member.input) = buffer;
    member.inputBytes = member.input == kNone ? 0 : problem.buffers[member.input].bytes;
    member.outputBytes = step.bytes;
  }
}

/// What random weights and prices at random nodes prove at most.
Ns largestOfRandomProofs(const Problem &whole, llvm::ArrayRef<Repetition> repetitions, const ScheduleOptions &options,
                         Random &random) {
  MergedCopies merged = mergeCopies(whole, repetitions);
  PlanRelaxation relaxation(whole, repetitions, merged, *options.memory.limit, options.bucketing);
  for (NodeId node = 0; node < merged.all.problem.size(); ++node)
    if (merged.all.problem.nodes[node].kind == NodeKind::Compute && !merged.hasCopies.test(node))
      relaxation.addCut(node);
  Ns largest = 0;
  for (int32_t draw = 0; draw < 50 && relaxation.numCuts() > 0; ++draw) {
    PlanProof proof;
    const int64_t share = random.between(0, kWholeWeight);
    proof.weights = {share, kWholeWeight - share};
    for (int64_t number = random.between(0, 3); number > 0; --number) {
      const auto cut = static_cast<int32_t>(random.below(relaxation.numCuts()));
      if (llvm::none_of(proof.cuts, [&](const PricedCut &priced) { return priced.cut == cut; }))
        proof.cuts.push_back({cut, random.between(0, kWholeWeight / 32)});
    }
    largest = std::max(largest, relaxation.evaluate(proof));
  }
  return largest;
}

/// The least makespan of all plans within a limit; none if no plan is.
std::optional<Ns> leastOfAllPlans(const Problem &whole, llvm::ArrayRef<Repetition> repetitions,
                                  const ScheduleOptions &options) {
  std::optional<Ns> least;
  const auto units = static_cast<int32_t>(repetitions.size());
  for (uint32_t bits = 0; bits < 1u << units; ++bits)
    if (Schedule answer = schedule(keepValues(whole, repetitions, setOf(units, bits)).problem, options);
        answer.isWithinLimit())
      least = least ? std::min(*least, answer.makespan) : answer.makespan;
  return least;
}

// No plan of a small program is shorter than the bound, whatever its order and its buckets. Often it is attained, and
// often the limit on memory raises it.
TEST(PlanBound, HoldsForAllPlans) {
  int32_t programs = 0, raised = 0, tight = 0;
  for (uint64_t seed = 1; seed <= portion<uint64_t>(120); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bool bucketing = seed % 6 == 0;
    RepeatedProgram program = seed % 4 == 3 ? randomProgram(seed, 12, 3) : randomStep(seed, bucketing ? 2 : 3);
    if (bucketing)
      makeMergeable(program);
    std::vector<std::vector<NodeId>> nodesOf;
    Problem whole = toProblem(program, nodesOf);
    if (bucketing)
      addMergeKey(whole, program, nodesOf);
    ASSERT_EQ(whole.validate(), "");
    std::vector<Repetition> repetitions = repetitionsOf(program, nodesOf);
    Random random(seed);
    Problem asGiven = keepValues(whole, repetitions, setOf(program.units, 0)).problem;
    const Bytes limit = peakOf(asGiven, identityOrder(asGiven)) * random.between(8, 12) / 10;
    ScheduleOptions options;
    options.bucketing = bucketing;
    options.memory.limit = limit;
    Ns bound = planLowerBound(whole, repetitions, limit, bucketing);
    Ns roomy = planLowerBound(whole, repetitions, kLargestAmount, bucketing);
    ASSERT_LE(roomy, bound);
    std::optional<Ns> least = leastOfAllPlans(whole, repetitions, options);
    if (!least)
      continue;
    ++programs;
    ASSERT_LE(bound, *least);
    ASSERT_LE(largestOfRandomProofs(whole, repetitions, options, random), *least);
    raised += bound > roomy;
    tight += bound == *least;
  }
  EXPECT_GT(programs, leastOf(70));
  EXPECT_GT(raised, leastOf(8));
  EXPECT_GT(tight, leastOf(20));
}

} // namespace
