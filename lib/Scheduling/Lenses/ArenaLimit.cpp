//===- ArenaLimit.cpp - A limit on the arena of the buffers -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The order given is always a candidate. A search whose plan is too large is repeated with as many live bytes less. If
// it did not fit at once, there are first answers, and searches that ask for a plan of each of their improvements: with
// buckets of any size, and with small ones, because a large packed buffer finds no hole between what is live. If
// nothing fits, it is tried without buckets.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/ArenaLimit.h"
#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "Lens.h"

using namespace commsched;

/// Limit on the number of searches with equal options. In the traced graphs an arena exceeds the peak by at most 4 %,
/// and the second search fits if any does.
static constexpr int32_t kMaxSearches = 4;
/// Steps of the plan of an improvement, a tenth of a second: a search plans some dozens of them.
static constexpr int64_t kStepsOfImprovement = int64_t(96) << 20;
/// The caps on buckets that are tried, as parts of the limit. In the traced graphs, where the limit is 20 to 50 GiB,
/// buckets of more than 1 GiB seldom find a place, and caps of less than 256 MiB cost time.
static constexpr Bytes kPartsOfLimit[] = {40, 80};

static Bytes largestWorkspace(const Problem &problem) {
  Bytes workspace = 0;
  for (const Node &node : problem.nodes)
    workspace = std::max(workspace, node.workspace);
  return workspace;
}

Bytes commsched::arenaOf(const Problem &problem, const Schedule &schedule) {
  const Problem &carried = schedule.carriedOut(problem);
  return planBuffers(liveIntervals(carried, schedule.order)).total + largestWorkspace(carried);
}

namespace {

/// The best answer so far: one that fits before one that does not, then the shorter one, or the smaller one if none
/// fits.
class BestAnswer {
public:
  /// Begins with the order given, whose arena is `arena`.
  BestAnswer(const Problem &problem, const ScheduleOptions &options) : problem(problem) {
    answer = keepOrder(problem);
    answer.makespan = answer.inputMakespan = makespanOf(problem, answer.order);
    answer.peak = answer.inputPeak = peakOf(problem, answer.order);
    answer.claims = {answer.makespan, answer.peak};
    arena = arenaOf(problem, answer);
    limit = answer.limit = options.memory.limitFor(arena);
  }

  /// Returns the arena of the candidate, bytes.
  Bytes offer(Schedule candidate) {
    Bytes bytes = arenaOf(problem, candidate);
    int64_t steps = answer.steps + candidate.steps;
    bool fits = bytes <= limit, isBetter = fits != (arena <= limit) ? fits
                                           : fits                   ? candidate.makespan < answer.makespan
                                                                    : bytes < arena;
    if (isBetter) {
      arena = bytes;
      answer = std::move(candidate);
      answer.limit = limit;
    }
    answer.steps = steps;
    return bytes;
  }

  const Problem &problem;
  Schedule answer;
  Bytes limit, arena;
};

} // namespace

/// Searches under a falling limit on live bytes until a plan fits. Returns the number of searches.
static int32_t searchDownwards(BestAnswer &best, ScheduleOptions options, InnerSolver inner) {
  Bytes live = best.limit;
  int32_t searches = 0;
  while (searches < kMaxSearches && live >= 0) {
    ++searches;
    options.memory.limit = live;
    Schedule candidate = inner(best.problem, options);
    Bytes peak = candidate.peak;
    bool isLowest = !candidate.isWithinLimit();
    Bytes arena = best.offer(std::move(candidate));
    if (arena <= best.limit || isLowest)
      break;
    live = std::min(live, peak) - (arena - best.limit);
  }
  return searches;
}

bool commsched::limitsArena(const Problem &, const ScheduleOptions &options) {
  return options.limitedMemory == LimitedMemory::Arena;
}

Schedule commsched::scheduleWithinArena(const Problem &problem, const ScheduleOptions &given, InnerSolver inner) {
  BestAnswer best(problem, given);
  // No other scale, and no lower peak, knows of the buffers by which answers are admitted.
  ScheduleOptions options = given;
  options.objective = Objective::Makespan;
  options.timeBudgetRatio.reset();
  // A plan with more steps, as arenaOf() makes, is never larger.
  ScheduleOptions planned = options;
  planned.admits = [limit = best.limit](const Problem &carried, llvm::ArrayRef<NodeId> order) {
    Bytes room = limit - largestWorkspace(carried);
    PlanEffort effort;
    effort.enough = room;
    effort.steps = kStepsOfImprovement;
    return planBuffers(liveIntervals(carried, order), kBufferAlignment, effort).total <= room;
  };
  // Fewer steps and fewer buckets give other orders, whose buffers may be easier to place.
  ScheduleOptions first = options, alone = options;
  first.effort = 0;
  alone.bucketing = false;
  ScheduleOptions firstAlone = alone;
  firstAlone.effort = 0;
  auto fitsAndPays = [&] { return best.arena <= best.limit && best.answer.makespan < best.answer.inputMakespan; };
  const bool isLowered = searchDownwards(best, options, inner) > 1;
  if (isLowered || !fitsAndPays()) {
    searchDownwards(best, first, inner);
    if (options.bucketing)
      searchDownwards(best, firstAlone, inner);
  }
  if (isLowered)
    best.offer(inner(problem, planned));
  for (Bytes parts : kPartsOfLimit) {
    planned.bucketCap = tighterCap(options.bucketCap, std::max<Bytes>(best.limit, 0) / parts);
    if (isLowered && options.bucketing)
      best.offer(inner(problem, planned));
  }
  if (!fitsAndPays())
    searchDownwards(best, alone, inner);
  best.answer.arena = best.arena;
  // Other limits have other best orders.
  best.answer.leastOrder.reset();
  best.answer.leastSchedule.reset();
  return std::move(best.answer);
}
