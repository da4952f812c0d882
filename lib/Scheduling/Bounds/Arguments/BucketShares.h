//===- BucketShares.h - Charges that no bucket undercuts --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A collective that may be merged is charged its share of the cheapest bucket that it can be in, so that the bounds for
// single collectives hold for every bucketing (Bounds.md, Lemmas 7 and 8). Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_BUCKETSHARES_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_BUCKETSHARES_H

#include "CommSched/Scheduling/Bounds/BoundWitness.h"

namespace commsched {

/// The charges.
struct BucketShares {
  /// Indexed by node; kNone for nodes that cannot be merged. For starts: the least that the start adds to its lane's
  /// load, alone or in any bucket, ns.
  std::vector<Ns> lane;
  /// Indexed by node. For casts that a pack can absorb: the least that the cast adds to the pack's cost, ns.
  std::vector<Ns> cast;
  /// For starts of all-gathers whose cast a pack can absorb: the least that the member adds to the cost of the unpacks
  /// of a bucket that absorbs the cast, ns.
  std::vector<Ns> unpack;
  /// Indexed by merge key: what the charges rest on.
  std::vector<KeySamples> samples;
};

/// Computes the charges of Lemma 7. Cost functions are only known to be monotone, so each is evaluated on cells of
/// sizes that are halved until the charge is close enough. O(N log N), and kMaxShareSamples evaluations for each merge
/// key.
BucketShares bucketShares(const Problem &problem);

/// The least that each of `sizes` adds to the cost of a collective whose bytes are from its own size to `largest`
/// (Lemma 7). `cost` is monotone. O(sizes log sizes) and kMaxShareSamples evaluations.
std::vector<Ns> leastCharges(const std::function<Ns(Bytes)> &cost, llvm::ArrayRef<Bytes> sizes, Bytes largest);

/// A charge is exact to within 1/kShareTolerance, unless kMaxShareSamples evaluations of its cost function were not
/// enough for that.
inline constexpr int64_t kShareTolerance = 1024;
/// Limit on the evaluations of one cost function: a few milliseconds.
inline constexpr int32_t kMaxShareSamples = 8192;

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_BUCKETSHARES_H
