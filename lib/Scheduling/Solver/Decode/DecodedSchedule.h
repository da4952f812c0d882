//===- DecodedSchedule.h - Result of a decode -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A decode decides order and buckets together. It names steps in terms of the given problem, so that they can be
// recorded before the expanded problem of the buckets exists.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DECODEDSCHEDULE_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DECODEDSCHEDULE_H

#include "CommSched/Scheduling/Buckets/Bucketing.h"

namespace commsched {

/// One step of a decoded schedule.
struct DecodeStep {
  enum What : uint8_t { Run, Pack, Start, Wait, Unpack, View } what;
  /// Run: a node. Unpack: the wait of the member that is unpacked. Otherwise an index into DecodedSchedule::buckets.
  int32_t id;
};

/// A schedule in terms of the given problem.
struct DecodedSchedule {
  std::vector<DecodeStep> steps;
  std::vector<Bucket> buckets;
  Ns makespan = 0;
  Bytes peak = 0;
  /// Placements that were tried: the measure of effort.
  int64_t work = 0;
};

/// The order of a decoded schedule in terms of the expanded problem of its buckets. O(steps).
Order orderOf(const DecodedSchedule &decoded, const ExpandedProblem &expanded);

/// The steps of an order of the expanded problem of `buckets`: the reverse of orderOf(). O(N).
std::vector<DecodeStep> stepsOf(const Problem &problem, llvm::ArrayRef<Bucket> buckets, const ExpandedProblem &expanded,
                                llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DECODEDSCHEDULE_H
