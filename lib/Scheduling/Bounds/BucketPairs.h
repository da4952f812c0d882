//===- BucketPairs.h - Two members in one bucket, or in two -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A node that needs two collectives waits for both of them one after the other, or for one bucket and for all that is
// computed behind it (Bounds.md, Lemma 23). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETPAIRS_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETPAIRS_H

#include "BucketShares.h"
#include "HeadsAndTails.h"

namespace commsched {

/// Raises the heads of `times`, and what follows from them, for the charges of Lemma 8, `costs`. O(N + E) and two
/// evaluations of a cost function for each pair that is looked at, for each of at most kPairedKeys merge keys.
void raiseByPairs(const Problem &problem, const BoundCosts &costs, const BucketShares &shares, HeadsAndTails &times);

/// Limit on the merge keys whose pairs are looked at, those with the most bytes: each needs a sweep over all nodes.
inline constexpr size_t kPairedKeys = 8;

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETPAIRS_H
