//===- BucketShape.h - What vanishes and what appears in a bucket -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One description of a bucket: the nodes that vanish, those that appear, what they cost, and which buffers they touch.
// The expansion of a problem, and the moves of buckets within an order (Solver/BucketedOrder.h), carry it out. The
// rules are those of Bucketing.h.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_MODEL_BUCKETSHAPE_H
#define COMMSCHED_LIB_SCHEDULING_MODEL_BUCKETSHAPE_H

#include "CommSched/Scheduling/Model/Bucketing.h"

namespace commsched {

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
  /// Casts that vanish because the pack does their work, and their results.
  llvm::SmallVector<NodeId, 8> casts;
  llvm::SmallVector<BufferId, 8> castResults;
  /// Packed: the buffers of the given problem that the pack reads. Coalesced: those that start and wait touch.
  llvm::SmallVector<BufferId, 8> touches;
  llvm::SmallVector<Unpack, 8> unpacks;
};

/// `bucket` has members of one key that may be merged. O(members + touches of their casts).
BucketShape describeBucket(const Problem &problem, const Bucket &bucket);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_MODEL_BUCKETSHAPE_H
