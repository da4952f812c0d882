//===- ExactSearch.h - The shortest order of a small problem ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the solver. List scheduling is good on long blocks, where single decisions hardly count; on a block of a
// dozen nodes every one does, and all orders can be looked at.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_EXACTSEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_EXACTSEARCH_H

#include "CommSched/Scheduling/Model/Problem.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched {

/// Branch and bound over the prefixes of legal orders, within a peak limit, without buckets. What is live follows from
/// the set of nodes that have run; of two prefixes over one set, the one whose clocks are nowhere ahead of the other's
/// makes that one superfluous.
class ExactSearch {
public:
  /// Sets of nodes are words; the two largest words are none: a DenseMap keeps them for itself.
  static constexpr NodeId kMaxNodes = 62;

  /// Looks for orders shorter than `cutoff`. `problem` has at most kMaxNodes nodes. O(N + E).
  ExactSearch(const Problem &problem, Bytes limit, Ns cutoff);

  /// Searches until `steps` are used up; they are counted down. Returns whether everything was looked at, so that
  /// order() is optimal, or nothing is shorter than the cutoff. A prefix takes O(N) and counts as N / 4 steps.
  bool run(int64_t &steps);

  /// The shortest order that was found; empty where none is shorter than the cutoff.
  const Order &order() const { return best; }
  Ns makespan() const { return cutoff; }

private:
  using Set = uint64_t;
  /// The clocks after a prefix.
  struct State {
    Set done = 0;
    Bytes live = 0;
    Ns compute = 0;
    llvm::SmallVector<Ns, 8> laneFree;
  };
  /// The clocks that the future depends on, in an order that follows from the set.
  using Clocks = llvm::SmallVector<Ns, 8>;

  static Set bit(NodeId node) { return Set(1) << node; }
  bool isReady(const State &state, NodeId node) const;
  bool fits(const State &state, NodeId node) const;
  bool helpsOnly(const State &state, NodeId node) const;
  /// The starts that the regions of a node wait for.
  llvm::ArrayRef<NodeId> awaitedInRegion(NodeId node) const;
  void moveClocks(State &next, NodeId node);
  State after(const State &state, NodeId node);
  Ns bound(const State &state) const;
  Clocks clocksOf(const State &state) const;
  bool isDominated(const State &state);
  void extend(const State &state);

  const Problem &problem;
  const Bytes limit;
  Ns cutoff;
  int64_t *left = nullptr;

  /// Of each node: what must come before it, the bytes it allocates, and how long the rest takes at least, from when
  /// the clock comes to it.
  std::vector<Set> before;
  std::vector<Bytes> allocates;
  std::vector<Ns> path;
  /// Of each start: when it ends, in the prefix that is being extended; and how long its waits' paths are.
  std::vector<Ns> endOf, pathOfWaits;
  /// Of each start: its waits, and the nodes whose regions wait for it.
  std::vector<Set> waits;
  /// Of each buffer: the nodes that have to be done before it is freed; all bits set where it never is.
  std::vector<Set> users;

  Order prefix, best;
  llvm::DenseMap<uint64_t, std::vector<Clocks>> seen;
  size_t remembered = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_EXACTSEARCH_H
