//===- Scenarios.cpp - Durations that vary ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Draws factors in fixed-point arithmetic, and plays orders with them.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Scenarios.h"
#include "CommSched/Support/SplitMix64.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <array>
#include <limits>

using namespace commsched;

namespace {

/// log2(e) in units of 1 / kFactorOne.
constexpr int64_t kLog2OfE = 1549082005;
/// 2^(2^-k) in units of 1 / kFactorOne, for k = 1, 2, ...; further roots change a factor by less than a millionth.
constexpr std::array<int64_t, 20> kRootsOfTwo = {1518500250, 1276901417, 1170923762, 1121280436, 1097253708,
                                                 1085434106, 1079572136, 1076653033, 1075196443, 1074468888,
                                                 1074105294, 1073923544, 1073832680, 1073787251, 1073764537,
                                                 1073753181, 1073747502, 1073744663, 1073743244, 1073742534};
/// A standard normal variable is approximated by the sum of 12 uniform ones less its mean (Irwin and Hall), each of 16
/// bits. Its unit is 2^-16.
constexpr int32_t kUniformBits = 16, kUniforms = 12;
constexpr int64_t kUniformOne = int64_t(1) << kUniformBits;
/// The quantile of SampledMakespan::p95, in percent.
constexpr int64_t kQuantilePercent = 95;

/// 2^x for |x| < 16, with x and the result in units of 1 / kFactorOne.
int64_t exp2Fixed(int64_t x) {
  int64_t whole = x >= 0 ? x / kFactorOne : -((-x + kFactorOne - 1) / kFactorOne);
  int64_t fraction = x - whole * kFactorOne;
  int64_t result = kFactorOne;
  for (auto [k, root] : llvm::enumerate(kRootsOfTwo))
    if (fraction & (kFactorOne >> (k + 1)))
      result = mulDiv(result, root, kFactorOne);
  return whole >= 0 ? result << whole : result >> -whole;
}

/// The sum of `count` uniform numbers in [0, kUniformOne) of the random numbers of a node in a scenario.
int64_t sumOfUniforms(uint64_t key, int32_t scenario, int32_t count) {
  constexpr int32_t kPerDraw = 64 / kUniformBits;
  SplitMix64 random(SplitMix64::mix(key, static_cast<uint64_t>(scenario)));
  int64_t sum = 0;
  for (int32_t drawn = 0; drawn < count; drawn += kPerDraw) {
    uint64_t bits = random.next();
    for (int32_t part = 0; part < std::min(kPerDraw, count - drawn); ++part, bits >>= kUniformBits)
      sum += static_cast<int64_t>(bits & (kUniformOne - 1));
  }
  return sum;
}

/// A number of the triangular distribution over (-1, 1), in units of 1 / kUniformOne.
int64_t drawTriangular(uint64_t key, int32_t scenario) { return sumOfUniforms(key, scenario, 2) - (kUniformOne - 1); }

/// A nearly normal number, in units of 1 / kUniformOne; its mean is 0 and its variance is 1.
int64_t drawNormal(uint64_t key, int32_t scenario) {
  return sumOfUniforms(key, scenario, kUniforms) - kUniforms / 2 * (kUniformOne - 1);
}

} // namespace

std::string commsched::validate(const NoiseOptions &options) {
  auto check = [](llvm::StringRef name, int64_t value, int64_t largest) {
    return value >= 0 && value <= largest
               ? std::string()
               : "expected " + name.str() + " from 0 to " + std::to_string(largest) + ", got " + std::to_string(value);
  };
  for (const std::string &wrong :
       {check("scenarios", options.scenarios, kMaxScenarios),
        check("collective-spread-permille", options.collectiveSpreadPermille, kMaxSpreadPermille),
        check("compute-spread-permille", options.computeSpreadPermille, kMaxSpreadPermille)})
    if (!wrong.empty())
      return wrong;
  return "";
}

NoiseFactor commsched::factorOf(const NodeNoise &noise, int32_t scenario) {
  if (noise.low != kFactorOne || noise.high != kFactorOne) {
    int64_t draw = drawTriangular(noise.key, scenario);
    return draw < 0 ? kFactorOne + mulDiv(kFactorOne - noise.low, draw, kUniformOne)
                    : kFactorOne + mulDiv(noise.high - kFactorOne, draw, kUniformOne);
  }
  int64_t spread = noise.spreadPermille;
  if (spread == 0)
    return kFactorOne;
  // The exponent, s z - s^2 / 2, in units of 1 / (kUniformOne x 1000 x 1000).
  int64_t exponent = spread * kPermille * drawNormal(noise.key, scenario) - spread * spread * kUniformOne / 2;
  return exp2Fixed(mulDiv(exponent, kLog2OfE, kUniformOne * kPermille * kPermille));
}

