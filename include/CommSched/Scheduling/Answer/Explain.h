//===- Explain.h - Causes of exposed collectives ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one explanation of exposed time. It is read off a finished schedule, not recorded by whatever found the schedule,
// so that the remarks of every pass, the report and the timeline give one reason for one collective.
//
// The method: play the order, then look at both ends of each exposed collective. At the start: its lane was busy until
// it began; the last of its dependences ran just before it; it stands first in the block; or, from the place where its
// dependences allow it on, live bytes and what it allocates would pass the limit (a range maximum over the memory
// profile). At the wait: computation behind it that does not need it would cover it, but does not fit beside what is
// live. An obstacle that memory is counts before a dependence, because the limit can be raised. If nothing is in the
// way at one end, the order with the start, or the computation, in its other place is played: if it is shorter, nothing
// but the order kept it; if not, what it would expose elsewhere did.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_EXPLAIN_H
#define COMMSCHED_SCHEDULING_ANSWER_EXPLAIN_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Scheduling/Time/Timeline.h"

namespace commsched {

/// One start of the given problem, before and after.
struct StartOutcome {
  NodeId start = kNone;
  /// Index into Schedule::buckets, or kNone.
  int32_t bucket = kNone;
  /// Position of its issue in the given order and in the schedule.
  int32_t positionBefore = 0, positionAfter = 0;
  /// How long compute stood still for it, ns. A bucket's exposure is told at its first member, and is 0 at the others.
  Ns exposedBefore = 0, exposedAfter = 0;
  /// Why compute waits for it: AlreadyHidden (it does not), LaneBusy, DataDependence, StartsAtOnce, PeakMemory,
  /// Preference, or Makespan (an earlier start would make nothing shorter). The blocker is a node of the given problem.
  /// For LaneBusy and DataDependence, `reached` is kNotAlone if the order would not be shorter without this obstacle
  /// alone.
  Explanation reason;
};

/// Explanation::reached of an obstacle that is one of several.
inline constexpr int64_t kNotAlone = 1;

/// The pack in front of a start, or kNone: what has to be issued earlier if the start is.
using PackOf = llvm::function_ref<NodeId(NodeId start)>;

/// Explains every start of `problem` under `schedule`, by ascending node. `limit`: what the peak may reach, bytes.
/// `packOf` knows the packs of programs that came with their buckets as operations; packs of the schedule's own buckets
/// are known without it. O((N + E + touches) log N).
std::vector<StartOutcome> explain(const Problem &problem, const Schedule &schedule, Bytes limit,
                                  PackOf packOf = nullptr);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_EXPLAIN_H
