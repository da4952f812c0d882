//===- BucketMoves.h - Moves of members between buckets ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The neighbourhood of an order over its buckets: drop a member, dissolve or split a bucket, change its form, add a
// start to a bucket or pair two starts, merge two buckets, transfer a member, and put a start off or forward. A start
// often takes along what only it needs, such as the product that computes a gradient: apart, each of these moves would
// lengthen the order. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_BUCKETMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_BUCKETMOVES_H

#include "BucketedOrder.h"
#include "CommSched/Support/SplitMix64.h"
#include "Solver/Decode/ScheduleFacts.h"

namespace commsched {

/// Draws changes of the buckets of one order.
class BucketMoves {
public:
  /// O(N).
  BucketMoves(const ScheduleFacts &facts, const BucketedOrder &order, SplitMix64 &random);

  /// Draws a change that concerns `start`: the leader of a bucket, or a start that is alone. Returns false if there is
  /// none, such as if no other start of its lane is near. `work` is increased by the number of
  /// positions that were looked at.
  bool choose(NodeId start, BucketChange &change, int64_t &work);

  /// The same, of the changes that join two buckets, or starts that are alone.
  bool chooseJoin(NodeId start, BucketChange &change, int64_t &work);

  /// Draws a start with producers that are placed before `last`, a start that is alone or leads a bucket, and puts it
  /// off behind `last` with all that only it needs and all that needs it: its producers can then run beside the
  /// collective of `last`. Returns false if there is none.
  bool choosePutOff(NodeId last, BucketChange &change, int64_t &work);

private:
  NodeId neighbourOf(NodeId start, bool sameKey, int64_t &work);
  bool fits(llvm::ArrayRef<NodeId> members) const;
  BucketForm anyForm() {
    return !problem.copyCost || random.below(3) == 0 ? BucketForm::Coalesced : BucketForm::Packed;
  }
  void form(BucketChange &change, int32_t base, llvm::ArrayRef<NodeId> members, BucketForm form);
  void dropMembers(int32_t index, BucketChange &change);
  void split(int32_t index, BucketChange &change);
  bool join(NodeId start, NodeId other, BucketChange &change);
  bool transfer(int32_t from, NodeId other, BucketChange &change);
  void carry(NodeId start, BucketChange &change);
  void carryBefore(NodeId destination, BucketChange &change);
  bool moveAlone(NodeId start, NodeId other, BucketChange &change);
  bool dropTo(int32_t index, NodeId other, BucketChange &change);
  void changeForm(int32_t index, BucketChange &change);
  std::vector<NodeId> takeSome(NodeId start, BucketChange &change, int64_t &work);
  bool carryFollowers(NodeId start, int32_t before, BucketChange &change);

  const Problem &problem;
  /// Indexed by start: the computes that only it needs (ScheduleFacts::exclusiveStart), ascending.
  IndexLists producers;
  /// Indexed by node: the start that alone needs it, or kNone; and the starts that have producers.
  llvm::ArrayRef<NodeId> startOfProducer;
  std::vector<NodeId> withProducers;
  const BucketedOrder &order;
  SplitMix64 &random;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_BUCKETMOVES_H
