//===- OverlapListScheduler.cpp - A list scheduler after three of Inductor's passes -----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Kahn's algorithm over nodes that are ranked by their keys beforehand, with two sets of ready ranks: all nodes, and
// the computes that may fill the time of a collective.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "Problem/RankSet.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

bool isCollective(const Node &node) { return node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid; }

class ListScheduler {
public:
  ListScheduler(const Problem &problem, llvm::ArrayRef<NodeId> order, const OverlapListOptions &options)
      : problem(problem), given(order), options(options), unmet(problem.size()), ready(problem.size()),
        readyComputes(problem.size()) {
    rank();
  }

  Order run() {
    result.reserve(problem.size());
    for (NodeId id : given) {
      unmet[id] = static_cast<int32_t>(problem.preds[id].size());
      if (unmet[id] == 0)
        makeReady(id);
    }
    while (!ready.empty()) {
      NodeId next = byRank[ready.first()];
      emit(next);
      if (options.fillWithCompute && isCollective(problem.nodes[next]))
        fill(problem.nodes[next].cost);
    }
    return std::move(result);
  }

private:
  /// Ranks the nodes by their keys with a counting sort, in the given order. O(N + E).
  void rank() {
    std::vector<int32_t> leadsTo(problem.size(), INT32_MAX);
    int32_t collectives = 0;
    if (options.raiseStarts)
      for (NodeId id : given)
        if (isCollective(problem.nodes[id]))
          leadsTo[id] = collectives++;
    for (NodeId id : llvm::reverse(given))
      for (NodeId pred : problem.preds[id])
        leadsTo[pred] = std::min(leadsTo[pred], leadsTo[id]);
    auto keyOf = [&](NodeId id) {
      bool wait = options.sinkWaits && problem.nodes[id].kind == NodeKind::Wait;
      return 2 * std::min(leadsTo[id], collectives) + wait;
    };
    std::vector<int32_t> next(2 * collectives + 3, 0);
    for (NodeId id : given)
      ++next[keyOf(id) + 1];
    for (size_t key = 1; key < next.size(); ++key)
      next[key] += next[key - 1];
    rankOf.resize(problem.size());
    byRank.resize(problem.size());
    for (NodeId id : given) {
      rankOf[id] = next[keyOf(id)]++;
      byRank[rankOf[id]] = id;
    }
  }

  void makeReady(NodeId id) {
    ready.insert(rankOf[id]);
    if (options.fillWithCompute && problem.nodes[id].kind == NodeKind::Compute)
      readyComputes.insert(rankOf[id]);
  }

  void emit(NodeId id) {
    ready.erase(rankOf[id]);
    readyComputes.erase(rankOf[id]);
    result.push_back(id);
    for (NodeId succ : problem.succs[id])
      if (--unmet[succ] == 0)
        makeReady(succ);
  }

  void fill(Ns uncovered) {
    while (uncovered > 0 && !readyComputes.empty()) {
      NodeId next = byRank[readyComputes.first()];
      emit(next);
      uncovered -= problem.nodes[next].cost;
    }
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> given;
  const OverlapListOptions &options;
  std::vector<int32_t> unmet, rankOf;
  std::vector<NodeId> byRank;
  /// Ranks of the nodes whose predecessors have all been placed, and of the computes among them.
  RankSet ready, readyComputes;
  Order result;
};

/// Records how far each start moved up, or each wait down if only waits sink, and which node is next to it.
std::vector<CollectiveRecord> describeMoves(const Problem &problem, llvm::ArrayRef<NodeId> before,
                                            llvm::ArrayRef<NodeId> after, const OverlapListOptions &options) {
  std::vector<int32_t> from(problem.size()), to(problem.size());
  for (int32_t at = 0; at < problem.size(); ++at)
    from[before[at]] = at, to[after[at]] = at;
  std::vector<CollectiveRecord> records;
  for (NodeId id : before) {
    const Node &node = problem.nodes[id];
    bool mover = options.raiseStarts ? node.kind == NodeKind::Start : node.kind == NodeKind::Wait;
    if (!mover)
      continue;
    CollectiveRecord record;
    record.node = id;
    record.moves = options.raiseStarts ? from[id] - to[id] : to[id] - from[id];
    // The nearest node that it depends on, or that depends on it.
    for (NodeId other : options.raiseStarts ? problem.preds[id] : problem.succs[id])
      if (record.blocker == kNone ||
          (options.raiseStarts ? to[other] > to[record.blocker] : to[other] < to[record.blocker]))
        record.blocker = other;
    record.factor = record.blocker == kNone ? LimitingFactor::BlockEnd : LimitingFactor::DataDependence;
    records.push_back(record);
  }
  return records;
}

} // namespace

Schedule commsched::scheduleForOverlap(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                       const OverlapListOptions &options) {
  Schedule result;
  result.order = ListScheduler(problem, order, options).run();
  result.records = describeMoves(problem, order, result.order, options);
  measureExposure(problem, order, result);
  return result;
}
