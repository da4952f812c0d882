//===- CostScale.cpp - The same block with other times of its collectives ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "llvm/ADT/APInt.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// By what times are multiplied and divided.
struct TimeFactors {
  int64_t ofCollectives, ofOthers, divisor;

  Ns collective(Ns time) const { return mulDiv(time, ofCollectives, divisor); }
  Ns other(Ns time) const { return ofOthers == divisor ? time : mulDiv(time, ofOthers, divisor); }
  bool changesOthers() const { return ofOthers != divisor; }
};

} // namespace

static TimeFactors roundedFactors(CostScale scale) { return {scale, kPermille, kPermille}; }

/// Scales what does not need the costs of buckets.
static void scaleTimes(Problem &problem, TimeFactors factors) {
  for (Node &node : problem.nodes) {
    node.cost = node.kind == NodeKind::Start ? factors.collective(node.cost) : factors.other(node.cost);
    node.issue = factors.other(node.issue);
    node.ready = factors.collective(node.ready);
  }
  for (Ns &busy : problem.busyUntil)
    busy = factors.collective(busy);
}

static std::function<Ns(Bytes, int32_t)> scaled(const std::function<Ns(Bytes, int32_t)> &cost, TimeFactors factors) {
  if (!cost)
    return nullptr;
  return [cost, factors](Bytes bytes, int32_t members) { return factors.collective(cost(bytes, members)); };
}

/// Scales what buckets and variants cost.
static void scaleFunctions(Problem &problem, TimeFactors factors) {
  for (MergeKey &key : problem.mergeKeys) {
    if (key.cost)
      key.cost = [cost = key.cost, factors](Bytes bytes) { return factors.collective(cost(bytes)); };
    key.groupCost = scaled(key.groupCost, factors);
    for (KeyVariant &variant : key.variants)
      variant.cost = scaled(variant.cost, factors);
  }
  for (std::vector<StartVariant> &variants : problem.startVariants)
    for (StartVariant &variant : variants)
      variant.cost = factors.collective(variant.cost);
  if (problem.copyCost && factors.changesOthers())
    problem.copyCost = [cost = problem.copyCost, factors](Bytes read, Bytes written) {
      return factors.other(cost(read, written));
    };
}

Problem commsched::scaleCollectives(const Problem &problem, CostScale scale) {
  Problem result = problem;
  if (scale == kScaleOne)
    return result;
  scaleTimes(result, roundedFactors(scale));
  scaleFunctions(result, roundedFactors(scale));
  return result;
}

Problem commsched::scaleExactly(const Problem &problem, CostScale scale) {
  Problem result = problem;
  const TimeFactors factors = {scale, kPermille, 1};
  scaleTimes(result, factors);
  scaleFunctions(result, factors);
  return result;
}

std::vector<Ns> commsched::playAtScales(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                        llvm::ArrayRef<CostScale> scales) {
  Problem scaledProblem = problem;
  std::vector<Ns> makespans;
  for (CostScale scale : scales) {
    scaledProblem.nodes = problem.nodes;
    scaledProblem.busyUntil = problem.busyUntil;
    scaleTimes(scaledProblem, roundedFactors(scale));
    makespans.push_back(makespanOf(scaledProblem, order));
  }
  return makespans;
}

namespace {

/// Integers that hold the product of four times and two scales.
using Huge = llvm::APInt;

Huge huge(int64_t value) { return Huge(/*numBits=*/384, static_cast<uint64_t>(value), /*isSigned=*/true); }

/// A makespan over a bound.
struct Quotient {
  Huge makespan, bound;
  bool operator<(const Quotient &other) const { return (makespan * other.bound).slt(other.makespan * bound); }
};

} // namespace

/// The largest ratio of the makespan to a bound between two neighbouring scales. A makespan is a maximum of sums of
/// times, so it is convex in the scale and lies below the chord. No answer at a scale k between them can be shorter
/// than the bound at the lower one, because times only grow, nor shorter than k / upper of the bound at the upper one,
/// because all times at k are at least this part of those there. On each side of where these two are equal the ratio of
/// the chord is monotone, so it is largest there or at one of the two scales (Bounds.md, Lemma 24).
static Quotient largestBetween(const ScaledTimes &low, const ScaledTimes &high) {
  const Huge k1 = huge(low.scale), k2 = huge(high.scale), b1 = huge(low.bound), b2 = huge(high.bound);
  const Huge t1 = huge(low.makespan), t2 = huge(high.makespan), proportional = b2 * k1, lower = b1 * k2;
  // All bounds are multiplied by k2, those at the upper scale by 1.
  const Quotient atLow = {t1 * k2, lower.sgt(proportional) ? lower : proportional};
  const Quotient atHigh = {t2, b2.sgt(b1) ? b2 : b1};
  Quotient worst = std::max(atLow, atHigh);
  // The two bounds meet at k2 * b1 / b2.
  if (lower.sgt(proportional) && b2.sgt(b1))
    worst = std::max(worst, {t1 * (k2 - k1) * b2 + (t2 - t1) * (lower - proportional), (k2 - k1) * b1 * b2});
  return worst;
}

std::optional<int64_t> commsched::regretPpm(llvm::ArrayRef<ScaledTimes> times) {
  if (times.empty() || llvm::any_of(times, [](const ScaledTimes &at) { return at.bound <= 0; }))
    return std::nullopt;
  Quotient worst = largestBetween(times[0], times[times.size() > 1 ? 1 : 0]);
  for (size_t index = 2; index < times.size(); ++index)
    worst = std::max(worst, largestBetween(times[index - 1], times[index]));
  const Huge excess = (worst.makespan - worst.bound) * huge(kMillion);
  if (excess.isNegative())
    return 0;
  const Huge rounded = (excess + worst.bound - huge(1)).sdiv(worst.bound);
  return rounded.sgt(huge(kLargestAmount)) ? kLargestAmount : rounded.getSExtValue();
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
