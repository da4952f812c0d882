//===- SplitBound.h - A lower bound for every split of a problem ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A split replaces nodes by parts, of which each depends on the parts with the same number only. The bound holds for
// every choice of nodes that are split, every number of parts up to a limit, every order and every bucketing. It is the
// bound for any bucketing of another problem, in which the first part, the last part and what is between them are nodes
// of their own (Bounds.md, Lemma 19).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_SPLITBOUND_H
#define COMMSCHED_SCHEDULING_BOUNDS_SPLITBOUND_H

#include "CommSched/Scheduling/Bounds/Bounds.h"

namespace commsched {

/// What the parts of one node cost.
struct PartCosts {
  /// False for a node that no split divides. A wait is divided if its start is.
  bool splits = false;
  /// The least sum of the costs of all parts, over the numbers of parts, 1 included, and the ways to split, ns.
  Ns total = 0;
  /// The least cost of one part, ns.
  Ns part = 0;
  /// Of a start: the least bytes of one part (Node::bytes).
  Bytes bytes = 0;
  /// Predecessors of which every part of this node, or the whole node, needs all parts.
  llvm::SmallVector<NodeId, 0> wholePreds = {};
};

/// The problem whose bound holds for every split of `problem`. `costs` is indexed by node. `problem` has no order of
/// collectives beyond dependences, and no streams. O((N + E) + keys x log(bytes)).
Problem relaxSplits(const Problem &problem, llvm::ArrayRef<PartCosts> costs);

/// No split of `problem` is faster, whatever its order and its buckets. Ignores memory and contention,
/// which only lengthen.
LowerBound splitLowerBound(const Problem &problem, llvm::ArrayRef<PartCosts> costs);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_SPLITBOUND_H
