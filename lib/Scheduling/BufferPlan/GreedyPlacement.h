//===- GreedyPlacement.h - Buffers placed one after the other ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Places buffers in a given order, each into a gap between those placed before that live together with it. Private to
// the buffer plan.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BUFFERPLAN_GREEDYPLACEMENT_H
#define COMMSCHED_LIB_SCHEDULING_BUFFERPLAN_GREEDYPLACEMENT_H

#include "PlanInput.h"

namespace commsched {

/// Which of the gaps that are large enough a buffer takes.
enum class GapRule : uint8_t { Tightest, Lowest };

/// The buffers that are placed already, by time: a tree over them, sorted by first position, of their last positions.
class PlacedTree {
public:
  explicit PlacedTree(const PlanInput &input);

  void clear();
  /// O(log n).
  void add(int32_t id);
  /// Appends the placed buffers that live together with `id`, and takes the nodes that it visits off `stepsLeft`; stops
  /// early if no steps are left.
  void collect(int32_t id, llvm::SmallVectorImpl<int32_t> &overlaps, int64_t &stepsLeft) const;

private:
  void descend(int32_t node, int32_t begin, int32_t end, int32_t limit, int32_t position,
               llvm::SmallVectorImpl<int32_t> &overlaps, int64_t &stepsLeft) const;

  const PlanInput &input;
  int32_t leaves;
  std::vector<int32_t> lastEnd;
  std::vector<int32_t> rank;
};

/// Up to a few thousand buffers, what is placed is one list by offset, and each buffer looks at all of it: that is
/// quadratic, at a nanosecond a step. Beyond that the tree finds those that live together with the buffer.
class GreedyPlacement {
public:
  /// `steps` limits the steps of all runs together.
  GreedyPlacement(const PlanInput &input, int64_t steps);

  struct Outcome {
    /// The arena's bytes.
    Bytes total = 0;
    /// Index into the order of the buffer at the arena's end, or of the first one that ended beyond `cap`.
    size_t highest = 0;
    bool isComplete = false;
  };

  /// Writes the offsets. Ends early, incomplete, as soon as a buffer ends beyond `cap`, or if there are no steps left.
  Outcome run(llvm::ArrayRef<int32_t> order, GapRule rule, Bytes cap, std::vector<Bytes> &offsets);

  bool isExhausted() const { return stepsLeft < 0; }

private:
  struct Listed {
    int32_t begin, end, id;
  };

  void collect(int32_t id, llvm::ArrayRef<Bytes> offsets);
  Bytes findGap(int32_t id, GapRule rule, llvm::ArrayRef<Bytes> offsets) const;
  void add(int32_t id, llvm::ArrayRef<Bytes> offsets);

  const PlanInput &input;
  bool usesTree;
  PlacedTree tree;
  int64_t stepsLeft;
  /// Without the tree: the lives of all buffers that are placed, by offset.
  std::vector<Listed> listed;
  /// What lives together with the buffer that is placed now, by offset.
  llvm::SmallVector<int32_t, 0> overlaps;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BUFFERPLAN_GREEDYPLACEMENT_H
