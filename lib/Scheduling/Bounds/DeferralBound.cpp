//===- DeferralBound.cpp - The cost of a long collective late in the block --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemmas 9 and 20 of docs/Bounds.md. The code bounds the compute time that deferral can save: the work of exclusive
// producers counts only as far as it exceeds the collective that is deferred with it.
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

/// What can be saved by deferral, ns.
class Savings {
public:
  Savings(const Problem &problem, const BoundCosts &costs, const BucketShares *shares)
      : problem(problem), costs(costs), exclusiveStart(exclusiveStarts(problem)), ofStart(problem.size(), 0) {
    members.resize(problem.mergeKeys.size());
    for (NodeId id = 0; id < problem.size(); ++id) {
      bool isMember = shares && shares->lane[id] != kNone;
      if (isMember)
        members[problem.nodes[id].mergeKey].push_back(id);
      else if (problem.nodes[id].kind == NodeKind::Start)
        apart.push_back(id);
    }
  }

  struct Most {
    Ns plain = 0, withLatencies = 0;
  };

  /// The largest compute time that can be saved by deferral behind the last one of the starts whose ancestors, with
  /// themselves, are `before`, if that is `last`. Latencies are looked at only if a saving below `enough` may result.
  Most mostSaved(llvm::ArrayRef<char> before, NodeId last, Ns enough) {
    ofStart.assign(problem.size(), 0);
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
    auto withStarts = [&](llvm::ArrayRef<NodeId> starts) {
      Ns sum = 0;
      for (NodeId start : starts)
        sum += std::max<Ns>(ofStart[start] - costs.lane[start], 0);
      return sum;
    };
    saved += withStarts(apart);
    Most most = {saved, saved};
    for (llvm::ArrayRef<NodeId> list : members)
      most.plain += withStarts(list);
    most.withLatencies = saved < enough ? std::min(most.plain, saved + mostWithLatencies()) : most.plain;
    return most;
  }

private:
  /// What deferring members saves at most, if each key has one latency for all that is deferred.
  Ns mostWithLatencies() {
    if (batches.empty())
      for (auto [key, list] : llvm::zip_equal(problem.mergeKeys, members))
        batches.push_back(list.empty() ? std::nullopt : std::optional<KeyBatches>(std::in_place, problem, key, list));
    Ns saved = 0;
    for (auto [key, list] : llvm::zip_equal(batches, members)) {
      Ns least = key ? INT64_MAX : 0;
      for (int64_t share = 0; key && share <= KeyBatches::kLatencies; ++share) {
        key->setLatency(share);
        Ns sum = -key->latency();
        for (NodeId id : list)
          if (ofStart[id] > 0)
            sum += std::max<Ns>(ofStart[id] - key->costOf(problem.nodes[id].bytes), 0);
        least = std::min(least, std::max<Ns>(sum, 0));
      }
      saved += least;
    }
    return saved;
  }

  const Problem &problem;
  const BoundCosts &costs;
  const std::vector<NodeId> exclusiveStart;
  /// Indexed by start: the work on the compute lane that may be deferred with it, ns.
  std::vector<Ns> ofStart;
  /// Starts that cannot be merged.
  std::vector<NodeId> apart;
  /// By merge key: the members, none without bucketing; and, once they are needed, their lines, none without members.
  std::vector<std::vector<NodeId>> members;
  std::vector<std::optional<KeyBatches>> batches;
};

} // namespace

std::vector<char> commsched::ancestorsOf(const Problem &problem, llvm::ArrayRef<NodeId> starts) {
  std::vector<char> before(problem.size(), 0);
  for (NodeId start : starts)
    before[start] = 1;
  for (NodeId node = problem.size() - 1; node >= 0; --node)
    if (before[node])
      for (NodeId pred : problem.preds[node])
        before[pred] = 1;
  return before;
}

DeferralBounds commsched::deferralBounds(const Problem &problem, const BoundCosts &costs, const BucketShares *shares,
                                         Ns floor) {
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

  DeferralBounds bounds;
  Savings savings(problem, costs, shares);
  auto raise = [&](llvm::ArrayRef<NodeId> chosen) {
    DeferralBound plain = {INT64_MAX, kNone, chosen.vec()}, withLatencies = plain;
    std::vector<char> before = ancestorsOf(problem, chosen);
    for (NodeId last : chosen) {
      // The start's own issue cost follows the beginning of its collective.
      Ns all = compute - costs.compute[last] + costs.path[last];
      Savings::Most most = savings.mostSaved(before, last, all - floor);
      for (auto [weakest, saved] : {std::pair(&plain, most.plain), std::pair(&withLatencies, most.withLatencies)})
        if (all - saved < weakest->makespan) {
          weakest->makespan = all - saved;
          weakest->lane = problem.nodes[last].lane;
        }
    }
    if (plain.makespan > bounds.plain.makespan)
      bounds.plain = std::move(plain);
    if (withLatencies.makespan > bounds.withLatencies.makespan)
      bounds.withLatencies = std::move(withLatencies);
  };
  for (size_t index = 0; index < starts.size(); ++index) {
    raise(starts[index]);
    if (index > 0)
      raise(llvm::ArrayRef<NodeId>(starts).take_front(index + 1));
  }
  return bounds;
}
