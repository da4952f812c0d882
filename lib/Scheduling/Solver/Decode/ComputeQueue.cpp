//===- ComputeQueue.cpp - Ready computations in priority order --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Turns a policy into ranks. A key is a time: the compute time before the node in the reference, blended with the slack
// of the node's longest path (the upward rank of list scheduling), plus the deferral of exclusive producers.
//
//===------------------------------------------------------------------------------------------===//

#include "ComputeQueue.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Deferring the producers of a start is worth it if they take more than this share of what the start takes, permille.
static constexpr int64_t kLeastGain = 1000;

/// The priority of a compute: a time between its position in the reference and its longest path.
Ns ComputeQueue::keyOf(const Reference &reference, const Policy &policy, NodeId node) const {
  Ns total = reference.computeBefore.back();
  Ns before = reference.computeBefore[reference.position[node]];
  NodeId start = facts.exclusiveStart[node];
  bool isLate = before >= mulDiv(total, policy.producersFrom, kPermille);
  if (policy.producerDelay > 0 && isLate && start != kNone && reference.terminal[start] &&
      facts.gainOfDeferral[start] > kLeastGain)
    before += mulDiv(total, policy.producerDelay, kPermille);
  if (policy.tailShare == 0)
    return before;
  Ns path = mulDiv(facts.criticalPath - facts.tail[node], total, facts.criticalPath);
  return mulDiv(kPermille - policy.tailShare, before, kPermille) + mulDiv(policy.tailShare, path, kPermille);
}

/// A wait ranks just before its first user. Ties keep the order of the reference.
void ComputeQueue::reset(const Reference &reference, const Policy &policy) {
  struct Entry {
    Ns key;
    int32_t position;
  };
  const Problem &problem = facts.problem;
  std::vector<Ns> key(problem.size());
  std::vector<Entry> entries;
  entries.reserve(problem.size());
  for (NodeId node : llvm::reverse(reference.order)) {
    const Node &info = problem.nodes[node];
    key[node] = keyOf(reference, policy, node);
    if (info.kind == NodeKind::Start)
      continue;
    if (info.kind == NodeKind::Wait) {
      key[node] = reference.computeBefore.back();
      for (NodeId user : problem.succs[node])
        key[node] = std::min(key[node], key[user]);
    }
    if (facts.leader[node] == node)
      entries.push_back({key[node], reference.position[node]});
  }
  llvm::sort(entries,
             [](const Entry &a, const Entry &b) { return a.key != b.key ? a.key < b.key : a.position < b.position; });
  rank.assign(problem.size(), kNone);
  byRank.clear();
  for (const Entry &entry : entries) {
    NodeId node = reference.order[entry.position];
    rank[node] = static_cast<int32_t>(byRank.size());
    byRank.push_back(node);
  }
  ready.reset(static_cast<int32_t>(byRank.size()));
  placedAtRank.assign(byRank.size(), 0);
  front = 0;
}
