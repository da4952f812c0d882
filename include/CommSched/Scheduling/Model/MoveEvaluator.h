//===- MoveEvaluator.h - What a move within an order does to memory ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Holds an order with its live bytes and answers "what would the peak be if this group moved there" without making the
// move. It is what the passes that shift one collective at a time ask: a start moves left past a segment together with
// the predecessors that it drags along, a wait moves right.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_MODEL_MOVEEVALUATOR_H
#define COMMSCHED_SCHEDULING_MODEL_MOVEEVALUATOR_H

#include "CommSched/Scheduling/Model/MemoryTree.h"
#include "CommSched/Scheduling/Model/Problem.h"

namespace commsched {

/// An order under moves of contiguous groups. A group is a range of positions [first, last); it moves to `to`, the
/// position that its first node then has, so that 0 <= to <= N - (last - first). What lies between shifts by the
/// group's length and keeps its own order. Memory is defined for illegal orders too (Memory.h); legality is the
/// caller's, see earliest() and latest().
class MoveEvaluator {
public:
  /// O((N + touches) log N).
  MoveEvaluator(const Problem &problem, llvm::ArrayRef<NodeId> order);

  llvm::ArrayRef<NodeId> order() const { return current; }
  int32_t position(NodeId node) const { return positions[node]; }

  /// The peak of the order as it is. O(1).
  Bytes peak() const { return tree.size() == 0 ? 0 : tree.max(); }
  /// Live bytes at each position, workspace included.
  const MemoryTree &live() const { return tree; }
  /// Live bytes between position - 1 and position; position may be N. O(touches of that position's node).
  Bytes liveBefore(int32_t position) const;

  /// The leftmost `to` to which [first, last) may go by the edges alone: after the last predecessor outside. O(degree).
  int32_t earliest(int32_t first, int32_t last) const;
  /// The rightmost `to`, likewise: the group ends before its first successor outside. O(degree).
  int32_t latest(int32_t first, int32_t last) const;

  /// The peak after the move of [first, last) to `to`. O(T log N), T the touches of the group's nodes.
  Bytes peakIfMoved(int32_t first, int32_t last, int32_t to) const;
  /// The largest live bytes, after that move, of the nodes that changed their place: the peak of the window alone.
  Bytes windowPeakIfMoved(int32_t first, int32_t last, int32_t to) const;

  /// Makes the move. move(to, to + last - first, first) undoes it. O(T log N + distance).
  void move(int32_t first, int32_t last, int32_t to);

private:
  struct Change;
  struct Around;
  Around touchesAround(BufferId id, const Change &change) const;
  Change evaluate(int32_t first, int32_t last, int32_t to) const;

  const Problem *problem;
  Order current;
  std::vector<int32_t> positions;
  /// Per buffer, rows as in Problem::users, each in the current order.
  std::vector<NodeId> touching;
  std::vector<int32_t> rows;
  /// Live bytes by position, and a tree over them.
  std::vector<Bytes> bytes;
  MemoryTree tree;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MODEL_MOVEEVALUATOR_H
