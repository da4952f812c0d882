//===- BufferPlan.h - Offsets of buffers in one arena -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Gives buffers with known lifetimes fixed offsets in one arena. Buffers that are live at the same time do not overlap,
// others share space. The plan is a function of the program alone: every iteration and every rank that runs the program
// finds a buffer at the same offset, which is what registered communication memory asks for.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BUFFERPLAN_BUFFERPLAN_H
#define COMMSCHED_SCHEDULING_BUFFERPLAN_BUFFERPLAN_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// Bytes that every offset is a multiple of, by default: what cudaMalloc promises of every allocation, so that a buffer
/// in the arena is no worse placed than one of its own. NCCL's vectorised copies ask for 16.
inline constexpr Bytes kBufferAlignment = 256;

/// A buffer's life: the first and the last position that needs it, both included.
struct LiveInterval {
  int32_t begin = 0;
  int32_t end = 0;
  Bytes bytes = 0;
};

/// Offsets of buffers, in the order in which these were given.
struct BufferPlan {
  std::vector<Bytes> offsets;
  /// Bytes of the arena.
  Bytes total = 0;
  /// The largest sum of the bytes of buffers that are live together: no plan is smaller.
  Bytes bound = 0;
};

/// The lives of a problem's buffers in an order, by buffer: from the first node that touches it (a donated argument:
/// from the beginning) to the last one, or to the end where it is live out. A wait touches the inputs and outputs of
/// its start, so a buffer in flight lives until its last wait. Buffers that nothing touches get an empty life (end <
/// begin). O(N + touches).
std::vector<LiveInterval> liveIntervals(const Problem &problem, llvm::ArrayRef<NodeId> order);

/// The largest sum of bytes that are live at one position. O(n log n).
Bytes maximumLiveBytes(llvm::ArrayRef<LiveInterval> intervals);

/// When the planner stops before it has tried everything.
struct PlanEffort {
  /// An arena of this many bytes is small enough.
  Bytes enough = 0;
  /// Steps of all greedy placements together, and of these for each buffer. The default takes half a second at most.
  int64_t steps = int64_t(512) << 20, stepsPerBuffer = 64;
};

/// Plans an arena. The best of several rules: sweeps in time that take the tightest hole (O(n log n), always), and, if
/// these leave more than 1/8192 above the bound, chains of greedy placements in which the buffer that ends highest is
/// placed earlier the next time. A placement costs a step per pair of buffers, or beyond 16,384 buffers per pair
/// that lives together; all of them end with the steps of `effort`.
/// `alignment` is a power of two. Deterministic.
BufferPlan planBuffers(llvm::ArrayRef<LiveInterval> intervals, Bytes alignment = kBufferAlignment,
                       const PlanEffort &effort = {});

/// Says what is wrong with a plan, or returns an empty string: an offset that is negative or not aligned, a buffer
/// beyond the arena's end, two live buffers that overlap, a bound that is not the maximum of live bytes. Shares nothing
/// with the planner. O(n log n).
std::string verifyBufferPlan(llvm::ArrayRef<LiveInterval> intervals, const BufferPlan &plan,
                             Bytes alignment = kBufferAlignment);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BUFFERPLAN_BUFFERPLAN_H
