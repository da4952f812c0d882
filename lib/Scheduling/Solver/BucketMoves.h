//===- BucketMoves.h - Which changes of buckets a local search tries --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The neighbourhood of an order over its buckets: drop a member, dissolve or split a bucket, change its form, add a
// start to a bucket or pair two starts, merge two buckets, and transfer a member. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_BUCKETMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_BUCKETMOVES_H

#include "BucketedOrder.h"
#include "CommSched/Support/SplitMix64.h"

namespace commsched {

/// Draws changes of the buckets of one order.
class BucketMoves {
public:
  BucketMoves(const Problem &problem, const BucketedOrder &order, SplitMix64 &random)
      : problem(problem), order(order), random(random) {}

  /// Draws a change that concerns `start`: the leader of a bucket, or a start that is alone and may be merged. Returns
  /// false if there is none, such as if no other start of its key is near. `work` is increased by the number of
  /// positions that were looked at.
  bool choose(NodeId start, BucketChange &change, int64_t &work);

private:
  NodeId neighbourOf(NodeId start, int64_t &work);
  bool fits(llvm::ArrayRef<NodeId> members) const;
  BucketForm anyForm() { return random.below(3) == 0 ? BucketForm::Coalesced : BucketForm::Packed; }
  void form(BucketChange &change, int32_t base, llvm::ArrayRef<NodeId> members, BucketForm form);
  void dropMembers(int32_t index, BucketChange &change);
  void split(int32_t index, BucketChange &change);
  bool join(NodeId start, NodeId other, BucketChange &change);
  bool transfer(int32_t from, NodeId other, BucketChange &change);

  const Problem &problem;
  const BucketedOrder &order;
  SplitMix64 &random;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_BUCKETMOVES_H
