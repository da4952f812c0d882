//===- MemoryPlan.h - Choice of kept values together with the order ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The search over what is kept and what is made again (Rematerialization.h). Keeping a value costs memory and saves the
// time of making it again, on the lane that makes it. Each plan is judged by the schedule that the solver finds for it
// within the limit, so the plan suits the order and the lanes that it leaves full or idle.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_MEMORYPLAN_H
#define COMMSCHED_SCHEDULING_LENSES_MEMORYPLAN_H

#include "CommSched/Scheduling/Lenses/Rematerialization.h"
#include "CommSched/Scheduling/Solver/ScheduleOptions.h"

namespace commsched {

/// The best plan that was found.
struct MemoryPlan {
  /// Indexed by repetition: whether the first value is kept.
  llvm::BitVector kept;
  /// The problem without what the plan leaves out, and its schedule.
  ReducedProblem reduced;
  Schedule schedule;
  /// No plan whose peak is within the limit takes less time, whatever its order and its buckets (Lemmas 25 and 26), ns.
  Ns lowerBound = 0;
  /// Plans that were scheduled with effort 0 and with the effort of the options, and steps of all searches.
  int32_t tried = 0, searched = 0;
  int64_t steps = 0;
};

/// The problem that a plan is judged by: keepValues(), and what is made again is made late. O(nodes + edges + touches).
ReducedProblem lateProblem(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, const llvm::BitVector &kept);

/// Whether the schedule of a plan is worth it: within its limit, and shorter than `known`, the schedule without a plan,
/// unless that is above the limit.
bool isWorthIt(const Schedule &planned, const Schedule &known);

/// Searches for the plan with the shortest schedule within the limit of `options`, which is taken as bytes
/// (MemoryBudget::limit) or from the peak of `problem` without `given`. `given` has the repetitions that the program
/// without a plan does not carry out, and `known` is the answer for it: a plan that is not shorter is not taken, and
/// the result is then `given` with `known`. `problem` and `repetitions` are valid. Equal input gives equal output.
/// Solves at most a fixed number of problems, of which at most three get the effort of `options`.
MemoryPlan planMemory(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, const llvm::BitVector &given,
                      const Schedule &known, const ScheduleOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_MEMORYPLAN_H
