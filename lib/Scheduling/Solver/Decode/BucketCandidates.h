//===- BucketCandidates.h - Candidates for merging --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Pure functions: what a merge costs, and which ready starts are worth merging with the most urgent one. Nothing here
// changes the state of a decode. Members are ready, so none depends on another, and no bucket can close a cycle.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_BUCKETCANDIDATES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_BUCKETCANDIDATES_H

#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "LaneQueues.h"

namespace commsched {

/// The work of a packed bucket's copies on the compute lane. Grows member by member.
struct CopyWork {
  BucketCopies copies;
  /// Time of the members' own unpacks, and of the casts that the pack makes superfluous, ns.
  Ns unpacks = 0, casts = 0;
  int32_t members = 0;
};

/// The work with one more member.
CopyWork withMember(CopyWork work, const ScheduleFacts &facts, NodeId start);

/// The cost of merging some starts.
struct MergeCost {
  BucketForm form = BucketForm::Packed;
  /// Time on the communication lane, and additional time on the compute lane (may be negative), ns.
  Ns lane = 0, copies = 0;
};

/// The cost of a bucket in the form that costs less. `bytes` is the sum over the members.
MergeCost mergeCost(const ScheduleFacts &facts, const MergeKey &key, Bytes bytes, const CopyWork &work);

/// Starts that may be issued together. A single start is a candidate with one member.
struct BucketCandidate {
  std::vector<NodeId> members;
  Bytes bytes = 0;
  /// Time on the communication lane, ns.
  Ns cost = 0;
  /// The first member's due time (LaneQueues::dueOf), ns.
  Ns due = 0;
  /// Whether only the block's end needs the members.
  bool terminal = false;
};

/// What the choice of members depends on.
struct MergeContext {
  const ScheduleFacts &facts;
  const Reference &reference;
  const Policy &policy;
  const LaneQueues &queues;
  /// Indexed by leader: edges into its launch unit whose source has not been placed.
  llvm::ArrayRef<int32_t> pendingEdges;
};

/// The candidate that has `start` alone.
BucketCandidate singleCandidate(const MergeContext &context, NodeId start);

/// Adds to a single start those of its queue that are worth merging with it, by ascending due time. The bucket would
/// begin at `begin` and is wanted at `deadline`. Returns how many starts were looked at: at most 400.
int32_t addMembers(const MergeContext &context, const LaneQueue &queue, Ns begin, Ns deadline,
                   BucketCandidate &candidate);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_BUCKETCANDIDATES_H
