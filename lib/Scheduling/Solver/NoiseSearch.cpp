//===- NoiseSearch.cpp - Schedules that fare well under noise ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The searches with longer collectives, and the choice among their answers.
//
//===------------------------------------------------------------------------------------------===//

#include "NoiseSearch.h"
#include "CommSched/Scheduling/Model/KeepTogether.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/ScheduleVerifier.h"
#include "CommSched/Scheduling/Solver/Settle.h"
#include "NoiseMoves.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace commsched;

namespace {

/// By how much longer collectives are taken to be in the searches after the first one, in permille. The best choice
/// depends on the problem: on the graphs of test/Graphs it is each of them once.
constexpr int64_t kStretches[] = {1150, 1300, 1600};
/// Shares of the effort, in percent. The search without noise has all of it, so that its answer is that of the makespan
/// as objective; the others together have as much again.
constexpr int64_t kFirstPercent = 100, kStretchedPercent = 25, kMovesPercent = 25;
/// Nodes that are played in the time of one step of a decode.
constexpr int64_t kPlayedPerStep = 16;

/// The problem with collectives that take longer.
Problem stretched(const Problem &problem, int64_t permille) {
  Problem result = problem;
  Ns most = kMaxTotalNs / 8 / std::max<NodeId>(problem.size(), 1);
  auto stretch = [permille, most](Ns cost) {
    return std::max(cost, std::min(mulDiv(cost, permille, kPermille), most));
  };
  for (Node &node : result.nodes)
    if (node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid)
      node.cost = stretch(node.cost);
  for (MergeKey &key : result.mergeKeys) {
    key.cost = [cost = std::move(key.cost), stretch](Bytes bytes) { return stretch(cost(bytes)); };
    if (key.groupCost)
      key.groupCost = [cost = std::move(key.groupCost), stretch](Bytes bytes, int32_t members) {
        return stretch(cost(bytes, members));
      };
  }
  return result;
}

/// One call of scheduleUnderNoise().
class NoiseSearch {
public:
  NoiseSearch(const Problem &problem, const ScheduleOptions &options)
      : problem(problem), options(options), sampler(problem, *options.noise),
        effort(options.effort < 0 ? defaultEffort(problem.size()) : options.effort) {}

  Schedule run() {
    best = search(problem, kFirstPercent);
    if (!best.isWithinLimit())
      return std::move(best);
    value = evaluate(best);
    // With the makespan as objective, the answer is settled, and no answer here should be worse than that one.
    Schedule settled = best;
    settleAnswer(problem, options, settled);
    offer(std::move(settled));
    if (best.inputPeak <= best.limit)
      offer(keepOrder(problem));
    for (int64_t stretch : kStretches)
      offer(search(stretched(problem, stretch), kStretchedPercent));
    moveNodes();
    best.steps = steps;
    best.incumbents = incumbents;
    best.defect = std::move(defect);
    return std::move(best);
  }

private:
  /// Runs one search of the makespan without noise.
  Schedule search(const Problem &searched, int64_t percent) {
    ScheduleOptions own = options;
    own.objective = Objective::Makespan;
    own.noise = nullptr;
    own.effort = mulDiv(effort, percent, 100);
    Schedule found = schedule(searched, own);
    steps += found.steps;
    incumbents += found.incumbents;
    if (defect.empty())
      defect = found.defect;
    return found;
  }

  /// The objective of an answer, ns. May be any value above `cutoff` if it is above it.
  Ns evaluate(const Schedule &schedule, Ns cutoff = std::numeric_limits<Ns>::max()) {
    bool isMean = options.objective == Objective::Mean;
    Wide most = isMean && cutoff < std::numeric_limits<Ns>::max() ? static_cast<Wide>(cutoff) * sampler.scenarios()
                                                                  : ScenarioSampler::kNoCutoff;
    std::vector<Ns> makespans = sampler.play(schedule, options.slowDown, most);
    steps += static_cast<int64_t>(makespans.size()) * problem.size() / kPlayedPerStep;
    if (static_cast<int32_t>(makespans.size()) < sampler.scenarios())
      return std::numeric_limits<Ns>::max();
    SampledMakespan sampled = summarize(std::move(makespans));
    return isMean ? sampled.mean : sampled.p95;
  }

  /// Takes an answer of another problem with the same nodes if it is better and holds for this one.
  void offer(Schedule candidate) {
    if (!candidate.buckets.empty()) {
      llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, candidate.buckets);
      if (!expanded) {
        defect = llvm::toString(expanded.takeError());
        return;
      }
      candidate.expanded = std::move(*expanded);
    } else if (candidate.isExpanded()) {
      candidate.expanded = llvm::cantFail(expandBuckets(problem, {}));
    }
    Ns offered = evaluate(candidate, value);
    if (offered >= value)
      return;
    measure(problem, options.slowDown, candidate);
    const Problem &carried = candidate.carriedOut(problem);
    candidate.claims = {makespanOf(carried, candidate.order), candidate.peak};
    candidate.limit = best.limit;
    ScheduleRequirements requirements;
    requirements.peakLimit = std::max(best.limit, best.peak);
    requirements.collectiveOrder = options.collectiveOrder;
    if (std::string wrong = verify(problem, candidate, requirements); !wrong.empty()) {
      defect = std::move(wrong);
      return;
    }
    if (options.admits && !options.admits(carried, candidate.order))
      return;
    best = std::move(candidate);
    value = offered;
  }

  /// Improves the best answer by moves of single nodes. Slow-downs are part of no move's evaluation, so what comes out
  /// is one more candidate.
  void moveNodes() {
    if (hasUnits(problem))
      return;
    int64_t left = mulDiv(effort, kMovesPercent, 100);
    Schedule moved = best;
    NoiseMoves moves(best.carriedOut(problem), best, sampler, options.objective, std::max(best.limit, best.peak));
    steps += left;
    moves.run(left);
    moved.order.assign(moves.order().begin(), moves.order().end());
    offer(std::move(moved));
  }

  const Problem &problem;
  const ScheduleOptions &options;
  ScenarioSampler sampler;
  int64_t effort;
  Schedule best;
  /// The objective of `best`, ns.
  Ns value = 0;
  int64_t steps = 0;
  int32_t incumbents = 0;
  std::string defect;
};

} // namespace

Schedule commsched::scheduleUnderNoise(const Problem &problem, const ScheduleOptions &options) {
  return NoiseSearch(problem, options).run();
}
