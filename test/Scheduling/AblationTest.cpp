//===- AblationTest.cpp - Each phase of the search earns its place ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The search runs with all phases and without each of them. A phase that neither makes an answer shorter by a share
// that anybody would notice, nor proves anything, does not pay for what there is to understand and to test. Half of the
// problems come from seeds that change with the version, so that nothing is tuned to them.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <iostream>
#include <map>

using namespace commsched;
using namespace commsched::test;

namespace {

/// What a phase has to earn at least on one problem, in millionths of the makespan.
constexpr int64_t kLeastEarnedPpm = 2000;

/// The numbers of problems: first training steps with one small program in four, then small programs alone. Only of a
/// small program are all orders looked at, and of about one in five no other phase proves the answer, so those with
/// fixed seeds have to be many enough for every version.
constexpr int32_t kMixed = 16, kProblems = 32;

/// FNV-1a of the version.
uint64_t seedOfVersion() {
  uint64_t seed = 0xcbf29ce484222325;
  for (char letter : llvm::StringRef(COMMSCHED_VERSION))
    seed = (seed ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  return seed;
}

/// A training step or a small program, with options that a user may give.
std::pair<Problem, ScheduleOptions> drawAblation(int32_t index) {
  const uint64_t seed = index % 2 == 0 ? 1000 + index : seedOfVersion() + index;
  Random random(seed);
  ScheduleOptions options;
  options.objective = Objective::Makespan;
  options.memory.ppm = random.percent(50) ? 0 : 250000;
  options.bucketing = random.percent(75);
  if (index % 4 == 3 || index >= kMixed) {
    RandomOptions shape;
    shape.nodes = static_cast<int32_t>(random.between(14, 22));
    shape.maxCost = 1000;
    return {randomProblem(seed, shape), options};
  }
  LayeredOptions shape;
  shape.layers = static_cast<int32_t>(random.between(3, 8));
  shape.computes = static_cast<int32_t>(random.between(2, 9));
  shape.parameters = static_cast<int32_t>(random.between(1, 6));
  shape.tensorParallel = random.percent(50);
  shape.ranks = 1 << random.between(3, 9);
  return {layeredProblem(seed, shape), options};
}

/// What a phase was worth.
struct Earned {
  /// How much longer answers are without it, in the mean and at most, in millionths.
  int64_t sum = 0, most = 0;
  /// The number of problems of which all orders were looked at, and are not without it.
  int32_t proofs = 0;
};

TEST(Ablation, EachPhaseEarnsItsPlace) {
  if (testShare() > 1)
    GTEST_SKIP() << "a portion of the problems says nothing about what a phase earns";
  int32_t compared = 0;
  std::map<llvm::StringRef, Earned> earned;
  for (int32_t index = 0; index < kProblems; ++index)
    for (int64_t effort : {0, 60000}) {
      auto [problem, options] = drawAblation(index);
      options.effort = effort;
      const Schedule with = schedule(problem, options);
      ++compared;
      for (llvm::StringRef name : phaseNames()) {
        options.without = {name.str()};
        const Schedule without = schedule(problem, options);
        const int64_t ppm = mulDiv(without.makespan - with.makespan, kMillion, with.makespan);
        earned[name].sum += ppm;
        earned[name].most = std::max(earned[name].most, ppm);
        earned[name].proofs += with.leastOrder.has_value() && !without.leastOrder.has_value();
        earned[name].proofs += with.leastSchedule.has_value() && !without.leastSchedule.has_value();
      }
    }
  for (const auto &[name, what] : earned) {
    std::cout << name.str() << ": earns " << what.sum / compared << " ppm in the mean, " << what.most
              << " at most, and proves " << what.proofs << " of " << compared << " answers\n";
    EXPECT_TRUE(what.most >= kLeastEarnedPpm || what.proofs > 0) << name.str();
  }
}

} // namespace
