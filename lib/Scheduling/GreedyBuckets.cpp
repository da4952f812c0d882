//===- GreedyBuckets.cpp - Buckets by bytes, in program order ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// One walk per key over the problem in which the buckets of the keys before are one node each, so that no two buckets
// come to depend on each other. The walk visits what a node depends on before it, and carries along the last bucket of
// the key that a node depends on: a start may join the open bucket if that is an earlier one. Members of the open
// bucket were visited earlier and cannot depend on the start. Waits depend on their starts alone, so that merging them
// with their starts adds no dependence that the merged start does not have.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/GreedyBuckets.h"

using namespace commsched;

namespace {

class GreedyBucketer {
public:
  GreedyBucketer(const Problem &problem, llvm::ArrayRef<NodeId> candidates, const GreedyBucketOptions &options)
      : problem(problem), options(options), keyOf(problem.size(), kNone), leader(problem.size()),
        membersOf(problem.size()) {
    candidatesOfKey.resize(problem.mergeKeys.size());
    for (NodeId node = 0; node < problem.size(); ++node)
      leader[node] = node;
    for (NodeId start : candidates)
      if (isMergeable(problem, start)) {
        keyOf[start] = problem.nodes[start].mergeKey;
        ++candidatesOfKey[keyOf[start]];
      }
  }

  std::vector<Bucket> run() {
    for (int32_t key = 0; key < static_cast<int32_t>(candidatesOfKey.size()); ++key)
      if (candidatesOfKey[key] > 1)
        runKey(key);
    return std::move(buckets);
  }

private:
  /// Largest bucket of number `index`, bytes.
  Bytes capOf(int32_t index) const {
    if (options.caps.empty())
      return -1;
    size_t place = std::min<size_t>(index, options.caps.size() - 1);
    return options.caps[place];
  }

  /// What stands for a node after the keys before: the nodes of its bucket, or itself.
  llvm::ArrayRef<NodeId> nodesOf(const NodeId &representative) const {
    if (membersOf[representative].empty())
      return representative;
    return membersOf[representative];
  }

  void runKey(int32_t key) {
    numbers.assign(problem.size(), kNone);
    lastBucket.assign(problem.size(), kNone);
    visited.assign(problem.size(), false);
    groups.clear();
    for (NodeId node = 0; node < problem.size(); ++node)
      visit(leader[node], key);
    for (std::vector<NodeId> &group : groups) {
      if (group.size() < 2)
        continue;
      for (NodeId member : group)
        leader[member] = group.front();
      membersOf[group.front()] = group;
      buckets.push_back({std::move(group), options.form});
    }
  }

  /// Depth first, what a node depends on before it.
  void visit(NodeId root, int32_t key) {
    struct Frame {
      NodeId node;
      size_t member, pred;
    };
    if (visited[root])
      return;
    visited[root] = true;
    std::vector<Frame> stack{{root, 0, 0}};
    while (!stack.empty()) {
      Frame &frame = stack.back();
      llvm::ArrayRef<NodeId> members = nodesOf(frame.node);
      if (frame.member == members.size()) {
        leave(frame.node, members, key);
        stack.pop_back();
        continue;
      }
      llvm::ArrayRef<NodeId> preds = problem.preds[members[frame.member]];
      if (frame.pred == preds.size()) {
        ++frame.member;
        frame.pred = 0;
        continue;
      }
      NodeId next = leader[preds[frame.pred++]];
      if (!visited[next]) {
        visited[next] = true;
        stack.push_back({next, 0, 0});
      }
    }
  }

  /// Everything that `node` depends on is known.
  void leave(NodeId node, llvm::ArrayRef<NodeId> members, int32_t key) {
    int32_t last = kNone;
    for (NodeId member : members)
      for (NodeId pred : problem.preds[member]) {
        NodeId before = leader[pred];
        last = std::max(last, std::max(lastBucket[before], numbers[before]));
      }
    lastBucket[node] = last;
    if (keyOf[node] == key)
      numbers[node] = join(node, last);
  }

  /// Puts a start into the open bucket, or into a new one.
  int32_t join(NodeId start, int32_t last) {
    int32_t open = static_cast<int32_t>(groups.size()) - 1;
    Bytes bytes = problem.nodes[start].bytes, cap = capOf(std::max(open, 0));
    bool fits = open >= 0 && last < open && (cap < 0 || (openBytes <= cap && bytes <= cap - openBytes));
    if (!fits) {
      groups.emplace_back();
      openBytes = 0;
      ++open;
    }
    groups.back().push_back(start);
    openBytes += bytes;
    return open;
  }

  const Problem &problem;
  const GreedyBucketOptions &options;
  /// Of each node: its key if it is a candidate.
  std::vector<int32_t> keyOf;
  std::vector<int32_t> candidatesOfKey;
  /// Of each node: the first member of its bucket, or itself; of first members: the bucket.
  std::vector<NodeId> leader;
  std::vector<std::vector<NodeId>> membersOf;
  std::vector<Bucket> buckets;
  /// Of the key being walked: each start's bucket, the last bucket that each node depends on, and the buckets.
  std::vector<int32_t> numbers, lastBucket;
  std::vector<bool> visited;
  std::vector<std::vector<NodeId>> groups;
  Bytes openBytes = 0;
};

} // namespace

std::vector<Bucket> commsched::greedyBuckets(const Problem &problem, llvm::ArrayRef<NodeId> candidates,
                                             const GreedyBucketOptions &options) {
  return GreedyBucketer(problem, candidates, options).run();
}
