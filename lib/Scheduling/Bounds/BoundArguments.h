//===- BoundArguments.h - The arguments for a lower bound, one by one --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A lower bound is the largest of what several arguments prove, and each of them is an entry of one list: a name, the
// lemmas of Bounds.md that it is made of, whether certificates carry it, and a function. A new argument is a
// function, an entry, and a test (AddABound.md). Internal to the bounds.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_BOUNDARGUMENTS_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_BOUNDARGUMENTS_H

#include "Bounds/Arguments/BatchBound.h"
#include "Bounds/Arguments/DeferralBound.h"
#include "Bounds/Arguments/HeadsAndTails.h"
#include "Bounds/Arguments/MemoryLimitedBound.h"
#include "Bounds/Arguments/OneMachine.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"

namespace commsched {

/// What the arguments share while a bound is computed, and the bound so far.
class BoundState {
public:
  /// `shares` is null without bucketing. `witness`, unless it is null, becomes the strongest argument of those that
  /// certificates carry. Keeps references to all arguments. O(N^2 / 64) words, see headsAndTails().
  BoundState(const Problem &problem, const BoundCosts &costs, const BoundOptions &options, const BucketShares *shares,
             BoundWitness *witness);

  bool hasBuckets() const { return shares != nullptr; }
  /// Whether the peak limit of the options says anything. On several streams a computation may run between a wait and
  /// its reader, and buffers live until all streams know of their last reader: Lemmas 10 and 11 know neither.
  bool isLimited() const;

  /// Takes a bound, ns, if it is the largest one so far.
  void raise(Ns makespan, BoundArgument argument, LaneId lane);
  /// Takes a bound for orders within the limit, ns, if it is the largest one so far. `lane` has to wait for memory.
  void raiseWithLimit(Ns makespan, LaneId lane);
  /// Makes an argument the witness if its bound, ns, is the largest of those that certificates carry. Returns whether
  /// it did; if so, there is a witness.
  bool prove(Ns makespan, BoundWitness::Argument argument, LaneId lane, NodeId node = kNone);
  /// The same for the critical jobs of a machine.
  bool proveMachine(const OneMachineBound &machine, LaneId lane);

  const Problem &problem;
  const BoundCosts &costs;
  const BoundOptions &options;
  const BucketShares *shares;
  BoundWitness *witness;
  HeadsAndTails times;
  /// By lane: its work, sorted by heads, and the sum of it, ns.
  std::vector<std::vector<Job>> jobs;
  std::vector<Ns> load;
  LowerBound bound;
  /// Whether certificates carry the argument that is applied.
  bool isCertified = true;
  /// What two arguments share: the bounds of Lemmas 9 and 20, and the node at which memory is scarcest.
  DeferralBounds deferral;
  MemoryLimitedBound limited;

private:
  void collectJobs();
};

/// What every order has to do, as the bounds count it: the costs as they are, or with `bucketing` the charges of
/// Lemma 8. Complexity as bucketShares().
BoundCosts leastCosts(const Problem &problem, bool bucketing);

/// An argument for a lower bound.
struct BoundArgumentEntry {
  llvm::StringLiteral name;
  /// The lemmas of Bounds.md.
  llvm::StringLiteral lemmas;
  /// Whether the independent checker knows it, so that certificates may rest on it. If not, LowerBound says so.
  bool isCertified;
  void (*apply)(BoundState &state);
};

/// All arguments, in the order in which they are applied: of equal bounds the first argument is named, so simple ones
/// come first, and those that skip their work if it cannot raise the bound come last.
llvm::ArrayRef<BoundArgumentEntry> boundArguments();

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_BOUNDARGUMENTS_H
