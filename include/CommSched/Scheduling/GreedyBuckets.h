//===- GreedyBuckets.h - Buckets by bytes, in program order ------------------------*- C++ -*-===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// The classic rule: collectives of one merge key join the open bucket, in program order, until it is full or one
// depends on a member of it. What the pass comm-bucket does where nobody has decided otherwise.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_GREEDYBUCKETS_H
#define COMMSCHED_SCHEDULING_GREEDYBUCKETS_H

#include "CommSched/Scheduling/Bucketing.h"

namespace commsched {

struct GreedyBucketOptions {
  /// Of each key, the largest total of the members' `bytes` by number of the bucket; the last holds for all that
  /// follow. No limit where negative, or where there is none.
  std::vector<Bytes> caps;
  BucketForm form = BucketForm::Packed;
};

/// Merges those of `candidates` (starts, ascending) that are mergeable. The answer is legal: expandBuckets() carries it
/// out. Buckets of one member are left out. A start that depends on a member of its key's open bucket closes it.
/// Source: greedy_bucket_collective_by_mb of PyTorch Inductor. O(keys x (N + E)).
std::vector<Bucket> greedyBuckets(const Problem &problem, llvm::ArrayRef<NodeId> candidates,
                                  const GreedyBucketOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_GREEDYBUCKETS_H
