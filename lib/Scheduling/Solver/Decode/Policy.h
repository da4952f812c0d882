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

/// How the form of a bucket is chosen.
enum class FormChoice : uint8_t {
  /// The form that costs less, lane time and copies together.
  Cheaper,
  Packed,
  Coalesced,
};

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
  /// It is worth it if they take more than this share of what their start takes (ScheduleFacts::gainOfDeferral).
  int64_t leastGain = 1000;
  /// Only producers behind this share of the reference's compute time are deferred: a few are enough, and the others
  /// would hold memory.
  int32_t producersFrom = 0;
  /// A compute may be placed at most this many ranks ahead of the first compute that has not been placed.
  int32_t window = 100;
  /// Number of candidates that are tried for a lane before it stays idle.
  int32_t tries = 24;
  /// With contention, the number of computes that are compared while a collective is in flight: the one with which
  /// everything together goes on fastest is placed first. 0: the first one is placed.
  int32_t compared = 0;
  /// With contention, a start that has time to spare is held back if its collective beside the next compute would add
  /// less than this share of its full rate to what goes on.
  int32_t patience = 0;

  // Starts.
  /// How far a terminal start yields to the others, as a share of the median collective.
  int64_t terminalDelay = 10000;
  /// A terminal start precedes a more urgent one, because it frees memory, if the urgent one has this share of the
  /// terminal one's duration to spare. Never if negative.
  int64_t terminalSlack = -1;
  /// Limit on the gathered bytes that are in flight or wait for their use. A start that is late ignores it.
  Bytes prefetch = kUnlimited;

  // Deadlines: absolute times follow from an estimate of the makespan, never less than what computes will need.
  /// The estimate, as a share of the larger of compute load and critical path.
  int64_t horizon = 1100;

  // Buckets.
  FormChoice form = FormChoice::Cheaper;
  /// Size limits, in bytes: of buckets that a compute needs, and of buckets of terminal starts.
  Bytes maxNeeded = Bytes(1) << 30, maxTerminal = Bytes(2) << 30;
  /// A bucket that a compute needs may also take this share of the memory that is free when it starts: memory is scarce
  /// where a backward pass begins, so buckets have to be small there, and they may be large later.
  int32_t freeShare = 0;
  /// A bucket of at most this size may miss its first member's deadline.
  Bytes freeNeeded = Bytes(32) << 20;
  /// Terminal starts are held back until they sum to this many bytes, as long as more are to come.
  Bytes minTerminal = 0;
  /// A merge has to save this share of the time that its copies take.
  int64_t copyWeight = 1000;
  /// A lane has time to spare if its collectives, each alone, take less than this share of the work of the busiest
  /// lane. Then lane time counts little beside copies.
  int32_t idleShare = 0;
  /// A pack precedes its start. So a lane is served earlier by this share of the time that its last pack took, also
  /// when compute is about to stand still.
  int32_t packAhead = 1000;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_POLICY_H
