//===- MemoryAdmission.h - Admission control under a hard memory limit ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides whether a placement may happen now without breaking the memory limit later. A state is *safe* if the
// remaining nodes can still finish within the limit (E. W. Dijkstra's banker's algorithm, EWD 623, 1977). The witness
// of safety is a reference order: what has not been placed is assumed to follow it. A move is admitted if live bytes
// stay within the limit while it runs, and if the remaining nodes, in the order of the reference, stay within it
// afterwards. So the limit cannot be broken and there is no deadlock: the first remaining node of the reference is
// always admissible.
//
// A tree over the positions of the reference (MemoryTree.h) holds the live bytes that every remaining node would see:
//
//   reference   | v0  v1  v2  v3  v4  v5 |     v0 and v3 have been placed: their positions hold no maximum
//   live bytes  |  -   7   9   -   6   4 |     the state is safe if the maximum of the tree (9) is within the limit
//
// Each buffer has a linked list of the remaining nodes that touch it, in the order of the reference. The ends of the
// list give the range of positions in which the buffer is live. A move edits lists, is tested as a whole, and is rolled
// back if it is refused.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_MEMORYADMISSION_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_MEMORYADMISSION_H

#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "CommSched/Scheduling/Memory/MemoryTree.h"
#include "CommSched/Support/MemoryBudget.h"

namespace commsched {

/// The wait of a bucket, or an unpack: it does the work of several waits.
struct JoinedWaits {
  /// By ascending position in the reference. The first one stands for them all, and absorbs the others.
  llvm::SmallVector<NodeId, 1> waits;
  /// How long an unpack takes, ns.
  Ns cost = 0;
};

/// A bucket of ready starts, as memory sees it.
struct BucketMove {
  /// What vanishes and what appears.
  const BucketShape &shape;
  /// Nodes that run first, one by one (casts that are not fused, other feeders).
  llvm::ArrayRef<NodeId> prelude;
  /// The merged starts.
  llvm::ArrayRef<NodeId> starts;
  /// What does the work of the members' waits, by ascending position of the first waits.
  llvm::ArrayRef<JoinedWaits> joined;
};

/// The state of memory between what has been placed and what remains. In the costs, k is the number of touches of the
/// nodes that take part, and n the number of nodes.
class MemoryAdmission {
public:
  explicit MemoryAdmission(const Problem &problem) : problem(problem) {}

  /// Begins a new schedule: every node remains, in the order `reference`, whose inverse is `positions`. Returns false
  /// if the reference itself exceeds `limit`. O(n + touches).
  bool reset(llvm::ArrayRef<NodeId> reference, llvm::ArrayRef<int32_t> positions, Bytes limit);

  /// Bytes that are live now.
  Bytes live() const { return liveBytes; }
  /// The largest number of bytes that have been live while a node ran.
  Bytes peak() const { return peakBytes; }
  /// The largest number of bytes that a remaining node would see, if all follow the reference.
  Bytes remainingPeak() const { return tree.max(); }

  /// Places `nodes` one after another if the state stays safe. The last one identifies the move: the position that
  /// refused it the last time is tested first. O(k log n).
  bool tryAdmit(llvm::ArrayRef<NodeId> nodes);
  /// Places the first remaining node of the reference, or a node that needs no memory, without a test. O(k log n).
  void place(NodeId node);

  /// Places the prelude, pack and start of a bucket. Its waits and unpacks remain. O((k + members) log n).
  bool tryBucket(const BucketMove &move);

private:
  /// One node's touch of one buffer: a link of the buffer's list. Links are indices into `touches`, or -1.
  struct Touch {
    NodeId node;
    BufferId buffer;
    int32_t prev = -1, next = -1;
    /// The node's next touch that a bucket added, or -1.
    int32_t nextAdded = -1;
    bool linked = false;
  };
  struct BufferState {
    Bytes bytes;
    int32_t head = -1, tail = -1;
    /// The number of the last move that saved this buffer's span.
    int64_t savedBy = -1;
    bool live = false, liveOut = false;
  };
  /// Positions [first, last) of the reference in which a buffer is live.
  struct Span {
    int32_t first, last;
  };
  struct Saved {
    BufferId buffer;
    Span span;
    bool live;
  };
  /// An edit of a list, with the touch as it was before.
  struct Edit {
    int32_t touch;
    Touch before;
    bool linked;
  };
  struct Change {
    int32_t first, last;
    Bytes bytes;
  };

  template <typename Function> void forEachTouch(NodeId node, Function function);
  Span span(BufferId buffer) const;
  void save(BufferId buffer);
  void unlink(int32_t touch);
  void link(int32_t touch, int32_t after);
  void setNeighbours(const Touch &touch, int32_t atPrev, int32_t atNext);
  int32_t addTouch(NodeId node, BufferId buffer);
  void linkByPosition(int32_t touch, int32_t notAfter);
  void absorb(llvm::ArrayRef<NodeId> waits);
  BufferId addBuffer(Bytes bytes);

  void beginMove();
  bool allocate(BufferId buffer);
  void freeUnused(BufferId buffer);
  bool runInMove(NodeId node);
  void detach(NodeId node);
  void retire(NodeId node);
  void readByPack(const BucketMove &move);
  bool pack(const BucketMove &move);
  bool runBucket(const BucketMove &move);
  void mergeOutputs(const BucketMove &move, BufferId merged);
  void collectChanges();
  bool isSafeAfter(NodeId key);
  bool commitOrRollBack(bool withinLimit, NodeId key);
  void rollBack();

  const Problem &problem;
  llvm::ArrayRef<int32_t> positions;
  Bytes limit = kUnlimited;
  Bytes liveBytes = 0, peakBytes = 0;
  MemoryTree tree;
  std::vector<Touch> touches;
  /// Node v's own touches are firstTouch[v] .. firstTouch[v + 1] - 1; addedTouches[v] heads those that buckets added.
  std::vector<int32_t> firstTouch, addedTouches;
  std::vector<BufferState> buffers;
  /// Indexed by node: the position at which the limit was exceeded when the node was refused the last time, or -1.
  std::vector<int32_t> lastRefusal;

  /// The move in progress.
  int64_t moveNumber = 0;
  Bytes liveBefore = 0, movePeak = 0;
  size_t touchesBefore = 0, buffersBefore = 0;
  std::vector<Saved> saved;
  std::vector<Edit> edits;
  std::vector<Change> changes;
  std::vector<NodeId> retired;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_MEMORYADMISSION_H
