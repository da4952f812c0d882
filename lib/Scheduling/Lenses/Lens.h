//===- Lens.h - Interface and list of the lenses -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A new lens is declared here, has a file of its own, and stands in the list of Lenses.cpp. Private to the lenses.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_LENSES_LENS_H
#define COMMSCHED_LIB_SCHEDULING_LENSES_LENS_H

#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched {

/// The lenses behind one, and the core. May be called from several threads at once.
using InnerSolver = llvm::function_ref<Schedule(const Problem &, const ScheduleOptions &)>;

/// A way to solve a problem by way of the answers of `inner`.
struct Lens {
  /// As in ScheduleOptions::without.
  llvm::StringLiteral name;
  /// Whether there is something for it to do. O(N + touches) at most.
  bool (*applies)(const Problem &problem, const ScheduleOptions &options);
  Schedule (*solve)(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);
};

/// "arena": a limit on the arena of the buffers (ArenaLimit.h).
bool limitsArena(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleWithinArena(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "time-budget": the lowest peak of answers that take little longer than the fastest one (ScheduleOptions). Costs up
/// to 11 times the search for the fastest one.
bool hasTimeBudget(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleWithinTime(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "second-opinion": answers that somebody else's costs do not contradict (BothCosts.h).
bool hasSecondOpinion(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleWithSecondOpinion(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "scales": answers that do not lose when costs are wrong (Robust.h).
bool asksForScales(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleAtScales(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "settle": slack where it costs nothing (Settle.h).
bool maySettle(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleAndSettle(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "input-peak": a limit above the peak of the given order. Every plan within a smaller limit is one within a larger
/// limit, but a search that may use more memory goes other ways and may end at a longer plan. So the search begins from
/// the answer within the peak of the given order. Between two limits above that peak nothing is promised.
bool allowsMoreThanInput(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleFromPeakOfInput(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "variants": choices between ways to carry out a collective (VariantSearch.h).
bool offersVariants(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleWithVariants(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// "contention": activities that share resources. A decode knows their demands only roughly, so the search begins from
/// the answer of a search of the same effort that knows nothing of them.
bool hasContendedResources(const Problem &problem, const ScheduleOptions &options);
Schedule scheduleFromUndisturbed(const Problem &problem, const ScheduleOptions &options, InnerSolver inner);

/// Makes an answer of a problem with other costs one of `problem`: carries its buckets out, measures and settles it.
/// Returns what makes it none, or an empty text. If its peak is above `limit`, it is neither verified nor settled.
std::string carryOver(const Problem &problem, const ScheduleOptions &options, Bytes limit, Schedule &schedule);

/// Adds the steps and the answers of an earlier search to an answer, and its defect if the answer has none.
void addEffort(Schedule &answer, const Schedule &earlier);

/// The answer of a search for the order alone: the one that led to `answer`, or one of its own. None if that is
/// `answer`.
std::optional<Schedule> orderAloneOf(const Problem &problem, const ScheduleOptions &options, const Schedule &answer,
                                     InnerSolver inner);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_LENSES_LENS_H
