//===- BucketShape.h - Nodes and buffers that a bucket replaces -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One description of a bucket: the nodes that vanish, those that appear, what they cost, and which buffers they touch.
// The rules are those of Bucketing.h. Whatever carries out a bucket reads this description:
//
//   the expansion of a problem (Bucketing.cpp)            adds the nodes and the buffers
//   a decode (PartialSchedule, MemoryAdmission)     plays them, and counts their bytes, without expanding
//   moves of buckets in an order (Solver/BucketedOrder)   gives its slots their work
//   the rewrite (Transforms/Rewrites/BucketWriter)        makes their operations
//
// The verifier of answers (Check/AnswerVerifier.cpp) does not: it has the rules of its own, so that a fault here is
// found.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BUCKETS_BUCKETSHAPE_H
#define COMMSCHED_SCHEDULING_BUCKETS_BUCKETSHAPE_H

#include "CommSched/Scheduling/Buckets/Bucketing.h"

namespace commsched {

/// What the copies of a packed bucket read and write, in bytes. Grows member by member, so that a bucket can be priced
/// while it is being filled.
struct BucketCopies {
  /// What the pack reads and writes.
  Bytes read = 0, written = 0;
  /// Outputs of all-gathers that are so small that one unpack serves them all, and whether there are any.
  Bytes shared = 0;
  bool shares = false;

  /// Adds a member, whose pack does the work of `cast` if that is not kNone.
  void add(const Problem &problem, NodeId member, NodeId cast) {
    const MergeMember &info = problem.members[member];
    read += cast == kNone ? info.inputBytes : info.castInputBytes;
    written += info.inputBytes;
    if (sharesUnpack(problem, member)) {
      shared += info.outputBytes;
      shares = true;
    }
  }
  /// Whether the unpack of a member serves all members with small outputs. If not, it has one of its own, or none.
  static bool sharesUnpack(const Problem &problem, NodeId member) {
    return problem.nodes[member].collective == CollectiveKind::AllGather &&
           problem.members[member].outputBytes <= kSmallUnpackBytes;
  }
  Ns packCost(const Problem &problem) const { return problem.copyCost(read, written); }
  /// 0 if no member shares an unpack.
  Ns sharedUnpackCost(const Problem &problem) const { return shares ? problem.copyCost(shared, shared) : 0; }
};

/// A bucket in terms of the given problem. A packed bucket has the nodes pack, start and wait, and then either unpacks
/// (all-gathers) or a view of cost 0 (reductions). A coalesced bucket has a start and a wait. All members' starts and
/// waits vanish.
struct BucketShape {
  /// A kernel that copies the gathered result of some members to their outputs.
  struct Unpack {
    /// Indices into Bucket::members.
    llvm::SmallVector<int32_t, 1> members;
    Ns cost = 0;
  };

  bool packs = false;
  /// Packed all-gathers: there are unpacks, which define the members' outputs.
  bool unpacksOutputs = false;
  /// Packed reductions: the members' outputs vanish; what touched them touches the merged buffer, which is live out if
  /// one of them is.
  bool mergesOutputs = false;
  /// Packed reduce-scatters: the start defines the merged buffer. If not, it is the packed buffer.
  bool definesMerged = false;
  /// Packed: the buffer that the pack defines, and that start, wait and unpacks touch, in bytes.
  Bytes packedBytes = 0;
  /// The merged buffer that the start defines, in bytes.
  Bytes mergedBytes = 0;
  Ns packCost = 0;
  /// The merged collective, without merge key and Node::demand, and what it needs. Packs and unpacks need
  /// Problem::copyDemand.
  Node start;
  Demand demand;
  /// Casts that vanish because the pack does their work, in the order of their members, and their results.
  llvm::SmallVector<NodeId, 8> casts;
  llvm::SmallVector<BufferId, 8> castResults;
  /// Packed: the buffers of the given problem that the pack reads. Coalesced: those that start and wait touch.
  llvm::SmallVector<BufferId, 8> touches;
  llvm::SmallVector<Unpack, 8> unpacks;
};

/// `bucket` has members of one key that may be merged. O(members + touches of their casts).
BucketShape describeBucket(const Problem &problem, const Bucket &bucket);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BUCKETS_BUCKETSHAPE_H
