//===- IntervalBound.cpp - A lower bound on the time of one iteration -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/IntervalBound.h"
#include "CommSched/Scheduling/Answer/Variants.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Support/Arithmetic.h"

using namespace commsched;

namespace {

/// Looks for recurrences that do not fit into an interval.
class Recurrences {
public:
  Recurrences(const Problem &body, llvm::ArrayRef<CarriedEdge> carried) : body(body), carried(carried) {}

  /// Whether no recurrence needs more than `interval` per iteration. Longest paths, round by round: one round follows
  /// the edges inside the body and then those to the next iteration. A path without a cycle takes each of the latter at
  /// most once, so a path that still grows after as many rounds has a cycle that is too long.
  bool fit(Ns interval) const {
    std::vector<Wide> begin(body.size(), 0);
    for (size_t round = 0; round <= carried.size(); ++round) {
      for (NodeId node = 0; node < body.size(); ++node)
        for (NodeId before : body.preds[node])
          begin[node] = std::max(begin[node], begin[before] + timeBetween(before, node));
      bool grows = false;
      for (const CarriedEdge &edge : carried) {
        Wide after = begin[edge.from] + timeBetween(edge.from, edge.to) - interval;
        grows |= after > begin[edge.to];
        begin[edge.to] = std::max(begin[edge.to], after);
      }
      if (!grows)
        return true;
    }
    return false;
  }

private:
  /// The least time from the begin of a node to that of one that depends on it. Only the wait for a collective waits
  /// for the transfer, which begins with the issue.
  Ns timeBetween(NodeId before, NodeId after) const {
    const Node &node = body.nodes[before];
    if (node.kind != NodeKind::Start)
      return node.cost;
    return body.nodes[after].start == before ? std::max(node.issue, node.cost) : node.issue;
  }

  const Problem &body;
  llvm::ArrayRef<CarriedEdge> carried;
};

/// The body with no edges but those from starts to their waits.
Problem withoutDependences(const Problem &body) {
  Problem result = body;
  result.preds = IndexLists();
  for (const Node &node : body.nodes) {
    llvm::SmallVector<NodeId, 1> kept;
    if (node.start != kNone)
      kept.push_back(node.start);
    result.preds.append(kept);
  }
  result.finalize();
  return result;
}

} // namespace

Ns commsched::recurrenceBound(const Problem &body, llvm::ArrayRef<CarriedEdge> carried) {
  const Problem least = withLeastVariants(body);
  Recurrences recurrences(least, carried);
  Ns low = 0, high = 0;
  for (const Node &node : least.nodes)
    high = saturateAmount(static_cast<Wide>(high) + node.cost + node.issue);
  while (low < high) {
    Ns middle = low + (high - low) / 2;
    if (recurrences.fit(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

Ns commsched::intervalBound(const Problem &body, llvm::ArrayRef<CarriedEdge> carried) {
  return std::max(recurrenceBound(body, carried), jointLowerBound(withoutDependences(body)).makespan);
}
