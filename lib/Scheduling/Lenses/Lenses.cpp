//===- Lenses.cpp - The list of lenses, and the way through them -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The short lenses are here, too.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Solver/Settle.h"
#include "Lens.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// Outermost first: a lens asks those behind it.
static constexpr Lens kLenses[] = {
    {"arena", limitsArena, scheduleWithinArena},
    {"time-budget", hasTimeBudget, scheduleWithinTime},
    {"second-opinion", hasSecondOpinion, scheduleWithSecondOpinion},
    {"scales", asksForScales, scheduleAtScales},
    {"input-peak", allowsMoreThanInput, scheduleFromPeakOfInput},
    {"settle", maySettle, scheduleAndSettle},
    {"variants", offersVariants, scheduleWithVariants},
    {"contention", hasContendedResources, scheduleFromUndisturbed},
};

static Schedule scheduleThrough(llvm::ArrayRef<Lens> lenses, const Problem &problem, const ScheduleOptions &options) {
  const auto *lens = llvm::find_if(lenses, [&](const Lens &each) {
    return !llvm::is_contained(options.without, each.name) && each.applies(problem, options);
  });
  if (lens == lenses.end())
    return scheduleCore(problem, options);
  llvm::ArrayRef<Lens> behind(lens + 1, lenses.end());
  return lens->solve(problem, options, [behind](const Problem &other, const ScheduleOptions &with) {
    return scheduleThrough(behind, other, with);
  });
}

Schedule commsched::schedule(const Problem &problem, const ScheduleOptions &options) {
  return scheduleThrough(kLenses, problem, options);
}

std::vector<llvm::StringRef> commsched::lensNames() {
  std::vector<llvm::StringRef> names;
  for (const Lens &lens : kLenses)
    names.push_back(lens.name);
  return names;
}

void commsched::addEffort(Schedule &answer, const Schedule &earlier) {
  answer.steps += earlier.steps;
  answer.incumbents += earlier.incumbents;
  if (answer.defect.empty())
    answer.defect = earlier.defect;
}

std::string commsched::carryOver(const Problem &problem, const ScheduleOptions &options, Bytes limit,
                                 Schedule &schedule) {
  if (schedule.isExpanded()) {
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, schedule.buckets);
    if (!expanded)
      return llvm::toString(expanded.takeError());
    schedule.expanded = std::move(*expanded);
    carryOutVariants(problem, schedule);
  }
  measure(problem, schedule);
  schedule.claims = {makespanOf(schedule.carriedOut(problem), schedule.order), schedule.peak};
  schedule.limit = limit;
  if (!schedule.isWithinLimit())
    return "";
  if (std::string wrong = verify(problem, schedule, {limit, options.collectiveOrder}); !wrong.empty())
    return wrong;
  settleAnswer(problem, options, schedule);
  return "";
}

std::optional<Schedule> commsched::orderAloneOf(const Problem &problem, const ScheduleOptions &options,
                                                const Schedule &answer, InnerSolver inner) {
  if (!options.bucketing || (answer.buckets.empty() && answer.order == answer.orderAlone))
    return std::nullopt;
  if (answer.orderAlone.empty()) {
    ScheduleOptions apart = options;
    apart.bucketing = false;
    return inner(problem, apart);
  }
  // Merging nothing fails for no problem.
  Schedule alone = llvm::cantFail(mergeInOrder(problem, {}));
  alone.order = answer.orderAlone;
  measure(problem, alone);
  alone.claims = {alone.makespan, alone.peak};
  alone.limit = answer.limit;
  return alone;
}

bool commsched::maySettle(const Problem &problem, const ScheduleOptions &) {
  return !problem.hasContention() && !problem.hasStreams();
}

Schedule commsched::scheduleAndSettle(const Problem &problem, const ScheduleOptions &options, InnerSolver inner) {
  Schedule answer = inner(problem, options);
  settleAnswer(problem, options, answer);
  return answer;
}

bool commsched::allowsMoreThanInput(const Problem &problem, const ScheduleOptions &options) {
  const Bytes peak = peakOf(problem, identityOrder(problem));
  return options.memory.limitFor(peak) > peak;
}

Schedule commsched::scheduleFromPeakOfInput(const Problem &problem, const ScheduleOptions &options, InnerSolver inner) {
  ScheduleOptions atPeak = options;
  atPeak.memory = MemoryBudget();
  Schedule least = inner(problem, atPeak);
  ScheduleOptions from = options;
  from.known.push_back(&least);
  Schedule answer = inner(problem, from);
  // The choice between variants is made anew, so the answer may be longer all the same.
  const bool isLonger = answer.makespan > least.makespan;
  addEffort(answer, least);
  if (!isLonger)
    return answer;
  least.limit = answer.limit;
  least.steps = answer.steps;
  least.incumbents = answer.incumbents;
  least.leastOrder = answer.leastOrder;
  least.leastSchedule = answer.leastSchedule;
  least.defect = answer.defect;
  return least;
}
