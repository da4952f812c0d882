//===- RewriteCollectives.h - Merge and split collectives of a module of XLA ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA's combiners represent a merged collective as one instruction over several operands whose result is a tuple; NCCL
// carries it out as one group of calls over the operands' own buffers. These functions take such collectives apart, and
// put them together, in modules that are scheduled already.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_WRITE_REWRITECOLLECTIVES_H
#define COMMSCHED_LIB_FRONTENDS_HLO_WRITE_REWRITECOLLECTIVES_H

#include "RewriteEditor.h"

namespace commsched::hlo {

/// An asynchronous all-gather, all-reduce or reduce-scatter of which all parts are known: nothing but its done uses the
/// start, and no control dependence names them. Members are indices of instructions.
struct CollectivePair {
  int32_t start = 0, done = 0;
  /// The computation that an async-start wraps, or -1.
  int32_t body = -1;
  /// With several operands, indexed by operand: the only get-tuple-element of it. Empty with one operand.
  llvm::SmallVector<int32_t, 4> elements;
};

/// Indexed by computation: the pairs that can be rewritten, in the order of their starts. O(instructions + operands).
std::vector<std::vector<CollectivePair>> findPairs(const HloModule &module);

/// The merge key of a collective; collectives may be merged if their keys are equal. A key has the kind, groups,
/// element type, dimension, reduction, and all other fields except names, shapes, metadata and the channel's number.
/// Empty if the collective has to stay alone, because XLA has chosen a kernel for it instead of
/// NCCL's. `pair` has one operand. Fails if the groups are malformed.
llvm::Expected<std::string> mergeKeyOf(const HloModule &module, int32_t computation, const CollectivePair &pair);

/// The module with each of its merged collectives as one collective per operand, all in the places of their start and
/// their done, and with every synchronous collective asynchronous if `asynchronous` is set. `count` is how many
/// collectives changed; the bytes are those given if it is 0. Merged ones stay merged if `splits` is not set. O(size).
std::string splitCollectives(const HloModule &module, bool splits, bool asynchronous, int32_t &count);

/// An instruction in a new order, or the start or the done of a bucket.
struct PlacedInstruction {
  /// Index of the instruction; -1 for those of a bucket.
  int32_t instruction = -1;
  int32_t bucket = -1;
  bool isDone = false;
};

/// The new order of one computation, with buckets. Instructions that only name what is there may be left out.
struct MergedOrder {
  int32_t computation = 0;
  /// Members of one key each.
  std::vector<std::vector<CollectivePair>> buckets;
  /// Each bucket's start and done have to be in it, and no start and no done of a member.
  std::vector<PlacedInstruction> order;
};

/// The module with other orders and with buckets as XLA's combiners represent them. O(size).
std::string mergeCollectives(const HloModule &module, llvm::ArrayRef<MergedOrder> orders);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_WRITE_REWRITECOLLECTIVES_H
