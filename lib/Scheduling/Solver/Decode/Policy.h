//===- Policy.h - The priority rules of one decode --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A serial schedule generation scheme places one activity after another, the best one first. A Policy is the vector of
// numbers that says which one is best here; a search tries many policies (Portfolio.h).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_POLICY_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_POLICY_H

#include "MemoryAdmission.h"

namespace commsched {

/// Number of candidates that are tried for a lane before it stays idle.
inline constexpr int32_t kMaxTries = 24;

/// The priority rules of one decode. Shares are in permille. A *terminal* start is one that only the block's end needs
/// (Reference::terminal); an *exclusive producer* is a compute that only one start needs
/// (ScheduleFacts::exclusiveStart).
struct Policy {
  // Computes.
  /// Weight of the longest path behind a compute against its position in the reference: 0 to 1000.
  int32_t tailShare = 0;
  /// Exclusive producers of a terminal start are deferred by this share of the block's compute time if that is
  /// worth it, so that they can run beside the last long collective.
  int64_t producerDelay = 0;
  /// Only producers behind this share of the reference's compute time are deferred: a few are enough, and the others
  /// would hold memory.
  int32_t producersFrom = 0;
  /// A compute may be placed at most this many ranks ahead of the first compute that has not been placed.
  int32_t window = 100;
  /// With contention, the number of computes that are compared while a collective is in flight: the one with which
  /// everything together goes on fastest is placed first. 0: the first one is placed.
  int32_t compared = 0;
  /// With contention, a start that has time to spare is held back if its collective beside the next compute would add
  /// less than this share of its full rate to what goes on.
  int32_t patience = 0;

  // Starts.
  /// How far a terminal start yields to the others, as a share of the median collective.
  int64_t terminalDelay = 10000;

  // Deadlines: absolute times follow from an estimate of the makespan, never less than what computes will need.
  /// The estimate, as a share of the larger of compute load and critical path.
  int64_t horizon = 1100;

  // Buckets.
  /// Size limits, in bytes: of buckets that a compute needs, and of buckets of terminal starts.
  Bytes maxNeeded = Bytes(1) << 30, maxTerminal = Bytes(2) << 30;
  /// A pack precedes its start. So a lane is served earlier by this share of the time that its last pack took, also
  /// when compute is about to stand still.
  int32_t packAhead = 1000;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_POLICY_H
