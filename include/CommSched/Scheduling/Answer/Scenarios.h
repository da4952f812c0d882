//===- Scenarios.h - Durations that vary ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Real durations vary from run to run. A scenario is one set of durations of all nodes; the makespans of an order in
// many scenarios say how it fares under such noise. The duration of a node in a scenario is its cost times a factor,
// which follows from the number of the scenario and from a key of the node by integer arithmetic alone. It depends on
// nothing else: not on the order of the nodes, on other nodes, or on the machine that computes it. So two orders of one
// block, on any rank, meet the same durations (common random numbers). Models.md defines the distributions.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_SCENARIOS_H
#define COMMSCHED_SCHEDULING_ANSWER_SCENARIOS_H

#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// A factor of a duration, in units of 1 / kFactorOne.
using NoiseFactor = int64_t;
inline constexpr int32_t kFactorBits = 30;
inline constexpr NoiseFactor kFactorOne = NoiseFactor(1) << kFactorBits;

/// How the duration of one node varies.
struct NodeNoise {
  /// What the node's random numbers follow from. Nodes of equal keys and equal distributions have equal factors.
  uint64_t key = 0;
  /// Without an error bar: the standard deviation of the factor's logarithm, in permille; 0 if it is constant.
  int32_t spreadPermille = 0;
  /// The ends of an error bar, 0 <= low <= kFactorOne <= high; both are kFactorOne if there is none.
  NoiseFactor low = kFactorOne, high = kFactorOne;
};

/// Scenarios, and how durations without an error bar vary in them.
struct NoiseOptions {
  /// Number of scenarios; 0: none.
  int32_t scenarios = 0;
  /// NodeNoise::spreadPermille of collectives, and of all other operations, without an error bar.
  int32_t collectiveSpreadPermille = 300, computeSpreadPermille = 0;

  bool operator==(const NoiseOptions &other) const {
    return scenarios == other.scenarios && collectiveSpreadPermille == other.collectiveSpreadPermille &&
           computeSpreadPermille == other.computeSpreadPermille;
  }
};

/// Limits on NoiseOptions: beyond them, sums of durations could overflow, or a report would take hours.
inline constexpr int32_t kMaxScenarios = 4096, kMaxSpreadPermille = 1000;

/// What is wrong with the options, or an empty string.
std::string validate(const NoiseOptions &options);

/// The number of scenarios, and how each node varies in them. Indexed by node.
struct Noise {
  int32_t scenarios = 0;
  std::vector<NodeNoise> nodes;
};

/// The factor of a node's duration in a scenario. With a spread s it is exp(s z - s^2 / 2) for a nearly normal z, so
/// its mean is 1. With an error bar it is within the bar, and its median is 1. At most 2^10.
NoiseFactor factorOf(const NodeNoise &noise, int32_t scenario);

/// `cost` times `factor`, rounded down, ns. At most `largest`, or `cost` if that is more.
Ns scaleCost(Ns cost, NoiseFactor factor, Ns largest);

/// Makespans over all scenarios, ns.
struct SampledMakespan {
  /// The mean, rounded down, and the 95 % quantile: the smallest makespan that is not exceeded in at least 95 % of the
  /// scenarios.
  Ns mean = 0, p95 = 0;

  bool operator==(const SampledMakespan &other) const { return mean == other.mean && p95 == other.p95; }
};

/// Sums up the makespans of all scenarios; there is at least one. O(scenarios log scenarios).
SampledMakespan summarize(std::vector<Ns> makespans);

/// Problems in scenarios: what is drawn once for a problem serves all of its orders and bucketings.
class ScenarioSampler {
public:
  /// Keeps references to both; `noise` has one entry per node. O(scenarios x N) up to kMaxCached factors, which it
  /// keeps; beyond them they are drawn for each use.
  ScenarioSampler(const Problem &problem, const Noise &noise);

  int32_t scenarios() const { return noise.scenarios; }

  /// The problem in one scenario. A merge key costs what it costs times the smallest factor of its starts. O(N + E).
  Problem scenario(int32_t index) const;

  /// The makespans of an answer, indexed by scenario, ns. A bucket varies as its first member does; what it copies has
  /// no noise. Stops when the sum of the makespans exceeds `cutoff`, and returns those so far. O(scenarios) times
  /// simulate(), plus O(N + E).
  std::vector<Ns> play(const Schedule &schedule, Wide cutoff = kNoCutoff) const;
  static constexpr Wide kNoCutoff = Wide(1) << 120;

  /// Indexed by node of the answer's problem: the node of the given problem as which it varies, or kNone.
  std::vector<NodeId> sourcesOf(const Schedule &schedule) const;

  /// Indexed by node of `carried`, whose nodes vary as `sources`: the costs in one scenario, ns. O(N).
  std::vector<Ns> costs(int32_t index, const Problem &carried, llvm::ArrayRef<NodeId> sources) const;

private:
  static constexpr int64_t kMaxCached = int64_t(1) << 24;

  NoiseFactor factor(int32_t index, NodeId node) const {
    return factors.empty() ? factorOf(noise.nodes[node], index)
                           : factors[static_cast<size_t>(index) * noise.nodes.size() + node];
  }

  const Problem &problem;
  const Noise &noise;
  /// The most that a node of a smaller cost may take in a scenario, ns.
  Ns largest;
  /// Indexed by scenario, then by node; empty if there are too many.
  std::vector<NoiseFactor> factors;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_SCENARIOS_H
