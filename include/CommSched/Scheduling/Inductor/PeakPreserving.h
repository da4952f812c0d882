//===- PeakPreserving.h - Moving collectives apart from their waits within a peak -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two passes, one the mirror image of the other. Starts, from left to right, move left past their predecessors and take
// along what they depend on; waits, from right to left, move right and take along what depends on them. A move that
// would break the memory limit, or that costs more exposed time than it saves, is not made. The rules are those of
// PyTorch Inductor's reorder_communication_preserving_peak_memory and sink_waits_iterative. They were stated as walks
// of adjacent swaps; here each walk is a few questions to a tree (GroupWalk).
//
// Where the original is at fault this differs from it: an in-flight collective holds its buffers until its last wait;
// the peak of a group is that of the place where it arrives, with the buffers that it frees there and no others; the
// budget is a fraction of a peak that the caller may fix, so that two passes in a row do not compound it; compute
// hides a collective up to the first wait for a later one on its lane, in both directions; a move of a wait is refused
// when it raises exposed time, not when it lowers it; a first or last node of the block moves too.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_PEAKPRESERVING_H
#define COMMSCHED_SCHEDULING_INDUCTOR_PEAKPRESERVING_H

#include "CommSched/Scheduling/Model/Schedule.h"
#include "llvm/ADT/BitVector.h"

namespace commsched {

/// Options of both passes; the defaults are the original's.
struct PeakPreservingOptions {
  /// How far the peak may rise, in millionths of `inputPeakBytes`.
  int64_t peakBudgetPpm = 200'000;
  /// The peak that the budget is a fraction of, bytes; that of the order given where negative.
  Bytes inputPeakBytes = -1;
  /// A limit that takes the place of the budget, bytes; none where negative.
  Bytes peakLimitBytes = -1;
  /// Ask the costs: a collective stops moving when it is hidden, and no move raises net exposure or the makespan.
  bool useEstimates = false;
  /// With estimates: hidden means that compute covers 1 + this many thousandths of the collective's time.
  int64_t extraOverlapPermille = 500;
  /// With estimates: thousandths that costs are taken at.
  int64_t commTimePermille = 2000, computeTimePermille = 1000;
  /// Collectives may pass each other where no dependence forbids it.
  bool unsafeCollectivesReorder = true;
  /// Only the first so many starts (waits) that the pass comes to move; all where negative. For bisection.
  int32_t moveLimit = -1;
  /// A start (wait) passes no more than so many nodes; any number where negative.
  int32_t prefetchLimitNodes = -1;
  /// With estimates: how many times the collectives, or a part of them, may be moved on trial to find out which of them
  /// raise the makespan; fewer in programs of more than 25,000 nodes, 16 at least. Those not told apart by then stay.
  int32_t guardAttempts = 64;
  /// Recount all live bytes after every collective and fail on a difference. O(N) each; for debugging.
  bool memoryRecompute = false;
  /// A group takes along no more than so many nodes, so that a long chain of dependences stays near-linear.
  int32_t groupLimitNodes = 256;
  /// Matrix multiplications and their like, by node; without estimates they are not taken along. May be empty.
  llvm::BitVector gemms;
};

struct ReorderPreservingPeakOptions : PeakPreservingOptions {
  /// A start may take another start along that it depends on.
  bool groupWithCollectives = false;
};

struct SinkWaitsPreservingPeakOptions : PeakPreservingOptions {
  /// A wait may move past a start.
  bool swapWithCollectives = false;
};

/// The memory limit that the options mean for an input of this peak. A limit below the input's peak keeps moves out of
/// the places that are above it.
Bytes peakLimitOf(const PeakPreservingOptions &options, Bytes inputPeak);

/// Starts move left. One record per start, in the order in which they were moved. O((N + E + touches) log N) with
/// groups of bounded size; with estimates also O(log N) for each collective that is passed.
Schedule reorderPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                     const ReorderPreservingPeakOptions &options);

/// Waits move right. One record per wait, last wait first. Complexity as above.
Schedule sinkWaitsPreservingPeakMemory(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                       const SinkWaitsPreservingPeakOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_PEAKPRESERVING_H
