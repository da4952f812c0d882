//===- IntervalBound.cpp - A lower bound on the time of one iteration -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/IntervalBound.h"
#include "BoundArguments.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <tuple>

using namespace commsched;

namespace {

/// Looks for recurrences that do not fit into an interval.
class Recurrences {
public:
  /// `costs` are what the nodes take at least. Keeps references to all arguments.
  Recurrences(const Problem &body, const BoundCosts &costs, llvm::ArrayRef<LoopEdge> carried)
      : body(body), costs(costs), carried(carried) {}

  /// The least interval, ns, into which all recurrences fit.
  Ns leastInterval() const {
    Ns low = 0, high = 0;
    for (NodeId node = 0; node < body.size(); ++node)
      high = saturateAmount(static_cast<Wide>(high) + costs.compute[node] + costs.path[node]);
    while (low < high) {
      Ns middle = low + (high - low) / 2;
      if (findCycle(middle).empty())
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  /// The edges of a cycle that needs more than `interval` per iteration; empty if there is none. Longest paths, round
  /// by round: one round follows the edges inside the body and then those to later iterations. A path without a cycle
  /// takes each of the latter at most once, so if a begin still grows after as many rounds, the edges by which the
  /// begins grew last lead back to a cycle.
  std::vector<LoopEdge> findCycle(Ns interval) const {
    std::vector<Wide> begin(body.size(), 0);
    std::vector<LoopEdge> grownBy(body.size());
    auto follow = [&](LoopEdge edge) {
      Wide after = begin[edge.from] + timeOf(edge) - static_cast<Wide>(interval) * edge.iterations;
      if (after <= begin[edge.to])
        return false;
      begin[edge.to] = after;
      grownBy[edge.to] = edge;
      return true;
    };
    NodeId grown = kNone;
    for (size_t round = 0; round <= carried.size(); ++round) {
      for (NodeId node = 0; node < body.size(); ++node)
        for (NodeId before : body.preds[node])
          follow({before, node, 0});
      grown = kNone;
      for (const LoopEdge &edge : carried)
        if (follow(edge))
          grown = edge.to;
      if (grown == kNone)
        return {};
    }
    return cycleBehind(grown, grownBy);
  }

private:
  /// The least time from the begin of a node to that of one that depends on it. Only what awaits a collective waits for
  /// the transfer, which begins with the issue.
  Ns timeOf(const LoopEdge &edge) const {
    Ns own = costs.compute[edge.from];
    bool isTransfer = body.nodes[edge.from].kind == NodeKind::Start && edge.iterations == 0 && awaits(edge);
    return isTransfer ? std::max(own, costs.path[edge.from]) : own;
  }

  bool awaits(const LoopEdge &edge) const {
    const Node &node = body.nodes[edge.to];
    return node.start == edge.from ||
           (node.region != kNone && llvm::is_contained(body.regions[node.region].starts, edge.from));
  }

  /// The cycle to which the edges lead back from a node.
  static std::vector<LoopEdge> cycleBehind(NodeId node, llvm::ArrayRef<LoopEdge> grownBy) {
    std::vector<bool> isSeen(grownBy.size(), false);
    for (; !isSeen[node]; node = grownBy[node].from)
      isSeen[node] = true;
    std::vector<LoopEdge> cycle;
    NodeId last = node;
    do {
      cycle.push_back(grownBy[node]);
      node = grownBy[node].from;
    } while (node != last);
    std::reverse(cycle.begin(), cycle.end());
    return cycle;
  }

  const Problem &body;
  const BoundCosts &costs;
  llvm::ArrayRef<LoopEdge> carried;
};

/// The body without the edges that a pipeline may carry over iterations.
Problem workOf(const Problem &body) {
  Problem result = body;
  result.preds = IndexLists();
  for (NodeId id = 0; id < body.size(); ++id) {
    llvm::SmallVector<NodeId, 1> kept;
    if (NodeId start = body.nodes[id].start; start != kNone)
      kept.push_back(start);
    if (NodeId cast = body.members.empty() ? kNone : body.members[id].cast; cast != kNone)
      kept.push_back(cast);
    result.preds.append(kept);
  }
  result.finalize();
  return result;
}

std::vector<LoopEdge> edgesOf(const Problem &body, llvm::ArrayRef<LoopEdge> carried) {
  std::vector<LoopEdge> edges(carried.begin(), carried.end());
  for (NodeId node = 0; node < body.size(); ++node)
    for (NodeId before : body.preds[node])
      edges.push_back({before, node, 0});
  llvm::sort(edges, [](const LoopEdge &a, const LoopEdge &b) {
    return std::tuple(a.to, a.iterations, a.from) < std::tuple(b.to, b.iterations, b.from);
  });
  edges.erase(llvm::unique(edges), edges.end());
  return edges;
}

} // namespace

Ns commsched::recurrenceBound(const Problem &body, llvm::ArrayRef<LoopEdge> carried) {
  const Problem least = withLeastVariants(body);
  const BoundCosts costs = leastCosts(least, /*bucketing=*/false);
  return Recurrences(least, costs, carried).leastInterval();
}

IntervalProof commsched::proveInterval(const Problem &body, llvm::ArrayRef<LoopEdge> carried) {
  const Problem least = withLeastVariants(body);
  IntervalProof proof;
  proof.work = workOf(least);
  proof.edges = edgesOf(least, carried);
  proof.load = proveLoad(proof.work, /*bucketing=*/true);
  const BoundCosts costs = leastCosts(proof.work, /*bucketing=*/true);
  Recurrences recurrences(least, costs, carried);
  proof.recurrence = recurrences.leastInterval();
  if (proof.recurrence > 0)
    proof.cycle = recurrences.findCycle(proof.recurrence - 1);
  return proof;
}

Ns commsched::intervalBound(const Problem &body, llvm::ArrayRef<LoopEdge> carried) {
  return proveInterval(body, carried).bound();
}
