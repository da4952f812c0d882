//===- DeferralBound.h - The cost of a long collective late in the block ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A long collective at the end of a block is exposed, unless computes that it does not depend on are deferred behind
// its start. This bound says how much that can hide at most (Bounds.md, Lemmas 9, 20 and 29). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_DEFERRALBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_DEFERRALBOUND_H

#include "BatchBound.h"

namespace commsched {

/// A lower bound on the makespan, the lane that it is about, and the starts of which one is the last.
struct DeferralBound {
  Ns makespan = 0;
  LaneId lane = kNone;
  std::vector<NodeId> starts;
};

/// The bound of Lemma 29 for the longest starts, one by one, and for sets of them, one of which is the last.
struct DeferralBounds {
  /// With the costs given; with those of buckets it holds for every bucketing.
  DeferralBound plain;
  /// With the latencies of the buckets that are put off, too (Lemma 20); at least `plain`.
  DeferralBound withLatencies;
};

/// `shares` is null without bucketing. Latencies are left out where they cannot give more than `floor`, a bound that is
/// known, ns. O(k^2 (N + E)) for k = 8 starts, and the evaluations of KeyBatches for each key.
DeferralBounds deferralBounds(const Problem &problem, const BoundCosts &costs, const BucketShares *shares, Ns floor);

/// Indexed by node: whether it comes before the last one of `starts`, whichever that is. O(N + E).
std::vector<char> ancestorsOf(const Problem &problem, llvm::ArrayRef<NodeId> starts);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_DEFERRALBOUND_H
