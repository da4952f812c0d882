//===- PeakPreserving.h - Move collectives apart from their waits within a peak ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two passes, one the mirror image of the other. Starts, from left to right, move left past their predecessors and take
// along the nodes that they depend on. Waits, from right to left, move right and take along the nodes that depend on
// them. A move is not made if it would exceed the memory limit, or if it costs more exposed time than it saves. Source:
// PyTorch Inductor's reorder_communication_preserving_peak_memory and sink_waits_iterative, which walk by adjacent
// swaps; here each walk is a few queries to a balanced tree (GroupWalk).
//
// The passes differ from the original where that is at fault. An in-flight collective holds its buffers until its last
// wait. The peak of a group is that of the place where it arrives, with the buffers that it frees there and no others.
// The budget is a fraction of a peak that the caller may fix, so that two passes in a row do not compound it. Compute
// hides a collective up to the first wait for a later one on its lane, in both directions. A move of a wait is refused
// if it raises exposed time, not if it lowers it. A first or last node of the block moves too.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_PEAKPRESERVING_H
#define COMMSCHED_SCHEDULING_INDUCTOR_PEAKPRESERVING_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Support/MemoryBudget.h"
#include "llvm/ADT/BitVector.h"
#include <optional>

namespace commsched {

/// Options of both passes. The defaults are those of PyTorch Inductor.
struct PeakPreservingOptions {
  /// Memory budget: how far the peak may rise. A limit below the input's peak keeps moves out of the places above it.
  MemoryBudget memory = {200'000};
  /// The peak that `memory` is a budget for, bytes. If not set, the peak of the given order.
  std::optional<Bytes> inputPeakBytes;
  /// Whether costs decide: a collective stops moving when it is hidden, and no move raises net exposure or the
  /// makespan.
  bool useEstimates = false;
  /// With estimates: a collective is hidden if compute covers 1 + extraOverlapPermille / 1000 times its duration.
  int64_t extraOverlapPermille = 500;
  /// With estimates: factors in thousandths by which the costs of collectives and of computes are multiplied.
  int64_t commTimePermille = 2000, computeTimePermille = 1000;
  /// Whether collectives may pass each other if no dependence forbids it.
  bool unsafeCollectivesReorder = true;
  /// Number of starts (waits) that the pass moves, the first ones it comes to; all if negative. For bisection.
  int32_t moveLimit = -1;
  /// Limit on the number of nodes that a start (wait) passes; no limit if negative.
  int32_t prefetchLimitNodes = -1;
  /// With estimates: maximum number of trials of the makespan guard, which bisects the set of moves to find those that
  /// increase the makespan. Moves that it could not separate are undone. Programs of more than 25,000 nodes get fewer
  /// trials, at least 16.
  int32_t guardAttempts = 64;
  /// Whether to recount all live bytes after every collective and fail on a difference. O(N) each; for debugging.
  bool memoryRecompute = false;
  /// Limit on the number of nodes that a group takes along. It keeps a long chain of dependences near-linear.
  int32_t groupLimitNodes = 256;
  /// Indexed by node: matrix multiplications and the like, which are not taken along without estimates. May be empty.
  llvm::BitVector gemms;

  /// The peak limit, bytes, for a given order whose peak is `givenPeak`.
  Bytes limitFor(Bytes givenPeak) const { return memory.limitFor(inputPeakBytes.value_or(givenPeak)); }
};

/// Options of the pass that moves starts.
struct ReorderPreservingPeakOptions : PeakPreservingOptions {
  /// Whether a start may take along another start that it depends on.
  bool groupWithCollectives = false;
};

/// Options of the pass that moves waits.
struct SinkWaitsPreservingPeakOptions : PeakPreservingOptions {
  /// Whether a wait may move past a start.
  bool swapWithCollectives = false;
};

/// Moves starts left. One record per start, in the order in which they were moved. O((N + E + touches) log N) with
/// groups of bounded size; with estimates also O(log N) for each collective that is passed.
Schedule reorderPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                     const ReorderPreservingPeakOptions &options);

/// Moves waits right. One record per wait, the last wait first. Complexity as above.
Schedule sinkWaitsPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                       const SinkWaitsPreservingPeakOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_PEAKPRESERVING_H
