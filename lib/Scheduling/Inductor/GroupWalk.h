//===- GroupWalk.h - Move a group of nodes within dependences and memory ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A start moves left past its predecessors, and a wait moves right past its successors. A node that it depends on (that
// depends on it) is in the way: either it is taken along, as part of a group that moves as one, or the walk ends there.
// This class knows the order, the dependences and the live bytes. The pass that drives it decides which neighbours to
// take along and when to stop.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_INDUCTOR_GROUPWALK_H
#define COMMSCHED_LIB_SCHEDULING_INDUCTOR_GROUPWALK_H

#include "OrderTree.h"

namespace commsched {

/// The direction in which a group moves.
enum class WalkDirection : uint8_t { Left, Right };

/// An order in which one contiguous group at a time moves in one direction. The nodes that it passes keep their own
/// relative order; so do those that it takes along.
///
/// Memory. Let y be a passed node and b a buffer that the group touches. Moving left, b becomes live at y if the group
/// defines it and something later touches it; b is live at y no more if its last touch was in the group and no passed
/// or unpassed node behind y touches it. Neither depends on how far the group goes on, so each passed node is priced
/// once, a whole range at a time. The group's own live bytes follow from what is live where it arrives, which only the
/// unpassed nodes decide; they rise once the group passes the last foreign node that touches a buffer that it used to
/// free. Moving right is the mirror image.
class GroupWalk {
public:
  /// `work` and `tags` are indexed by node, for OrderTree's searches. O(N log N + touches).
  GroupWalk(const Problem &problem, llvm::ArrayRef<NodeId> order, WalkDirection direction, llvm::ArrayRef<int64_t> work,
            llvm::ArrayRef<uint8_t> tags);

  const OrderTree &tree() const { return positions; }
  Order order() const { return positions.order(); }
  /// Recounts the live bytes of every position and describes the first one that differs from what the moves made of it,
  /// or returns an empty string. O(N + touches).
  std::string recount() const;

  /// The group becomes { node }.
  void begin(NodeId node);
  /// The group is done. The next one may begin.
  void end();

  /// Positions [groupFirst, groupLast) hold the group.
  int32_t groupFirst() const { return first; }
  int32_t groupLast() const { return last; }
  bool contains(NodeId node) const { return inGroup[node]; }

  /// The position of the nearest node in the way, or the position beyond the order's end in this direction (-1 or N).
  int32_t blocker();
  /// The group's neighbour in this direction, which must exist.
  NodeId neighbour() const { return positions.at(neighbourPosition()); }
  int32_t neighbourPosition() const { return direction == WalkDirection::Left ? first - 1 : last; }
  bool atEnd() const { return direction == WalkDirection::Left ? first == 0 : last == positions.size(); }

  /// The neighbour joins the group. O((degree + touches) log N).
  void absorb();

  /// The node at which the memory limit stopped an advance, and the live bytes there.
  struct Stop {
    NodeId node = kNone;
    Bytes reached = 0;
  };
  /// Passes the neighbours up to and including the one at `to`, none of which is in the way, as long as neither they
  /// nor the group ever hold more than `limit`. Returns the node that could not be passed, or none. O(log N) and as
  /// much again for each buffer whose last user changes.
  Stop advance(int32_t to, Bytes limit);

private:
  /// What a touched buffer does to the passed nodes.
  enum class Effect : uint8_t {
    None,
    /// The group defines it and something behind the group touches it.
    Defined,
    /// Its last touch is in the group, as long as the group has not passed the node at `eventPosition`.
    Freed,
    /// Its last touch is at `eventPosition`, in front of the group (moving right).
    Pending,
  };
  struct TouchedBuffer {
    Effect effect = Effect::None;
    bool touched = false;
    bool definedInGroup = false;
    /// The group's last node that touches it.
    NodeId lastInGroup = kNone;
    /// Position of the foreign node whose passing changes the effect, or kNone.
    int32_t eventPosition = kNone;
    /// Number of its nodes in the group.
    int32_t numInGroup = 0;
    /// In its row, behind the last node that is outside of the group. It only falls while a group moves.
    int32_t endOfOutside = kNone;
  };
  struct Event {
    int32_t position;
    /// A buffer, or a node in the way.
    int32_t id;
  };

  bool left() const { return direction == WalkDirection::Left; }
  void take(NodeId node);
  void reconsider(BufferId buffer);
  void account(BufferId buffer, int sign);
  llvm::MutableArrayRef<NodeId> row(BufferId buffer) {
    return llvm::MutableArrayRef<NodeId>(rows).slice(rowBegin[buffer], problem->users[buffer].size());
  }
  bool hasOutside(BufferId buffer) const {
    return touched[buffer].numInGroup < static_cast<int32_t>(problem->users[buffer].size());
  }
  NodeId lastOutside(BufferId buffer);
  void settleRow(BufferId buffer);
  void pushEvent(std::vector<Event> &heap, Event event);
  void popEvent(std::vector<Event> &heap);
  int32_t nextEvent();
  void passEvent(BufferId buffer, int32_t at, int sign);
  Stop passRange(int32_t to, Bytes limit);

  const Problem *problem;
  WalkDirection direction;
  OrderTree positions;
  int32_t first = 0, last = 0;
  std::vector<char> inGroup;
  llvm::SmallVector<NodeId, 16> members;
  /// By how much the live bytes of a node rise when it is passed.
  Bytes passing = 0;
  std::vector<TouchedBuffer> touched;
  llvm::SmallVector<BufferId, 16> touchedList;
  /// Heaps, nearest first. Nodes in front of the group never change their position, so neither do the keys.
  std::vector<Event> blockers, events;
  /// Indexed by buffer, in rows as in Problem::users: the nodes that touch it, in the order in which they stood when
  /// the group began. A group that passes nodes keeps their relative order, so the rows stay valid for the nodes
  /// outside.
  std::vector<NodeId> rows;
  std::vector<int32_t> rowBegin;
  /// The positions at which the group began.
  int32_t beganAt = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_INDUCTOR_GROUPWALK_H
