//===- ScheduleVerifier.h - Entry of the independent checker ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one gate between whoever makes a schedule and whoever carries it out; it runs always, in release builds too. It
// consists of two checks that know nothing of each other, of a solver, or of the models that solvers use. The first
// looks at the order of the problem that the buckets were carried out in, and has its own count of live bytes. The
// second does not believe that problem: it replays the problem as it was given, event by event.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_CHECK_SCHEDULEVERIFIER_H
#define COMMSCHED_SCHEDULING_CHECK_SCHEDULEVERIFIER_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Support/MemoryBudget.h"

namespace commsched {

/// What a schedule has to keep.
struct ScheduleRequirements {
  /// The most bytes that may be live at any time.
  Bytes peakLimit = kUnlimited;
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
};

/// Describes the first violation (with node ids and positions), or returns an empty string: the order is a permutation,
/// respects every edge, touches no buffer before its definition, runs every wait after its start, stays within the
/// limit, keeps the order of collectives, messages and pinned nodes, and keeps every unit together; the buckets have
/// the form that Bucketing.h describes and keep every edge of the given problem; makespan and peak are those claimed.
/// `problem` is valid (Problem::validate). O(N + E + touches); with buckets or claims O((N + E + touches) log N).
std::string verify(const Problem &problem, const Schedule &schedule, const ScheduleRequirements &requirements);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_CHECK_SCHEDULEVERIFIER_H
