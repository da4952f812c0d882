//===- LowestPeak.cpp - Orders of small problems with the lowest peak -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The least of the largest weights on a path (a bottleneck path), from the empty set of nodes to the set of all, by
// Dijkstra's method. Below the limit all peaks are equal, and larger sets come first.
//
//===------------------------------------------------------------------------------------------===//

#include "ExactSearch.h"
#include "llvm/ADT/bit.h"
#include <algorithm>
#include <queue>

using namespace commsched;

namespace {

using Set = PrefixSets::Set;

/// A prefix on the way to a set: what it needs, and its last node.
struct Reached {
  Bytes peak = 0, live = 0;
  NodeId last = kNone;
  bool isSettled = false;
};

/// A set that may be settled next. The lowest peak comes first, then the largest set.
struct Candidate {
  Bytes peak;
  int32_t missing;
  Set set;
  bool operator<(const Candidate &other) const {
    return std::tuple(peak, missing, set) > std::tuple(other.peak, other.missing, other.set);
  }
};

class LowestPeak {
public:
  LowestPeak(const Problem &problem, Bytes limit) : size(problem.size()), limit(limit), sets(problem) {}

  std::optional<Order> run(int64_t &steps) {
    const Set all = size == 0 ? 0 : ~Set(0) >> (64 - size);
    reach(0, {0, sets.liveAtFirst()});
    while (!open.empty()) {
      const Set set = open.top().set;
      open.pop();
      if (set == all)
        return orderOf(set);
      Reached &here = reached[set];
      if (std::exchange(here.isSettled, true))
        continue;
      steps -= 1 + size / kNodesPerStep;
      if (steps <= 0)
        return std::nullopt;
      const Reached from = here;
      for (NodeId node = 0; node < size; ++node)
        if (sets.isReady(set, node))
          extend(set, from, node);
    }
    return std::nullopt;
  }

private:
  static constexpr int64_t kNodesPerStep = 4;

  void extend(Set set, const Reached &from, NodeId node) {
    const Set next = set | PrefixSets::bit(node);
    const Bytes peak = std::max(from.peak, sets.peakAt(from.live, node));
    auto known = reached.find(next);
    if (known == reached.end() || peak < known->second.peak)
      reach(next, {peak, sets.liveBehind(from.live, next, node), node});
  }

  void reach(Set set, const Reached &by) {
    reached[set] = by;
    open.push({std::max(by.peak, limit), size - llvm::popcount(set), set});
  }

  Order orderOf(Set set) const {
    Order order;
    for (NodeId last; set != 0; set &= ~PrefixSets::bit(last))
      order.push_back(last = reached.lookup(set).last);
    std::reverse(order.begin(), order.end());
    return order;
  }

  const NodeId size;
  const Bytes limit;
  const PrefixSets sets;
  /// Indexed by set: the way to it with the lowest peak so far.
  llvm::DenseMap<Set, Reached> reached;
  std::priority_queue<Candidate> open;
};

} // namespace

std::optional<Order> commsched::findLowestPeak(const Problem &problem, Bytes limit, int64_t &steps) {
  return LowestPeak(problem, limit).run(steps);
}
