//===- Bounds.h - What no order can beat ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lower bounds on the makespan and on the peak that hold for every order of a Problem, so that a report can say how
// far an answer is from the best there is. They depend on the graph alone. docs/Models.md explains why they hold.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_BOUNDS_H
#define COMMSCHED_SCHEDULING_BOUNDS_BOUNDS_H

#include "CommSched/Scheduling/Model/Problem.h"

namespace commsched {

/// What binds.
enum class BoundArgument : uint8_t {
  /// Everything that a lane has to do.
  LaneLoad,
  /// What a lane has to do, with what must happen before its first and after its last piece.
  OneMachine,
  /// A chain of dependences, with the load that the chain has to wait for.
  CriticalPath,
};

/// How much the bounds may know at once. Any choice is valid.
struct BoundOptions {
  /// Up to here every ancestor of every node is known.
  NodeId exactNodes = 24000;
  /// Beyond, windows of so many nodes; each knows its own and the one before.
  NodeId window = 3072;
  /// A peak limit, bytes, for LowerBound::withLimit; none where negative.
  Bytes limit = -1;
};

/// A lower bound on the makespan.
struct LowerBound {
  Ns makespan = 0;
  BoundArgument argument = BoundArgument::LaneLoad;
  /// The lane that binds; kNone of a critical path.
  LaneId lane = kComputeLane;
  /// The same for orders that keep to BoundOptions::limit: `makespan`, or more where the limit binds; then `limitLane`
  /// is the lane that has to wait for memory.
  Ns withLimit = 0;
  LaneId limitLane = kNone;

  /// "compute lane", "lane of group @dp", "critical path".
  std::string describe(const Problem &problem) const;
  /// The same of `withLimit`: also "peak limit and lane of group @dp".
  std::string describeWithLimit(const Problem &problem) const;
};

/// No order of the problem, with its collectives as they are, is faster: the largest of each lane's load, the critical
/// path, and each lane's preemptive one-machine bound with heads and tails, these strengthened by the load of ancestors
/// and descendants per lane; and what a long collective late in the block costs, whatever is put off behind it. Memory
/// is not limited (but for LowerBound::withLimit) and nothing slows down, so that it holds with limits and slow-downs
/// too. Exact ancestor sets up to a size, in O(N^2 / 64) words; windows beyond, O(N window).
LowerBound lowerBound(const Problem &problem, const BoundOptions &options = {});

/// No order of the problem is faster with any bucketing by Problem::mergeKeys (Bucketing.h), packed or coalesced.
/// Copies are free in it, but for the part that a cast has in the pack that does it. lowerBound() without merge keys.
LowerBound jointLowerBound(const Problem &problem, const BoundOptions &options = {});

/// No order of the problem, without bucketing, has a smaller peak: at each node, what it touches itself, and what must
/// have been allocated before it and cannot have been freed yet. Up to options.exactNodes nodes of all buffers, beyond
/// of the largest ones.
Bytes peakLowerBound(const Problem &problem, const BoundOptions &options = {});

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_BOUNDS_H
