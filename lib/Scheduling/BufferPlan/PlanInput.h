//===- PlanInput.h - Input of the rules for buffer plans --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The buffers that need a place, with their sizes rounded up and the figures by which rules order them. Private to the
// buffer plan.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BUFFERPLAN_PLANINPUT_H
#define COMMSCHED_LIB_SCHEDULING_BUFFERPLAN_PLANINPUT_H

#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"

namespace commsched {

struct PlanInput {
  /// O(n log n). `alignment` is a power of two.
  PlanInput(llvm::ArrayRef<LiveInterval> intervals, Bytes alignment);

  /// Positions of a buffer's life.
  int64_t length(int32_t id) const { return static_cast<int64_t>(intervals[id].end) - intervals[id].begin + 1; }

  llvm::ArrayRef<LiveInterval> intervals;
  /// Indexed by buffer: its bytes, rounded up to the alignment.
  std::vector<Bytes> sizes;
  /// The buffers with a life and a size, by first position, larger ones first.
  std::vector<int32_t> ids;
  /// Indexed by buffer: the largest sum of sizes at any position of its life.
  std::vector<Bytes> contention;
  /// The largest sum of sizes at any position: no arena is smaller.
  Bytes floor = 0;
};

/// Plays a heap in time: each buffer takes the tightest hole, or the arena grows. `ids` are the buffers in the order of
/// their first positions. Writes the offsets and returns the arena's bytes. O(n log n).
Bytes sweepHeap(const PlanInput &input, llvm::ArrayRef<int32_t> ids, std::vector<Bytes> &offsets);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BUFFERPLAN_PLANINPUT_H
