//===- DeferralBound.cpp - The cost of a long collective late in the block --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 9 of docs/Bounds.md. The code bounds the compute time that deferral can save: the work of exclusive producers
// counts only as far as it exceeds the collective that is deferred with it.
//
//===------------------------------------------------------------------------------------------===//

#include "DeferralBound.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Number of starts for which the bound is computed, the longest first: its cost is quadratic in this number.
constexpr size_t kLongest = 8;

/// Returns, indexed by node, the only start that uses its results, directly or through other such computes (for a
/// start: itself), or kNone.
std::vector<NodeId> exclusiveStarts(const Problem &problem) {
  std::vector<NodeId> exclusiveStart(problem.size(), kNone);
  for (NodeId node = problem.size() - 1; node >= 0; --node) {
    llvm::ArrayRef<NodeId> users = problem.succs[node];
    if (problem.nodes[node].kind == NodeKind::Start)
      exclusiveStart[node] = node;
    else if (problem.nodes[node].kind == NodeKind::Compute && !users.empty() &&
             llvm::all_of(users, [&](NodeId user) { return exclusiveStart[user] == exclusiveStart[users.front()]; }))
      exclusiveStart[node] = exclusiveStart[users.front()];
  }
  return exclusiveStart;
}

/// The largest compute time that can be saved by deferral behind the last one of `starts`, ns, if that is `last`.
Ns mostSaved(const Problem &problem, const BoundCosts &costs, llvm::ArrayRef<NodeId> exclusiveStart,
             llvm::ArrayRef<NodeId> starts, NodeId last) {
  std::vector<char> before(problem.size(), 0);
  for (NodeId start : starts)
    before[start] = 1;
  for (NodeId node = problem.size() - 1; node >= 0; --node)
    if (before[node])
      for (NodeId pred : problem.preds[node])
        before[pred] = 1;
  std::vector<Ns> ofStart(problem.size(), 0);
  Ns saved = 0;
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (before[node])
      continue;
    NodeId start = exclusiveStart[node];
    bool sameLane = start != kNone && problem.nodes[start].lane == problem.nodes[last].lane;
    (sameLane ? ofStart[start] : saved) += costs.compute[node];
  }
  // Additional work of a gather is certain to come before `last` only if what waits for the gather does.
  for (const BoundCosts::Floating &piece : costs.floating)
    if (!before[piece.last])
      saved += piece.cost;
  for (NodeId start = 0; start < problem.size(); ++start)
    saved += std::max<Ns>(ofStart[start] - costs.lane[start], 0);
  return saved;
}

} // namespace

DeferralBound commsched::deferralBound(const Problem &problem, const BoundCosts &costs) {
  std::vector<NodeId> starts;
  Ns compute = 0;
  for (NodeId node = 0; node < problem.size(); ++node) {
    compute += costs.compute[node];
    if (problem.nodes[node].kind == NodeKind::Start)
      starts.push_back(node);
  }
  for (const BoundCosts::Floating &piece : costs.floating)
    compute += piece.cost;
  llvm::stable_sort(starts, [&](NodeId a, NodeId b) { return costs.path[a] > costs.path[b]; });
  starts.resize(std::min(starts.size(), kLongest));

  DeferralBound bound;
  std::vector<NodeId> exclusiveStart = exclusiveStarts(problem);
  auto raise = [&](llvm::ArrayRef<NodeId> chosen) {
    DeferralBound weakest = {INT64_MAX, kNone, chosen.vec()};
    for (NodeId last : chosen) {
      // The start's own issue cost follows the beginning of its collective.
      Ns makespan =
          compute - costs.compute[last] + costs.path[last] - mostSaved(problem, costs, exclusiveStart, chosen, last);
      if (makespan < weakest.makespan) {
        weakest.makespan = makespan;
        weakest.lane = problem.nodes[last].lane;
      }
    }
    if (weakest.makespan > bound.makespan)
      bound = std::move(weakest);
  };
  for (size_t index = 0; index < starts.size(); ++index) {
    raise(starts[index]);
    if (index > 0)
      raise(llvm::ArrayRef<NodeId>(starts).take_front(index + 1));
  }
  return bound;
}