Ns commsched::scaleCost(Ns cost, NoiseFactor factor, Ns largest) {
  Wide scaled = static_cast<Wide>(cost) * factor >> kFactorBits;
  return static_cast<Ns>(std::min<Wide>(scaled, std::max(cost, largest)));
}

SampledMakespan commsched::summarize(std::vector<Ns> makespans) {
  Wide sum = 0;
  for (Ns makespan : makespans)
    sum += makespan;
  auto count = static_cast<int64_t>(makespans.size());
  auto quantile = makespans.begin() + ((count * kQuantilePercent + 99) / 100 - 1);
  std::nth_element(makespans.begin(), quantile, makespans.end());
  return {static_cast<Ns>(sum / count), *quantile};
}

//===-----------------------------------------------------------------------------------------===//
// ScenarioSampler
//===-----------------------------------------------------------------------------------------===//

ScenarioSampler::ScenarioSampler(const Problem &problem, const Noise &noise)
    : problem(problem), noise(noise), largest(kMaxTotalNs / 8 / std::max<NodeId>(problem.size(), 1)) {
  if (static_cast<int64_t>(noise.scenarios) * problem.size() > kMaxCached)
    return;
  factors.reserve(static_cast<size_t>(noise.scenarios) * problem.size());
  for (int32_t index = 0; index < noise.scenarios; ++index)
    for (const NodeNoise &node : noise.nodes)
      factors.push_back(factorOf(node, index));
}

Problem ScenarioSampler::scenario(int32_t index) const {
  Problem result = problem;
  std::vector<NoiseFactor> least(problem.mergeKeys.size(), std::numeric_limits<NoiseFactor>::max());
  for (NodeId node = 0; node < problem.size(); ++node) {
    NoiseFactor drawn = factor(index, node);
    result.nodes[node].cost = scaleCost(problem.nodes[node].cost, drawn, largest);
    if (int32_t key = problem.nodes[node].mergeKey; key != kNone)
      least[key] = std::min(least[key], drawn);
  }
  for (auto [key, least] : llvm::zip_equal(result.mergeKeys, least)) {
    key.cost = [cost = std::move(key.cost), least = least, largest = largest](Bytes bytes) {
      return scaleCost(cost(bytes), least, largest);
    };
    if (key.groupCost)
      key.groupCost = [cost = std::move(key.groupCost), least = least, largest = largest](
                          Bytes bytes, int32_t members) { return scaleCost(cost(bytes, members), least, largest); };
  }
  return result;
}

std::vector<NodeId> ScenarioSampler::sourcesOf(const Schedule &schedule) const {
  const Problem &carried = schedule.carriedOut(problem);
  std::vector<NodeId> sources(carried.size());
  for (NodeId node = 0; node < carried.size(); ++node)
    sources[node] = schedule.isExpanded() ? schedule.expanded.origin[node] : node;
  if (schedule.isExpanded())
    for (auto [bucket, nodes] : llvm::zip_equal(schedule.buckets, schedule.expanded.buckets))
      sources[nodes.start] = bucket.members.front();
  return sources;
}

std::vector<Ns> ScenarioSampler::costs(int32_t index, const Problem &carried, llvm::ArrayRef<NodeId> sources) const {
  std::vector<Ns> costs(carried.size());
  for (auto [cost, node, source] : llvm::zip_equal(costs, carried.nodes, sources))
    cost = source == kNone ? node.cost : scaleCost(node.cost, factor(index, source), largest);
  return costs;
}

std::vector<Ns> ScenarioSampler::play(const Schedule &schedule, Wide cutoff) const {
  const Problem &carried = schedule.carriedOut(problem);
  std::vector<NodeId> sources = sourcesOf(schedule);
  Problem scenario = carried;
  std::vector<Ns> makespans;
  Wide sum = 0;
  for (int32_t index = 0; index < noise.scenarios && sum <= cutoff; ++index) {
    for (auto [node, cost] : llvm::zip_equal(scenario.nodes, costs(index, carried, sources)))
      node.cost = cost;
    makespans.push_back(makespanOf(scenario, schedule.order));
    sum += makespans.back();
  }
  return makespans;
}
