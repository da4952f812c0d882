//===- DeferralBound.cpp - The cost of a long collective late in the block --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemmas 9, 20 and 29 of Bounds.md. The code bounds the compute time that deferral can save: what is deferred counts
// only as far as it exceeds the collectives that are deferred with it.
//
//===------------------------------------------------------------------------------------------===//

#include "DeferralBound.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <memory>

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

/// What the compute lane saves if nodes come after a start, and everything that depends on them does too (Lemma 29). Of
/// the dependences of each node, only that on one node behind it is looked at.
class Followers {
public:
  /// `lane` is that of the start. O(N + E).
  Followers(const Problem &problem, const BoundCosts &costs, LaneId lane)
      : problem(problem), next(problem.size(), kNone), work(costs.compute) {
    // By node: the last start of the lane that its results lead to without another one of the lane between.
    std::vector<NodeId> user(problem.size(), kNone);
    for (NodeId node = problem.size() - 1; node >= 0; --node) {
      for (NodeId succ : problem.succs[node])
        if (next[node] == kNone || std::pair(user[succ], succ) > std::pair(user[next[node]], next[node]))
          next[node] = succ;
      user[node] = next[node] == kNone ? kNone : user[next[node]];
      if (problem.nodes[node].kind == NodeKind::Start && problem.nodes[node].lane == lane) {
        work[node] -= costs.lane[node];
        user[node] = node;
      }
    }
  }

  /// The most that is saved behind `last`, ns, if nothing in `before` comes after it. O(N + E).
  Ns mostSaved(NodeId last, llvm::ArrayRef<char> before) const {
    std::vector<char> mustFollow(problem.size(), 0);
    std::vector<Ns> saved = work;
    Ns sum = 0;
    for (NodeId node = last; node < problem.size(); ++node)
      if (node == last || mustFollow[node])
        for (NodeId succ : problem.succs[node])
          // A start that keeps its order behind `last` may be in one bucket with it.
          mustFollow[succ] |= node != last || problem.nodes[succ].kind != NodeKind::Start;
    for (NodeId node = 0; node < problem.size(); ++node) {
      if (before[node])
        continue;
      Ns kept = mustFollow[node] ? saved[node] : std::max<Ns>(saved[node], 0);
      (next[node] == kNone ? sum : saved[next[node]]) += kept;
    }
    return sum;
  }

private:
  const Problem &problem;
  /// Indexed by node: a node that depends on it, or kNone; and what it takes of the compute lane, less what it takes of
  /// the start's lane if it is a start there, ns.
  std::vector<NodeId> next;
  std::vector<Ns> work;
};

/// What can be saved by deferral, ns.
class Savings {
public:
  Savings(const Problem &problem, const BoundCosts &costs, const BucketShares *shares)
      : problem(problem), costs(costs), ofStart(problem.size(), 0) {
    const std::vector<NodeId> exclusiveStart = exclusiveStarts(problem);
    for (NodeId node = 0; node < problem.size(); ++node)
      if (costs.compute[node] > 0)
        work.push_back({node, exclusiveStart[node], costs.compute[node]});
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

  /// Prepares mostSaved() for the starts whose ancestors, with themselves, are `before`. O(N).
  void chooseStarts(llvm::ArrayRef<char> before) {
    ofStart.assign(problem.size(), 0);
    ofOthers = floating = 0;
    for (const Work &piece : work)
      if (!before[piece.node])
        (piece.start != kNone ? ofStart[piece.start] : ofOthers) += piece.cost;
    // Additional work of a gather is certain to come before the last start only if what waits for the gather does.
    for (const BoundCosts::Floating &piece : costs.floating)
      if (!before[piece.last])
        floating += piece.cost;
    ofOthers += floating;
  }

  /// The largest compute time that can be saved by deferral behind the last one of the starts that were chosen, if that
  /// is `last`. Latencies are looked at only if a saving below `enough` may result. O(starts).
  Most mostSaved(NodeId last, llvm::ArrayRef<char> before, Ns enough) {
    const LaneId lane = problem.nodes[last].lane;
    auto [followers, isNew] = followersOn.try_emplace(lane, nullptr);
    if (isNew)
      followers->second = std::make_unique<Followers>(problem, costs, lane);
    Ns saved = ofOthers, ofMembers = 0;
    // The work for a start on another lane is saved whole.
    auto add = [&](llvm::ArrayRef<NodeId> starts, Ns &here) {
      for (NodeId start : starts)
        if (ofStart[start] > 0 && problem.nodes[start].lane == lane)
          here += std::max<Ns>(ofStart[start] - costs.lane[start], 0);
        else
          saved += ofStart[start];
    };
    add(apart, saved);
    for (llvm::ArrayRef<NodeId> list : members)
      add(list, ofMembers);
    const Ns plain = floating + followers->second->mostSaved(last, before);
    Most most = {plain, plain};
    most.withLatencies = saved < enough ? std::min(most.plain, saved + mostWithLatencies(lane)) : most.plain;
    return most;
  }

private:
  /// What a computation takes of the compute lane, and the start that alone needs it, or kNone.
  struct Work {
    NodeId node, start;
    Ns cost;
  };

  /// What deferring members on a lane saves at most, if each key has one latency for all that is deferred.
  Ns mostWithLatencies(LaneId lane) {
    if (batches.empty())
      for (auto [key, list] : llvm::zip_equal(problem.mergeKeys, members))
        batches.push_back(list.empty() ? std::nullopt : std::optional<KeyBatches>(std::in_place, problem, key, list));
    Ns saved = 0;
    for (auto [key, list] : llvm::zip_equal(batches, members)) {
      const bool isOnLane = key && problem.nodes[list.front()].lane == lane;
      Ns least = isOnLane ? INT64_MAX : 0;
      for (int64_t share = 0; isOnLane && share <= KeyBatches::kLatencies; ++share) {
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
  std::vector<Work> work;
  /// Indexed by start: the work on the compute lane that may be deferred with it, ns; and all that is deferred without.
  std::vector<Ns> ofStart;
  Ns ofOthers = 0;
  /// What of the latter is additional work of gathers, ns.
  Ns floating = 0;
  /// By lane, once it is needed.
  llvm::DenseMap<LaneId, std::unique_ptr<Followers>> followersOn;
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
  const size_t longest = std::min(starts.size(), kLongest);
  std::partial_sort(starts.begin(), starts.begin() + longest, starts.end(), [&](NodeId a, NodeId b) {
    return costs.path[a] != costs.path[b] ? costs.path[a] > costs.path[b] : a < b;
  });
  starts.resize(longest);

  DeferralBounds bounds;
  Savings savings(problem, costs, shares);
  auto raise = [&](llvm::ArrayRef<NodeId> chosen, llvm::ArrayRef<char> before) {
    DeferralBound plain = {INT64_MAX, kNone, chosen.vec()}, withLatencies = plain;
    savings.chooseStarts(before);
    for (NodeId last : chosen) {
      // The start's own issue cost follows the beginning of its collective.
      Ns all = compute - costs.compute[last] + costs.path[last];
      Savings::Most most = savings.mostSaved(last, before, all - floor);
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
  std::vector<char> beforeAny(problem.size(), 0);
  for (size_t index = 0; index < starts.size(); ++index) {
    std::vector<char> before = ancestorsOf(problem, starts[index]);
    raise(starts[index], before);
    for (NodeId node = 0; node < problem.size(); ++node)
      beforeAny[node] |= before[node];
    if (index > 0)
      raise(llvm::ArrayRef<NodeId>(starts).take_front(index + 1), beforeAny);
  }
  return bounds;
}
