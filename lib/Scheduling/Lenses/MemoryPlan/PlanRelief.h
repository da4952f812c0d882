//===- PlanRelief.h - Make values again until a plan fits -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Prices treat equal values alike, so a chain of equal layers is kept or made again as a whole. If only a part of it
// has to go, one value after the other is made again: those that relieve the peak at the least time.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANRELIEF_H
#define COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANRELIEF_H

#include "CommSched/Scheduling/Lenses/Rematerialization.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched {

/// Nodes that one value may take to make it again, those of what it is made from included.
inline constexpr int32_t kLongestClosure = 64;

/// The values that could be made again to relieve the peak of `reduced`, in its order: each is live there and read
/// behind it. With each of them comes what its second making reads and what is no longer there. Those that take the
/// least time for each byte of the peak come first; at most `most`. `reduced` is lateProblem() of `problem` with
/// `kept`. O(nodes + touches + repetitions * kLongestClosure).
std::vector<llvm::SmallVector<int32_t, 8>> findReliefs(const Problem &problem, llvm::ArrayRef<Repetition> repetitions,
                                                       const ReducedProblem &reduced, const llvm::BitVector &kept,
                                                       size_t most);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANRELIEF_H
