//===- BucketShares.h - What a collective costs its lane in any bucket ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETSHARES_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETSHARES_H

#include "CommSched/Scheduling/Model/Problem.h"

namespace commsched {

/// By node; kNone where nothing can be merged.
struct BucketShares {
  /// Of a start: what it adds at least to its lane's load, alone or in any bucket, ns.
  std::vector<Ns> lane;
  /// Of a cast that a pack can do itself: what it adds at least to the pack's cost, ns.
  std::vector<Ns> cast;
};

/// Any bucket of total size S that a collective of b bytes can be in has b <= S <= min(cap, bytes of its key), and
/// costs f(S) = sum over its members of b_i f(S)/S. So b min f(S)/S is a share that no bucket undercuts, and the shares
/// of a bucket's members never exceed its cost. f is only known to be monotone: on a cell [x, y] of sizes f(S)/S >=
/// f(x)/y, and cells are halved until that is within 1/kShareTolerance of a value that is taken, or kMaxShareSamples
/// are spent. A pack that writes W bytes reads at least r W, r the smallest ratio of a member's read to written bytes,
/// so that the copy cost c(r W, W) gives shares by written bytes in the same way.
BucketShares bucketShares(const Problem &problem);

/// A share is less than it could be by one part in so many, and a cost function is asked no more than so often.
inline constexpr int64_t kShareTolerance = 1024;
inline constexpr int32_t kMaxShareSamples = 8192;

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETSHARES_H
