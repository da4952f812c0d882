//===- Explain.h - Why compute waits for a collective -----------------------------------------===//
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
// The method: play the order, then ask of each collective, in this turn, what an earlier begin would have met. Its lane
// was busy until it began. The last of its dependences ran just before it, or it stands first in the block: no compute
// would be gained by an earlier issue. From the place where its dependences allow it on, live bytes and what it
// allocates would pass the limit (a range maximum over the memory profile). Otherwise nothing but the order kept it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MODEL_EXPLAIN_H
#define COMMSCHED_SCHEDULING_MODEL_EXPLAIN_H

#include "CommSched/Scheduling/Model/Schedule.h"
#include "CommSched/Scheduling/Model/Timeline.h"

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
  /// Why compute waits for it: AlreadyHidden (it does not), LaneBusy, DataDependence, StartsAtOnce, PeakMemory or
  /// Preference. The blocker is a node of the given problem.
  Explanation reason;
};

/// The pack in front of a start, or kNone: what has to be issued earlier if the start is.
using PackOf = llvm::function_ref<NodeId(NodeId start)>;

/// Explains every start of `problem` under `schedule`, by ascending node. `limit`: what the peak may reach, bytes;
/// times are with `slowDown`. `packOf` knows the packs of programs that came with their buckets as
/// operations; packs of the schedule's own buckets are known without it. O((N + E + touches) log N).
std::vector<StartOutcome> explain(const Problem &problem, const Schedule &schedule, Bytes limit,
                                  const SlowDown &slowDown, PackOf packOf = nullptr);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MODEL_EXPLAIN_H
