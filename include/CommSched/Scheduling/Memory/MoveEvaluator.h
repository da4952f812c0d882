//===- MoveEvaluator.h - Peaks behind moves within an order -----------------------------------===//
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
#ifndef COMMSCHED_SCHEDULING_MEMORY_MOVEEVALUATOR_H
#define COMMSCHED_SCHEDULING_MEMORY_MOVEEVALUATOR_H

#include "CommSched/Scheduling/Memory/MemoryTree.h"
#include "CommSched/Scheduling/Problem/Problem.h"
#include <utility>

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

  /// What a node touches, with the changes below. O(1).
  llvm::ArrayRef<BufferId> touchesOf(NodeId node) const {
    bool isChanged = !ownTouches.empty() && ownTouches[node] != kNone;
    return isChanged ? llvm::ArrayRef<BufferId>(changedTouches[ownTouches[node]]) : problem->touches[node];
  }

  // Changes of what nodes touch, in three steps: lift(), then any number of permute(), then settle(). Between lift()
  // and settle(), the owner of the problem may change the buffers that lifted nodes alone have touched and the
  // workspace of the nodes that were lifted; Problem::touches is not read any more for these nodes, nor Problem::users
  // at all.

  /// Takes the touches away from `nodes`. O(k log N + positions at which buffers are live only because of them), k the
  /// touches of the nodes and the lengths of the rows of their buffers.
  void lift(llvm::ArrayRef<NodeId> nodes);
  /// Replaces what stands at the positions from `first` on by `window`, a permutation of it in which all nodes with
  /// touches keep their relative order. O(window + log N + touches of the nodes at the ends of stretches that stay
  /// together).
  void permute(int32_t first, llvm::ArrayRef<NodeId> window);
  /// Gives the lifted `nodes` their new touches. Costs what lift() does.
  void settle(llvm::ArrayRef<NodeId> nodes, llvm::ArrayRef<llvm::SmallVector<BufferId, 4>> touches);

private:
  struct Change;
  struct Around;
  /// The positions [first, last).
  struct Life {
    int32_t first, last;
    bool isEmpty() const { return first == last; }
  };
  /// The nodes that touch a buffer, in the current order.
  llvm::ArrayRef<NodeId> rowOf(BufferId buffer) const {
    if (!ownRow.empty() && ownRow[buffer] != kNone)
      return changedRows[ownRow[buffer]];
    return llvm::ArrayRef<NodeId>(touching).slice(rows[buffer], rows[buffer + 1] - rows[buffer]);
  }
  llvm::MutableArrayRef<NodeId> rowOf(BufferId buffer) {
    llvm::ArrayRef<NodeId> row = std::as_const(*this).rowOf(buffer);
    return {const_cast<NodeId *>(row.data()), row.size()};
  }
  std::vector<NodeId> &changedRow(BufferId buffer);
  llvm::SmallVector<BufferId, 4> &changedTouchesOf(NodeId node);
  Life lifeOf(BufferId buffer) const;
  void changeLife(BufferId buffer, Life before, Life after);
  void addAt(int32_t first, int32_t last, Bytes more);
  Bytes workspaceOf(NodeId node) const {
    return !isLifted.empty() && isLifted[node] ? 0 : problem->nodes[node].workspace;
  }
  Around touchesAround(BufferId id, const Change &change) const;
  Change evaluate(int32_t first, int32_t last, int32_t to) const;

  const Problem *problem;
  Order current;
  std::vector<int32_t> positions;
  /// Per buffer, rows as in Problem::users, each in the current order.
  std::vector<NodeId> touching;
  std::vector<int32_t> rows;
  /// Indexed by buffer, and by node: the row in place of that in `touching`, and the touches in place of those of the
  /// problem, as indices into the lists below; kNone if they have not changed. Both empty before the first lift().
  std::vector<int32_t> ownRow, ownTouches;
  std::vector<std::vector<NodeId>> changedRows;
  std::vector<llvm::SmallVector<BufferId, 4>> changedTouches;
  /// Indexed by node: whether its workspace is out of the live bytes.
  std::vector<char> isLifted;
  /// Live bytes by position.
  MemoryTree tree;
  /// Scratch of permute(): the live bytes of the window afterwards.
  std::vector<Bytes> next;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_MEMORY_MOVEEVALUATOR_H
