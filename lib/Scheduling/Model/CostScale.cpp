//===- CostScale.cpp - The same block with other times of its collectives ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/CostScale.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>

using namespace commsched;

/// Scales what does not need the costs of buckets.
static void scaleTimes(Problem &problem, CostScale scale) {
  for (Node &node : problem.nodes) {
    if (node.kind == NodeKind::Start)
      node.cost = scaleTime(node.cost, scale);
    node.ready = scaleTime(node.ready, scale);
  }
  for (Ns &busy : problem.busyUntil)
    busy = scaleTime(busy, scale);
}

static std::function<Ns(Bytes, int32_t)> scaled(const std::function<Ns(Bytes, int32_t)> &cost, CostScale scale) {
  if (!cost)
    return nullptr;
  return [cost, scale](Bytes bytes, int32_t members) { return scaleTime(cost(bytes, members), scale); };
}

Problem commsched::scaleCollectives(const Problem &problem, CostScale scale) {
  Problem result = problem;
  if (scale == kScaleOne)
    return result;
  scaleTimes(result, scale);
  for (MergeKey &key : result.mergeKeys) {
    key.cost = [cost = key.cost, scale](Bytes bytes) { return scaleTime(cost(bytes), scale); };
    key.groupCost = scaled(key.groupCost, scale);
    for (KeyVariant &variant : key.variants)
      variant.cost = scaled(variant.cost, scale);
  }
  for (std::vector<StartVariant> &variants : result.startVariants)
    for (StartVariant &variant : variants)
      variant.cost = scaleTime(variant.cost, scale);
  return result;
}

std::vector<Ns> commsched::playAtScales(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown,
                                        llvm::ArrayRef<CostScale> scales) {
  Problem scaledProblem = problem;
  std::vector<Ns> makespans;
  for (CostScale scale : scales) {
    scaledProblem.nodes = problem.nodes;
    scaledProblem.busyUntil = problem.busyUntil;
    scaleTimes(scaledProblem, scale);
    makespans.push_back(makespanOf(scaledProblem, order, slowDown));
  }
  return makespans;
}

/// The largest distance from a bound between two neighbouring scales. A makespan is a maximum of sums of times, so it
/// is convex in the scale and lies below the chord. No answer at a scale k between them can be shorter than the bound
/// at the lower one, because times only grow, nor shorter than k / upper of the bound at the upper one, because all
/// times at k are at least this part of those there. Where these two are equal, the distance of the chord is largest.
static long double regretBetween(const ScaledTimes &low, const ScaledTimes &high) {
  const long double width = high.scale - low.scale;
  const long double crossing = static_cast<long double>(high.scale) * low.bound / high.bound;
  const long double worst = std::clamp<long double>(crossing, low.scale, high.scale);
  const long double chord = low.makespan + (high.makespan - low.makespan) * (worst - low.scale) / width;
  return std::max({chord / low.bound, static_cast<long double>(low.makespan) / low.bound,
                   static_cast<long double>(high.makespan) / high.bound}) -
         1;
}

std::optional<int64_t> commsched::regretPpm(llvm::ArrayRef<ScaledTimes> times) {
  if (times.empty() || llvm::any_of(times, [](const ScaledTimes &at) { return at.bound <= 0; }))
    return std::nullopt;
  long double worst = static_cast<long double>(times.front().makespan) / times.front().bound - 1;
  for (size_t index = 1; index < times.size(); ++index)
    worst = std::max(worst, regretBetween(times[index - 1], times[index]));
  // A quotient of integers is off by less than what is subtracted.
  return static_cast<int64_t>(std::ceil(std::max<long double>(worst, 0) * kMillion - 1e-7L));
}

void commsched::addScales(std::vector<ScaledTimes> &times, size_t most,
                          llvm::function_ref<ScaledTimes(CostScale)> measure) {
  // What is next to nothing, in millionths, and the shortest interval that is halved.
  constexpr int64_t kLittlePpm = 1000;
  constexpr CostScale kShortest = 100;
  for (size_t added = 0; added < most && times.size() > 1; ++added) {
    // Scales without a bound are never the worst.
    auto between = [&](size_t high) { return regretPpm({times[high - 1], times[high]}).value_or(0); };
    size_t worst = 1;
    for (size_t high = 2; high < times.size(); ++high)
      worst = between(worst) < between(high) ? high : worst;
    int64_t atScales = 0;
    for (const ScaledTimes &at : times)
      atScales = std::max(atScales, regretPpm(at).value_or(0));
    const CostScale low = times[worst - 1].scale, high = times[worst].scale;
    if (high - low < kShortest || between(worst) <= atScales + kLittlePpm)
      return;
    times.insert(times.begin() + static_cast<std::ptrdiff_t>(worst), measure((low + high) / 2));
  }
}
