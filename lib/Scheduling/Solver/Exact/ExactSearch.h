//===- ExactSearch.h - Optimal orders of small problems ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// List scheduling is good on long blocks, where no single decision matters much. On a block of a dozen nodes every
// decision does, and all orders can be enumerated. Method: branch and bound over prefixes with dominance, as in dynamic
// programming over subsets (M. Held and R. M. Karp, 1962). Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_EXACT_EXACTSEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_EXACT_EXACTSEARCH_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace commsched {

/// The prefixes of legal orders of a small problem, as sets of nodes. What is live follows from the set.
class PrefixSets {
public:
  using Set = uint64_t;
  /// Limit on the number of nodes: a set of nodes is one 64-bit word, and DenseMap reserves the two largest keys.
  static constexpr NodeId kMaxNodes = 62;

  /// `problem` has at most kMaxNodes nodes. O(N + E).
  explicit PrefixSets(const Problem &problem);

  static Set bit(NodeId node) { return Set(1) << node; }
  /// The bytes that are live before the first node.
  Bytes liveAtFirst() const;
  bool isReady(Set done, NodeId node) const { return !(done & bit(node)) && (before[node] & ~done) == 0; }
  Bytes allocatedBy(NodeId node) const { return allocates[node]; }
  /// The live bytes while `node` runs behind a prefix with `live` bytes.
  Bytes peakAt(Bytes live, NodeId node) const { return live + allocates[node] + problem.nodes[node].workspace; }
  /// The live bytes behind `node`, the last one of the prefix `done`, which had `live` bytes before it.
  Bytes liveBehind(Bytes live, Set done, NodeId node) const;

private:
  const Problem &problem;
  /// Indexed by node: the nodes that must precede it.
  std::vector<Set> before;
  /// Indexed by node: the bytes that it allocates.
  std::vector<Bytes> allocates;
  /// Indexed by buffer: the nodes that have to be placed before it is freed; all bits are set if it is never freed.
  std::vector<Set> users;
};

/// An order with the lowest peak of all orders, or one within `limit` bytes, whichever it comes to first; none if the
/// steps do not suffice, which are counted down. `problem` has at most PrefixSets::kMaxNodes nodes. Searches the sets
/// of nodes by ascending peak, so the first whole order is the answer. A set takes O(N) time and counts as N / 4 steps;
/// their number is exponential in N.
std::optional<Order> findLowestPeak(const Problem &problem, Bytes limit, int64_t &steps);

/// Branch and bound over the prefixes of legal orders, within a peak limit, without buckets. The live bytes follow from
/// the set of nodes of a prefix. Dominance: a prefix is dropped if another prefix of the same set has no later clock on
/// any lane.
class ExactSearch {
public:
  static constexpr NodeId kMaxNodes = PrefixSets::kMaxNodes;

  /// Prepares a search for orders shorter than `cutoff`, ns. `problem` has at most kMaxNodes nodes. O(N + E).
  ExactSearch(const Problem &problem, Bytes limit, Ns cutoff);

  /// Searches until `steps` are spent; they are counted down. Returns whether the enumeration is complete: then order()
  /// is optimal, or no order is shorter than the cutoff. A prefix takes O(N) time and counts as N / 4 steps; their
  /// number is exponential in N.
  bool run(int64_t &steps);

  /// The shortest order that was found; empty if none is shorter than the cutoff.
  const Order &order() const { return best; }
  Ns makespan() const { return cutoff; }

private:
  using Set = PrefixSets::Set;
  /// The clocks after a prefix.
  struct State {
    Set done = 0;
    Bytes live = 0;
    Ns compute = 0;
    llvm::SmallVector<Ns, 8> laneFree;
  };
  /// The clocks on which the rest of an order depends. Their number and order follow from the set of nodes.
  using Clocks = llvm::SmallVector<Ns, 8>;

  static Set bit(NodeId node) { return PrefixSets::bit(node); }
  /// Whether the end of a start that has been placed matters to what follows.
  bool isAwaited(const State &state, NodeId start) const { return (waits[start] & ~state.done) != 0; }
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

  const PrefixSets sets;
  /// Indexed by node: the least time from its turn to the end, ns.
  std::vector<Ns> path;
  /// Indexed by start: when its collective ends in the prefix that is being extended, and the longest path of its
  /// waits.
  std::vector<Ns> endOf, pathOfWaits;
  /// Indexed by start: its waits, and the nodes whose regions wait for it.
  std::vector<Set> waits;
  Order prefix, best;
  llvm::DenseMap<uint64_t, std::vector<Clocks>> seen;
  size_t remembered = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_EXACT_EXACTSEARCH_H
