//===- WindowSearch.h - Exact orders of a few neighbours in a long order ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Moves of single nodes (LocalMoves.h) are stuck where several nodes have to change places at once. A *window* is what
// stands between two positions of an order. What comes before it is its initial state: clocks, live bytes, and the ends
// of collectives in flight. What comes behind it is a tail for each clock (IncrementalTimeline.h). So a window is a
// small problem of its own, and the order of the whole is as short as possible with respect to it if ExactSearch says
// so. Windows are searched as in large neighbourhood search (P. Shaw, "Using constraint programming and local search
// methods to solve vehicle routing problems", CP 1998). Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_WINDOWSEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_WINDOWSEARCH_H

#include "ExactSearch.h"
#include "IncrementalTimeline.h"

namespace commsched {

/// An order whose windows are searched exactly, within a peak limit. Slow-downs and contention are not seen, units are
/// not kept together, and buckets do not change.
class WindowSearch {
public:
  /// `order` is a legal order of `problem` with a peak of at most `limit`, bytes. O(N + E + touches).
  WindowSearch(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit);

  /// Without slow-downs, ns.
  Ns makespan() const { return timeline.makespan(); }
  llvm::ArrayRef<NodeId> order() const { return timeline.order(); }

  /// Replaces what stands at the positions [first, last), at most ExactSearch::kMaxNodes of them, by the order of it
  /// that is best for the makespan, if that is shorter. Steps are counted down. Returns false if the window's share of
  /// the steps has ended the search before all orders were seen.
  bool search(int32_t first, int32_t last, int64_t &steps);

  /// Searches windows of `width` positions, each beginning half a width behind the one before, until `steps` are spent
  /// or the makespan is at most `target`, ns. Returns whether the order has become shorter.
  bool sweep(int32_t width, int64_t &steps, Ns target);

private:
  struct Window;
  bool mayGain(int32_t first, int32_t last, int64_t &steps);
  Window windowOf(int32_t first, int32_t last) const;
  void addNodes(Window &window, int32_t first, int32_t last) const;
  void addBuffers(Window &window, int32_t first, int32_t last) const;
  void addTails(Window &window, int32_t first, int32_t last) const;
  void replace(int32_t first, llvm::ArrayRef<NodeId> nodes);

  const Problem &problem;
  Bytes limit;
  IncrementalTimeline timeline;
  std::vector<int32_t> positions;
  /// Indexed by position: the live bytes before it.
  std::vector<Bytes> liveBefore;
  /// Indexed by buffer: the last position that touches it, or kNone.
  std::vector<int32_t> lastUse;
  /// The lanes' clocks before the window that is looked at, and their tails behind it, ns.
  std::vector<Ns> lanesBefore, lanesBehind, laneTails;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_WINDOWSEARCH_H
