//===- GreedyBuckets.cpp - Buckets up to a size, in program order -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The traversal that GreedyBuckets.h describes: emit what is ready, pool candidates, and flush one pool when nothing
// else is ready.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/GreedyBuckets.h"
#include <limits>
#include <queue>

using namespace commsched;

namespace {

class GreedyBucketer {
public:
  GreedyBucketer(const Problem &problem, llvm::ArrayRef<NodeId> candidates, const GreedyBucketOptions &options)
      : problem(problem), options(options), keyOf(problem.size(), kNone), height(problem.size(), 0),
        missing(problem.size()), gone(problem.size(), false), keys(problem.mergeKeys.size()) {
    for (size_t key = 0; key < keys.size(); ++key) {
      auto caps = options.capsOfKind.find(problem.mergeKeys[key].kind);
      keys[key].caps = caps == options.capsOfKind.end() || caps->second.empty() ? options.caps : caps->second;
    }
    for (NodeId start : candidates)
      if (isMergeable(problem, start)) {
        keyOf[start] = problem.nodes[start].mergeKey;
        ++keys[keyOf[start]].absent;
      }
  }

  std::vector<Bucket> run() {
    for (NodeId node = problem.size(); node-- > 0;)
      for (NodeId succ : problem.succs[node])
        height[node] = std::max(height[node], height[succ] + (keyOf[succ] != kNone));
    for (NodeId node = 0; node < problem.size(); ++node)
      missing[node] = static_cast<int32_t>(problem.preds[node].size());
    for (NodeId node = 0; node < problem.size(); ++node)
      if (missing[node] == 0)
        arrive(node);
    while (true) {
      walk();
      if (!complete.empty())
        giveAll();
      else if (!giveLongestChain())
        return std::move(buckets);
    }
  }

private:
  struct Key {
    /// Candidates that could go, the first in program order on top.
    std::priority_queue<NodeId, std::vector<NodeId>, std::greater<NodeId>> pool;
    /// Candidates that are not in the pool yet.
    int32_t absent = 0;
    /// Buckets so far, those of one member included.
    int32_t buckets = 0;
    /// Of buckets by their number.
    llvm::ArrayRef<Bytes> caps;
  };

  /// Limit on the next bucket of a key, bytes; without a cap, the largest number.
  static Bytes nextCap(const Key &key) {
    Bytes cap = key.caps.empty() ? -1 : key.caps[std::min<size_t>(key.buckets, key.caps.size() - 1)];
    return cap < 0 ? std::numeric_limits<Bytes>::max() : cap;
  }

  /// All dependences of `node` have been emitted: emits it, or pools it if it is a candidate.
  void arrive(NodeId node) {
    if (keyOf[node] == kNone) {
      going.push_back(node);
      return;
    }
    Key &key = keys[keyOf[node]];
    key.pool.push(node);
    if (--key.absent == 0)
      complete.push_back(keyOf[node]);
    chains.push({height[node], -node});
  }

  /// Emits all ready nodes.
  void walk() {
    while (!going.empty()) {
      NodeId node = going.back();
      going.pop_back();
      for (NodeId succ : problem.succs[node])
        if (--missing[succ] == 0)
          arrive(succ);
    }
  }

  /// Flushes the pool of a key whose candidates have all arrived.
  void giveAll() {
    Key &key = keys[complete.back()];
    complete.pop_back();
    while (!key.pool.empty())
      giveBucket(key);
  }

  /// Flushes the bucket of the candidate that heads the longest chain. Returns false if no candidate is left.
  bool giveLongestChain() {
    while (!chains.empty() && gone[-chains.top().second])
      chains.pop();
    if (chains.empty())
      return false;
    NodeId head = -chains.top().second;
    // The buckets before it are full.
    while (!gone[head])
      giveBucket(keys[keyOf[head]]);
    return true;
  }

  /// Removes from the pool, in program order, the candidates that fit into the next bucket: at least one.
  void giveBucket(Key &key) {
    Bytes cap = nextCap(key), bytes = 0;
    ++key.buckets;
    Bucket bucket;
    bucket.form = options.form;
    while (!key.pool.empty()) {
      NodeId start = key.pool.top();
      Bytes more = problem.nodes[start].bytes;
      if (more > cap - bytes && !bucket.members.empty())
        break;
      key.pool.pop();
      bytes += more;
      gone[start] = true;
      bucket.members.push_back(start);
      going.push_back(start);
    }
    if (bucket.members.size() > 1)
      buckets.push_back(std::move(bucket));
  }

  const Problem &problem;
  const GreedyBucketOptions &options;
  /// Indexed by node: its key if it is a candidate.
  std::vector<int32_t> keyOf;
  /// Indexed by node: the number of candidates on the longest chain that depends on it.
  std::vector<int32_t> height;
  /// Indexed by node: the number of its dependences that have not been emitted.
  std::vector<int32_t> missing;
  std::vector<bool> gone;
  std::vector<Key> keys;
  /// Keys whose candidates have all arrived.
  std::vector<int32_t> complete;
  /// Candidates that have arrived, with their heights: longest chain first, then program order.
  std::priority_queue<std::pair<int32_t, NodeId>> chains;
  std::vector<NodeId> going;
  std::vector<Bucket> buckets;
};

} // namespace

std::vector<Bucket> commsched::greedyBuckets(const Problem &problem, llvm::ArrayRef<NodeId> candidates,
                                             const GreedyBucketOptions &options) {
  return GreedyBucketer(problem, candidates, options).run();
}
