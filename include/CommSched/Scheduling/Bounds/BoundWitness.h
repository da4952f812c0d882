//===- BoundWitness.h - Witness of a lower bound ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What a reader needs to check a bound without the code that found it: which argument it is, where it applies, and the
// levels that raise heads and tails above the longest paths. Certificate.md says how they are checked.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_BOUNDWITNESS_H
#define COMMSCHED_SCHEDULING_BOUNDS_BOUNDWITNESS_H

#include "CommSched/Scheduling/Bounds/Bounds.h"

namespace commsched {

/// A level (Lemma 3): the work on `lane` that has ended before the time in question, or that begins after it, and whose
/// head (for tails: whose tail) is at least `from`, sums to at least `value` - `from`.
struct LevelReason {
  /// The time that the level bounds; the names are those of Bounds.md.
  enum Time : uint8_t { Head, Begin, Exit, Tail, LaneTail };
  Time of;
  NodeId node;
  LaneId lane;
  /// ns.
  Ns from, value;
  /// At most what the time is without this level, ns.
  Ns base;
};

/// A size and what the cost function of a bucket says of it.
struct CostSample {
  Bytes bytes;
  Ns cost;
};

/// Evaluations of the cost functions of one merge key, the smallest sizes first. A function is monotone, so from one
/// size to the next no rate is below the smaller size's cost over the larger size.
struct KeySamples {
  /// Of MergeKey::cost over the `bytes` of a bucket, from the smallest member to the largest bucket.
  std::vector<CostSample> lane;
  /// Of Problem::copyCost over the bytes that a pack writes; it reads `read` for every `wrote` of them. Empty if no
  /// member has a cast that a pack can absorb.
  std::vector<CostSample> pack;
  Bytes read = 1, wrote = 1;
  /// Of Problem::copyCost over what an unpack reads and writes: of the unpack that small outputs share, and of those
  /// that large outputs have on their own, each size once.
  std::vector<CostSample> smallUnpacks, largeUnpacks;
};

/// One argument for a lower bound, with all that it rests on.
struct BoundWitness {
  enum Argument : uint8_t {
    /// What comes before `node`, the node, and what comes after it (Lemmas 2 to 4).
    ThroughNode,
    /// The work on `lane`, or on `resource` if the lane is kNone, with a head of at least `head` and a tail of at least
    /// `tail` (Lemmas 5 and 14). It is all work if both are 0 (Lemmas 1 and 13).
    OneMachine,
    /// One of `starts` is the last one (Lemma 29).
    Deferral,
    /// At `node` the work of `lane` does not fit into the limit (Lemmas 10 and 11).
    MemoryLimit,
  };
  Argument argument = OneMachine;
  /// ns.
  Ns makespan = 0;
  LaneId lane = kComputeLane;
  NodeId node = kNone;
  Resource resource = Resource::ComputeUnits;
  Ns head = 0, tail = 0;
  std::vector<NodeId> starts;
  /// The levels that heads and tails rest on.
  std::vector<LevelReason> levels;
  /// With buckets, by node: what a start or a cast that may go into a bucket is charged, and a start for its unpack, ns
  /// (Lemmas 7 and 7a), or kNone.
  std::vector<Ns> laneCharges, castCharges, unpackCharges;
  /// With buckets, by merge key.
  std::vector<KeySamples> samples;
};

/// The name of an argument in certificates ("one-machine").
llvm::StringRef stringify(BoundWitness::Argument argument);
/// The name of a time in certificates ("lane-tail").
llvm::StringRef stringify(LevelReason::Time time);

/// The strongest argument of this library for a bound on the makespan of every order within BoundOptions::limit; with
/// `bucketing`, of every bucketing too. Its makespan is the `withLimit` of lowerBound() or jointLowerBound().
/// Complexity as theirs.
BoundWitness proveBound(const Problem &problem, const BoundOptions &options, bool bucketing);

/// The largest sum of work on a lane or a resource (Lemmas 1 and 13), with `bucketing` for every bucketing (Lemmas 8,
/// 15 and 27). It needs no dependences, but casts that a pack may absorb have to precede their starts in the problem.
/// Complexity as proveBound().
BoundWitness proveLoad(const Problem &problem, bool bucketing);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_BOUNDWITNESS_H
