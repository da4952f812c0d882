//===- MemoryLimitedBound.h - A bound on the makespan under a peak limit ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// If memory is scarce at a node, only a few gathers can have begun before it, and the rest of their lane's work comes
// after it (Bounds.md, Lemmas 10 and 11). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_MEMORYLIMITEDBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_MEMORYLIMITEDBOUND_H

#include "BatchBound.h"

namespace commsched {

/// A lower bound on the makespan, the lane that it is about, and the node where memory is scarce.
struct MemoryLimitedBound {
  Ns makespan = 0;
  LaneId lane = kNone;
  NodeId node = kNone;
};

/// The bound of Lemma 11: a fractional knapsack of starts at each of the nodes at which most `mandatory` bytes (indexed
/// by node) must be live. `limit` is in bytes. With `bucketing`, `costs` are those of buckets, and the bound holds for
/// every bucketing. O(N + touches + S log S) for each of at most 256 nodes, S starts.
MemoryLimitedBound memoryLimitedBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                                      llvm::ArrayRef<Bytes> mandatory, Bytes limit, bool bucketing);

/// The bound of Lemma 17 at the node and the lane of `limited`, which is memoryLimitedBound()'s with bucketing; at
/// least its makespan, and at least `floor`, a bound that is known, ns, if it may be above it. O(N
/// + touches + S log S) for each line that is tried.
MemoryLimitedBound memoryLimitedBatches(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                                        const BucketShares &shares, Bytes limit, const MemoryLimitedBound &limited,
                                        Ns floor);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_MEMORYLIMITEDBOUND_H
