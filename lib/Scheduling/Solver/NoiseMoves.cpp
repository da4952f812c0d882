//===- NoiseMoves.cpp - Moves of single nodes under noise -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chooses moves at random, with a bias to critical nodes, and keeps those that do not worsen the objective.
//
//===------------------------------------------------------------------------------------------===//

#include "NoiseMoves.h"
#include <algorithm>
#include <limits>

using namespace commsched;

namespace {

/// Seed of the choices: "noise" in ASCII. Any constant would do.
constexpr uint64_t kNoiseSeed = 0x6e6f697365ull;
/// Tries between two looks at the critical nodes of a scenario, each time of another one.
constexpr int64_t kTriesBetween = 128;
/// Nodes that are played in the time of one step of a decode.
constexpr int64_t kPlayedPerStep = 16;

} // namespace

NoiseMoves::NoiseMoves(const Problem &carried, const Schedule &schedule, const ScenarioSampler &sampler,
                       Objective objective, Bytes limit)
    : problem(carried), objective(objective), limit(limit), memory(carried, schedule.order), random(kNoiseSeed) {
  std::vector<NodeId> sources = sampler.sourcesOf(schedule);
  for (int32_t index = 0; index < sampler.scenarios(); ++index) {
    lines.emplace_back(carried, schedule.order, sampler.costs(index, carried, sources));
    makespans.push_back(lines.back().makespan());
  }
  value = valueOf(makespans);
}

NoiseMoves::Value NoiseMoves::valueOf(llvm::ArrayRef<Ns> makespans) const {
  Wide sum = 0;
  for (Ns makespan : makespans)
    sum += makespan;
  return {objective == Objective::P95 ? summarize(makespans.vec()).p95 : 0, sum};
}

/// Chooses a node and another place that its dependences allow. Returns whether there is one.
bool NoiseMoves::chooseMove(int32_t &from, int32_t &to) {
  bool isCritical = !critical.empty() && random.below(10) < 8;
  from = isCritical ? memory.position(critical[random.below(static_cast<int64_t>(critical.size()))])
                    : static_cast<int32_t>(random.below(problem.size()));
  to = drawPlace(random, from, memory.earliest(from, from + 1), memory.latest(from, from + 1));
  return to != from;
}

void NoiseMoves::replaceAll(int32_t first, llvm::ArrayRef<NodeId> window) {
  for (size_t index = 0; index < lines.size(); ++index) {
    lines[index].replace(first, window);
    makespans[index] = lines[index].makespan();
  }
}

void NoiseMoves::tryMove(int32_t from, int32_t to, int64_t &steps) {
  int32_t first = std::min(from, to), last = std::max(from, to) + 1;
  auto count = static_cast<int64_t>(lines.size());
  steps -= count * (1 + (last - first) / kPlayedPerStep);
  Order before(order().begin() + first, order().begin() + last), window = before;
  if (to < from)
    std::rotate(window.begin(), window.end() - 1, window.end());
  else
    std::rotate(window.begin(), window.begin() + 1, window.end());
  std::vector<Ns> atLeast;
  for (IncrementalTimeline &line : lines)
    atLeast.push_back(line.makespanIfReplaced(first, window, std::numeric_limits<Ns>::max()));
  if (valueOf(atLeast) > value || memory.peakIfMoved(from, from + 1, to) > limit)
    return;
  // The bounds of scenarios that get shorter are not exact, so only the timelines know.
  replaceAll(first, window);
  steps -= count;
  if (Value changed = valueOf(makespans); changed > value) {
    replaceAll(first, before);
    steps -= count;
    return;
  } else {
    value = changed;
  }
  memory.move(from, from + 1, to);
}

void NoiseMoves::run(int64_t &steps) {
  for (int64_t tries = 0; steps > 0 && problem.size() > 1; ++tries) {
    if (tries % kTriesBetween == 0) {
      const IncrementalTimeline &line = lines[(tries / kTriesBetween) % lines.size()];
      critical.clear();
      for (int32_t at = 0; at < problem.size(); ++at)
        if (line.isCritical(at))
          critical.push_back(line.order()[at]);
      steps -= 1 + problem.size() / kPlayedPerStep;
    }
    int32_t from = 0, to = 0;
    if (chooseMove(from, to))
      tryMove(from, to, steps);
    else
      --steps;
  }
}
