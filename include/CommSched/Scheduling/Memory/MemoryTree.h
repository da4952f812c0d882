//===- MemoryTree.h - Range add and range maximum over positions ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A segment tree over the positions of an order that holds live bytes. It makes "would this still fit" a logarithmic
// question, which is what keeps every solver near-linear under a hard memory limit. Bottom-up; additions stay where
// they were made and are never pushed down.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MEMORY_MEMORYTREE_H
#define COMMSCHED_SCHEDULING_MEMORY_MEMORYTREE_H

#include "CommSched/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/MathExtras.h"
#include <vector>

namespace commsched {

/// Positions 0..n-1, each with a number of bytes.
class MemoryTree {
public:
  /// The value of what is not there: the maximum of an empty range. Small enough that no sum of real sizes reaches 0.
  static constexpr Bytes kEmpty = INT64_MIN / 4;

  MemoryTree() = default;
  /// All positions at 0. O(n).
  explicit MemoryTree(int32_t size);
  /// O(n).
  explicit MemoryTree(llvm::ArrayRef<Bytes> values);

  int32_t size() const { return count; }

  /// Adds `bytes` to the positions [first, last). O(log n).
  void add(int32_t first, int32_t last, Bytes bytes);

  /// The largest value of all; kEmpty without positions. O(1).
  Bytes max() const { return count == 0 ? kEmpty : maxima[1]; }
  /// The largest value in [first, last); kEmpty where that is empty. O(log n).
  Bytes max(int32_t first, int32_t last) const;
  /// O(log n).
  Bytes value(int32_t position) const;
  /// The first position that holds max(), or -1 without positions. O(log n).
  int32_t argmax() const;

  /// The first / last position in [first, last) whose value is above `limit`, or -1. O(log n).
  int32_t firstAbove(int32_t first, int32_t last, Bytes limit) const;
  int32_t lastAbove(int32_t first, int32_t last, Bytes limit) const;

  /// The values of the positions [first, last), to be changed. Until refresh(), only value() may be asked.
  /// O(last - first + log n).
  llvm::MutableArrayRef<Bytes> open(int32_t first, int32_t last);
  /// Makes the tree right again after changes of opened values. O(last - first + log n).
  void refresh(int32_t first, int32_t last);
  /// Overwrites the positions from `first` on. O(values + log n).
  void assign(int32_t first, llvm::ArrayRef<Bytes> values);
  /// All values. O(n).
  std::vector<Bytes> values() const;

private:
  /// Computes the maximum of an inner node from its children. Returns whether it has changed.
  bool pull(uint32_t node);
  /// The number of levels above the leaves.
  int32_t depth() const { return llvm::Log2_32(static_cast<uint32_t>(leaves)); }
  int32_t descend(int32_t first, int32_t last, Bytes limit, bool fromLeft) const;

  int32_t count = 0;
  /// Leaves start at `leaves`, a power of two; node 1 is the root and node k has the children 2k and 2k+1. The maximum
  /// of a node includes its own addition, but not those of the nodes above it.
  int32_t leaves = 1;
  std::vector<Bytes> maxima, added;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MEMORY_MEMORYTREE_H
