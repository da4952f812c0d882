//===- ScheduleOptions.h - Options of the solver ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_SOLVER_SCHEDULEOPTIONS_H
#define COMMSCHED_SCHEDULING_SOLVER_SCHEDULEOPTIONS_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Scheduling/Problem/Problem.h"
#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Support/Executor.h"
#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/Objective.h"
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

struct SecondOpinion;

/// About a second on one core for both searches of problems of up to kMediumProblem nodes, less for small ones, of
/// which a module may have many, and more for large ones: about 20 s for 100,000 nodes.
inline constexpr int64_t kDefaultEffort = 3000000;
inline constexpr NodeId kMediumProblem = 8000;
inline constexpr int64_t kEffortPerNode = 140;
inline constexpr int64_t defaultEffort(NodeId nodes) {
  return std::min<int64_t>(kDefaultEffort, 400000 + int64_t(1000) * nodes) +
         kEffortPerNode * std::max<NodeId>(nodes - kMediumProblem, 0);
}

/// What the solver is asked for.
struct ScheduleOptions {
  /// The peak limit; the input is the given order.
  MemoryBudget memory;
  /// What the limit is about: schedule() (Lenses.h) knows both, the core the live bytes only.
  LimitedMemory limitedMemory = LimitedMemory::Live;
  /// If set, schedule() (Lenses.h) looks for the lowest peak of answers that take at most this fraction longer than the
  /// fastest one that it finds within the limit. At least 0.
  std::optional<double> timeBudgetRatio;
  /// Whether collectives may be merged.
  bool bucketing = true;
  /// The largest merged collective, bytes; negative: unlimited.
  Bytes bucketCap = -1;
  /// What the answer is verified against; the problem has the edges.
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
  /// Steps (nodes placed and placements refused) that a search may spend; defaultEffort() where negative. 0 gives the
  /// first answer. With bucketing, the order alone is searched as well, with the same effort, so that buckets never
  /// cost time; the search for buckets gets what that one leaves, and all of it if the first answer with buckets is
  /// shorter than any order alone.
  int64_t effort = -1;
  /// The steps for a problem of so many nodes.
  int64_t effortFor(NodeId nodes) const { return effort < 0 ? defaultEffort(nodes) : effort; }
  /// What schedule() (Lenses.h) minimizes; the core minimizes the makespan.
  Objective objective = Objective::Makespan;
  /// Somebody else's costs of the problem (BothCosts.h), for objectives other than the makespan; not owned;
  /// null: none.
  const SecondOpinion *second = nullptr;
  /// Are told of every trial of the search, in this order; not owned.
  std::vector<SearchObserver *> observers;
  /// A further condition on answers, such as a limit on the arena of their buffers: told the problem with the buckets
  /// carried out, and an order of it. Empty: none. The given order is an answer whether it meets the condition or not.
  /// A call counts as some steps of effort.
  std::function<bool(const Problem &carried, llvm::ArrayRef<NodeId> order)> admits;
  /// Answers to begin from, for a problem with the same nodes and buckets; not owned. What they claim is not believed,
  /// and those above the limit are left out.
  std::vector<const Schedule *> known;
  /// Ends all searches soon after somebody sets it, a signal for example; the answer is the best one so far. Equal
  /// input gives equal answers only if nobody does. Not owned; null: never.
  const std::atomic<bool> *stop = nullptr;
  bool isStopped() const { return stop && *stop; }
  /// The names of lenses, and of phases of the search (Scheduler.md), that are left out.
  std::vector<std::string> without;
  /// Runs the first decodes, which do not depend on each other. The answer is the same for any number of threads. The
  /// functions of the problem (MergeKey::cost and the like) are then called on these threads.
  Executor executor;
};

/// Computing a bound takes the time of about N * N / kBoundDivisor steps (measured). It is computed if that is at most
/// kBoundPercent of the effort.
inline constexpr int64_t kBoundDivisor = 360, kBoundPercent = 10;

/// Whether a bound for a problem of so many nodes costs little beside `effort` steps.
inline bool isBoundCheap(NodeId nodes, int64_t effort) {
  return mulDiv(nodes, nodes, kBoundDivisor) <= mulDiv(effort, kBoundPercent, 100);
}

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_SOLVER_SCHEDULEOPTIONS_H
