//===- Memory.h - Live bytes of an order ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Live bytes at every position of an order, by a plain sweep. The rules are Models.md: a buffer is live from the
// first node that touches it (in a legal order: its definition) to the last one, both included; a donated argument
// from the beginning; a live-out buffer to the end; workspace during its node only. Arguments that live throughout
// are no part of it (Problem::argumentBytes).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MEMORY_MEMORY_H
#define COMMSCHED_SCHEDULING_MEMORY_MEMORY_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// Live bytes along one order.
struct MemoryProfile {
  /// By position: after that position's allocations, workspace included, before its frees.
  std::vector<Bytes> live;
  /// The largest of `live`; 0 of an empty order.
  Bytes peak = 0;
  /// The first position that holds the peak, or kNone.
  int32_t peakPosition = kNone;
};

/// Sweeps over `order`, a permutation of the problem's nodes. O(N + touches).
MemoryProfile memoryProfile(const Problem &problem, llvm::ArrayRef<NodeId> order);

/// The peak alone. O(N + touches).
Bytes peakOf(const Problem &problem, llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MEMORY_MEMORY_H
