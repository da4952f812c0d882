//===- GreedyBuckets.h - Buckets by bytes, in program order -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The classic rule: collectives of one merge key fill one bucket after the other, in program order, and none that
// depends on a member joins. What the pass comm-bucket does where nobody has decided otherwise.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_GREEDYBUCKETS_H
#define COMMSCHED_SCHEDULING_INDUCTOR_GREEDYBUCKETS_H

#include "CommSched/Scheduling/Model/Bucketing.h"
#include <map>

namespace commsched {

struct GreedyBucketOptions {
  /// Of each key, the largest total of the members' `bytes` by number of the bucket (those of one member count); the
  /// last holds for all that follow. No limit where negative, or where there is none.
  std::vector<Bytes> caps;
  /// The same for keys of one kind, in place of `caps` unless empty.
  std::map<CollectiveKind, std::vector<Bytes>> capsOfKind;
  BucketForm form = BucketForm::Packed;
};

/// Merges those of `candidates` (starts, ascending) that are mergeable. The answer is legal: expandBuckets() carries it
/// out. Buckets of one member are left out. A candidate waits for company until nothing but candidates can go on; those
/// that the longest chains of candidates depend on go first.
/// Source: greedy_bucket_collective_by_mb of PyTorch Inductor, which looks at one key at a time and can build buckets
/// that depend on each other. O(N + E + S log S) for S candidates, whatever the number of keys.
std::vector<Bucket> greedyBuckets(const Problem &problem, llvm::ArrayRef<NodeId> candidates,
                                  const GreedyBucketOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_GREEDYBUCKETS_H
