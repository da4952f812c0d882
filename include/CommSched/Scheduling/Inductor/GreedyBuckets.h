//===- GreedyBuckets.h - Buckets up to a size, in program order -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The classic rule of bucketing: the collectives of one merge key fill one bucket after another, in program order, and
// a collective that depends on a member does not join. The pass comm-bucket uses it. Source:
// greedy_bucket_collective_by_mb of PyTorch Inductor, which treats one key at a time and can build buckets that depend
// on each other.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_GREEDYBUCKETS_H
#define COMMSCHED_SCHEDULING_INDUCTOR_GREEDYBUCKETS_H

#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include <map>

namespace commsched {

/// Limits and form of the buckets.
struct GreedyBucketOptions {
  /// Indexed by the number of a bucket within its key: the largest sum of the members' `bytes`. Buckets of one member
  /// count, and the last limit holds for all further buckets. A negative limit, or no limit, means unlimited.
  std::vector<Bytes> caps;
  /// Limits for keys of one kind. They replace `caps` unless they are empty.
  std::map<CollectiveKind, std::vector<Bytes>> capsOfKind;
  BucketForm form = BucketForm::Packed;
};

/// Merges the mergeable ones of `candidates` (starts, ascending). Buckets of one member are left out.
///
/// One topological traversal serves all keys. Ready nodes are emitted at once, except candidates, which wait in the
/// pool of their key. When only pooled candidates are ready, one pool is flushed as a bucket: a complete one if there
/// is any, otherwise the pool of the candidate that heads the longest chain. The members of a bucket were ready
/// together, so they are independent, and the order of emission is a topological order of the merged graph, so
/// expandBuckets() succeeds. O(N + E + S log S) for S candidates, whatever the number of keys.
std::vector<Bucket> greedyBuckets(const Problem &problem, llvm::ArrayRef<NodeId> candidates,
                                  const GreedyBucketOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_GREEDYBUCKETS_H
