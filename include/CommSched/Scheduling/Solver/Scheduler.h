//===- Scheduler.h - Order and buckets under a hard peak limit --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one entry to the solver. The given order is the first incumbent; decodes of a few policies and then moves of
// single nodes improve on it for as long as the effort lasts. Every incumbent passes verify(). Equal input and options
// give equal output: effort is counted in steps, not in time.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H
#define COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H

#include "CommSched/Scheduling/Model/Schedule.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "CommSched/Support/BucketCaps.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Support/Executor.h"
#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/Objective.h"
#include <algorithm>
#include <functional>

namespace commsched {

/// What the solver is asked for.
struct ScheduleOptions {
  /// The peak limit; the input is the given order.
  MemoryBudget memory;
  /// Whether collectives may be merged, and the largest merged ones.
  bool bucketing = true;
  BucketCaps caps;
  /// What the answer is verified against; the problem has the edges.
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
  /// Steps (nodes placed and placements refused) that a search may spend; defaultEffort() where negative. 0 gives the
  /// first answer. With bucketing, the order alone is searched as well, with the same effort, so that buckets never
  /// cost time; the search for buckets gets what that one leaves, and all of it if the first answer with buckets is
  /// shorter than any order alone.
  int64_t effort = -1;
  /// What scheduleRobustly() (Robust.h) minimizes. schedule() and scheduleWithPeakOfInput() minimize the makespan.
  Objective objective = Objective::Makespan;
  /// Are told of every trial of the search, in this order; not owned.
  std::vector<SearchObserver *> observers;
  /// A further condition on answers, such as a limit on the arena of their buffers: told the problem with the buckets
  /// carried out, and an order of it. Empty: none. The given order is an answer whether it meets the condition or not.
  /// A call counts as some steps of effort.
  std::function<bool(const Problem &carried, llvm::ArrayRef<NodeId> order)> admits;
  /// The names of phases of the search (Scheduler.md) that are left out.
  std::vector<std::string> withoutPhases;
  /// Runs the first decodes, which do not depend on each other. The answer is the same for any number of threads. The
  /// functions of the problem (MergeKey::cost and the like) are then called on these threads.
  Executor executor;
};

/// About a second on one core for both searches of problems of up to 20,000 nodes ...
inline constexpr int64_t kDefaultEffort = 3000000;
/// ... and less for small ones, of which a module may have many.
inline constexpr int64_t defaultEffort(NodeId nodes) {
  return std::min<int64_t>(kDefaultEffort, 400000 + int64_t(1000) * nodes);
}

/// Schedules `problem`, which has to be valid (Problem::validate). Near-linear for a first answer, then in proportion
/// to the effort. The answer is never slower than the given order and never has a higher peak than the limit; if the
/// given order is above the limit, the peak comes first (Schedule::isWithinLimit). With ScheduleOptions::bucketing it
/// is never slower than without. If the problem has variants, the answer may choose some (Schedule::variants); it is
/// then shorter than without them.
Schedule schedule(const Problem &problem, const ScheduleOptions &options = {});

/// As schedule(), and if the limit is above the peak of the given order, never slower
/// than the answer of schedule() within that peak: every plan within a smaller limit is one within a larger limit, but
/// a search that may use more memory goes other ways and may end at a longer plan. Takes the time of both searches,
/// unless the first one ends at a lower bound of the larger limit. Between two limits above the peak nothing is
/// promised.
Schedule scheduleWithPeakOfInput(const Problem &problem, const ScheduleOptions &options = {});

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_SOLVER_SCHEDULER_H
