//===- Bucketing.h - Carry out buckets and orders in IR ----------------------------*- C++ -*-===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// What a solver decided on a Problem, done to the block that the Problem was loaded from. The rules by which a bucket
// becomes operations are those of Scheduling/Bucketing.h: the rewritten block loads as the expanded Problem, to the
// nanosecond and the byte.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_BUCKETING_H
#define COMMSCHED_TRANSFORMS_BUCKETING_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Bucketing.h"

namespace commsched {

/// Puts the operations of a block into an order, the terminator last. `ops` are all of them but the terminator.
/// O(operations): one pass of moves, no question in between.
void applyOrder(mlir::Block &block, llvm::ArrayRef<mlir::Operation *> ops);

/// Carries out `buckets`, of which `expanded` is the expansion, and puts the block into `order` (of the expanded
/// problem's nodes; legal). Starts, waits and fused casts of the members are erased; `loaded` is stale afterwards.
void applySchedule(const LoadedBlock &loaded, llvm::ArrayRef<Bucket> buckets, const ExpandedProblem &expanded,
                   llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_BUCKETING_H
