//===- MemoryAdmission.h - What may run now without breaking the memory limit later -------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A list scheduler that looks at live bytes alone runs into dead ends: everything that is ready needs memory, and
// nothing frees any. Here every step is proven completable. What has not run yet is promised to run in the order of a
// reference whose peak is within the limit; a tree over the reference's positions holds the live bytes that every
// remaining node would see. A move is admitted if the live bytes stay within the limit while it runs, and the tree's
// maximum after it. So the limit cannot be broken, and the first remaining node of the reference may always run.
//
// Every buffer has a linked list of the remaining nodes that touch it, in the order of the reference; its span of
// positions follows from the ends of the list. A move edits lists, is tested as a whole, and is undone if refused.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MEMORYADMISSION_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MEMORYADMISSION_H

#include "CommSched/Scheduling/Model/MemoryTree.h"
#include "CommSched/Scheduling/Model/Problem.h"

namespace commsched {

/// No limit: larger than any sum of sizes, and sums with it do not overflow.
inline constexpr Bytes kUnlimited = INT64_MAX / 4;

/// A merge of ready starts, seen by memory alone.
struct BucketMove {
  /// Nodes that run first, one by one (casts that are not fused, other feeders).
  llvm::ArrayRef<NodeId> prelude;
  /// Casts that the pack does itself; they vanish.
  llvm::ArrayRef<NodeId> fused;
  /// The merged starts, and their waits by ascending position.
  llvm::ArrayRef<NodeId> starts, waits;
};

/// The state of memory between what has run and what is promised. All costs: k touches, n nodes.
class MemoryAdmission {
public:
  explicit MemoryAdmission(const Problem &problem) : problem(problem) {}

  /// Begins anew: nothing has run, everything is promised in the order `reference`, whose inverse is `positions`.
  /// Returns false if the reference itself is above `limit`. O(n + touches).
  bool reset(llvm::ArrayRef<NodeId> reference, llvm::ArrayRef<int32_t> positions, Bytes limit);

  /// Bytes that are live now.
  Bytes live() const { return liveBytes; }
  /// The largest number of bytes that were live while something ran.
  Bytes peak() const { return peakBytes; }
  /// The largest number of bytes that a remaining node would see.
  Bytes remainingPeak() const { return tree.max(); }

  /// Runs `nodes` one after the other if that is within the limit, now and later; the last one stands for the move
  /// (what refused it the last time is looked at first). O(k log n).
  bool tryAdmit(llvm::ArrayRef<NodeId> nodes);
  /// Runs the first remaining node of the reference, or a node that needs no memory: no test. O(k log n).
  void place(NodeId node);

  /// Runs a merged start over the members' own buffers. Its wait is waits.front(); the other waits vanish.
  bool tryCoalesced(const BucketMove &move);
  /// Runs a pack and a merged start. An all-gather's waits become unpacks of the gathered buffer of `gathered` bytes;
  /// those in `shared` are one at the position of the first of them, which stays while the others vanish. O((k + m) log
  /// n).
  bool tryPackedGather(const BucketMove &move, Bytes gathered, llvm::ArrayRef<NodeId> shared);
  /// The same for reductions: the wait is waits.front(), the other waits vanish, the outputs become views of one buffer
  /// of `outputBytes`, or of the packed one where it is 0 (in place). `packedBytes` is the packed buffer.
  bool tryPackedReduction(const BucketMove &move, Bytes packedBytes, Bytes outputBytes);

private:
  /// One node's touch of one buffer: a link of the buffer's list.
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
  /// Positions [first, last) in which a buffer is promised to be live.
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
  void handOver(NodeId from, NodeId to);
  BufferId addBuffer(Bytes bytes);

  void begin();
  bool allocate(BufferId buffer);
  void freeUnused(BufferId buffer);
  bool runInMove(NodeId node);
  void retire(NodeId node);
  void readByPack(const BucketMove &move);
  bool gather(const BucketMove &move, Bytes gathered, llvm::ArrayRef<NodeId> shared);
  bool reduce(const BucketMove &move, Bytes packedBytes, Bytes outputBytes);
  bool coalesce(const BucketMove &move);
  void mergeOutputs(const BucketMove &move, BufferId merged);
  void collectChanges();
  bool admit(NodeId key);
  bool finish(bool withinLimit, NodeId key);
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
  /// Of each node: the position that refused it the last time, or -1.
  std::vector<int32_t> witness;

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

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MEMORYADMISSION_H
