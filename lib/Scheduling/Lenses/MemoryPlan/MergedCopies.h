//===- MergedCopies.h - The problem in which every value is made once -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// However often a plan makes its values, the first copy of each is what all readers need at least. So the problem in
// which all copies are one is a relaxation of all plans (MoreBounds.md, Lemma 25).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_MERGEDCOPIES_H
#define COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_MERGEDCOPIES_H

#include "CommSched/Scheduling/Lenses/Rematerialization.h"

namespace commsched {

/// The problem that is left if all copies of a value are the first one that is made, whichever that is: all plans are
/// at least as long (Lemma 25). Its nodes are those of keepValues() with everything kept. They have the edges that all
/// copies have, and the least of their costs.
struct MergedCopies {
  ReducedProblem all;
  /// Indexed by node and by buffer of the whole problem: what stands for it in `all`.
  std::vector<NodeId> nodeOf;
  std::vector<BufferId> bufferOf;
  /// Indexed by node of `all`: whether some plans carry it out more than once.
  llvm::BitVector hasCopies;
  /// Whether a bucket of some plan may hold a collective that no bucket of this problem may hold. Then bounds with
  /// buckets do not carry over.
  bool losesBuckets = false;
};

/// `problem` and `repetitions` are valid. O(nodes + edges + touches).
MergedCopies mergeCopies(const Problem &problem, llvm::ArrayRef<Repetition> repetitions);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_MERGEDCOPIES_H
