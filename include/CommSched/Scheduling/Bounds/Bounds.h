//===- Bounds.h - Lower bounds on the makespan and on the peak --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lower bounds that hold for every order of a Problem, so that a report can say how far, at most, an answer is from the
// optimum. They depend on the Problem alone, never on an order. Bounds.md states and proves the lemmas.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_BOUNDS_H
#define COMMSCHED_SCHEDULING_BOUNDS_BOUNDS_H

#include "CommSched/Scheduling/Bounds/BoundOptions.h"

namespace commsched {

/// The argument that gives a bound.
enum class BoundArgument : uint8_t {
  /// The sum of all work of one lane (Lemma 1).
  LaneLoad,
  /// The work of one lane with the heads and tails of its pieces (Lemmas 5 and 9).
  OneMachine,
  /// A chain of dependences, with the load that its nodes have to wait for (Lemmas 2 to 4).
  CriticalPath,
  /// What all activities take of one resource of the device (Lemmas 13 and 14).
  ResourceLoad,
};

/// A lower bound on the makespan.
struct LowerBound {
  Ns makespan = 0;
  BoundArgument argument = BoundArgument::LaneLoad;
  /// The lane that the argument is about; kNone for a critical path.
  LaneId lane = kComputeLane;
  /// Of a resource load: the resource.
  Resource resource = Resource::ComputeUnits;
  /// The bound for orders within BoundOptions::limit (Lemmas 10 and 11). If it exceeds `makespan`, `limitLane` is the
  /// lane that has to wait for memory.
  Ns withLimit = 0;
  LaneId limitLane = kNone;
  /// Whether certificates carry the arguments of `makespan` and, if `limitLane` is a lane, of `withLimit`.
  bool isCertified = true, isLimitCertified = true;

  /// "compute lane", "lane of group @dp", "critical path", "resource compute_units"; ", uncertified" behind it if
  /// the independent checker does not know the argument.
  std::string describe(const Problem &problem) const;
  /// The same for `withLimit`: also "peak limit and lane of group @dp".
  std::string describeWithLimit(const Problem &problem) const;
};

/// No order of the problem, with its collectives as they are, is faster. The bound is the largest of each lane's load
/// (Lemma 1), the critical path with the load of ancestors and descendants (Lemmas 2 to 4), each lane's preemptive
/// one-machine bound (Lemma 5; Jackson 1955), and the cost of a long collective late in the block (Lemma 29). It
/// ignores contention, and memory except in LowerBound::withLimit, so it holds with them too, and it holds for any
/// choice of variants (withLeastVariants). O(N^2 / 64) words up to BoundOptions::exactNodes, O(N window / 64) for
/// larger problems.
LowerBound lowerBound(const Problem &problem, const BoundOptions &options = {});

/// No order of the problem is faster with any bucketing by Problem::mergeKeys (Bucketing.h), packed or coalesced
/// (Lemmas 7 and 8). Copies are free in this bound, except the share of a cast in the pack that absorbs it. Equal to
/// lowerBound() without merge keys.
LowerBound jointLowerBound(const Problem &problem, const BoundOptions &options = {});

/// No order of the problem, without bucketing, has a smaller peak (Lemma 12): at each node, the buffers that it
/// touches, and those that must have been allocated before it and cannot have been freed. Beyond options.exactNodes
/// nodes only the largest buffers are tracked. O(N * buffers / 64) words.
Bytes peakLowerBound(const Problem &problem, const BoundOptions &options = {});

/// No order of the problem with any bucketing by Problem::mergeKeys has a smaller peak (Lemma 12). Without merge keys,
/// equal to peakLowerBound(). Complexity as of that.
Bytes peakLowerBoundWithBuckets(const Problem &problem);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_BOUNDS_H
