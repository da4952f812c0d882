//===- Repetitions.h - Operations that make values again --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Finds what a block makes twice, and clones what it could make twice in front of the late readers. Then every value
// that may be kept or made again is made twice, and a choice removes the second making.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_REPETITIONS_H
#define COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_REPETITIONS_H

#include "CommSched/Scheduling/Lenses/Rematerialization.h"
#include "mlir/IR/Block.h"
#include "llvm/ADT/BitVector.h"

namespace commsched {

/// The operations that make a value, and those that make it again, in the order of the block.
struct RepeatedOps {
  llvm::SmallVector<mlir::Operation *, 4> first, again;
  /// Whether the program makes it again by itself; otherwise `again` are clones.
  bool isGiven = false;
};

/// What decides which values are worth a clone.
struct CloneLimits {
  /// Indexed by node: its time on the compute lane, ns.
  std::vector<Ns> computeTimes;
  /// The least computation, ns, between two readers of a value that may be made again in between.
  Ns leastGap = 1;
  /// The least size of such a value, bytes. Smaller ones are always kept.
  Bytes leastBytes = 1;
};

/// The pairs that the block already has: equal operations that read equal values, with results that are not returned.
/// O(operations + operands).
std::vector<RepeatedOps> findRepetitions(mlir::Block &block);

/// Clones what makes a value in front of those of its readers that are behind the widest gap between two readers, once
/// for each value; what a clone reads is cloned as well, if it is far away, too. The clones read clones, and the late
/// readers read them. O(N log N) for N operations and operands.
std::vector<RepeatedOps> cloneForLateReaders(mlir::Block &block, const CloneLimits &limits);

/// Erases the `again` of `repetitions`; their readers get the results of `first`. The repetitions may be in any order,
/// and `first` may be the `again` of another one.
void eraseRepetitions(llvm::ArrayRef<const RepeatedOps *> repetitions);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_REPETITIONS_H
