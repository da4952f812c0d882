//===- GreedyBucketsTest.cpp - Tests of the greedy bucketing rule -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Random problems against the definition, with expandBuckets() as the judge of legality, a transitive closure as that
// of independence, and all partitions of a few collectives as that of how much can be merged.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/GreedyBuckets.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <set>

using namespace commsched;
using namespace commsched::test;

namespace {

std::vector<NodeId> allStarts(const Problem &problem) {
  std::vector<NodeId> starts;
  for (NodeId node = 0; node < problem.size(); ++node)
    if (problem.nodes[node].kind == NodeKind::Start)
      starts.push_back(node);
  return starts;
}

Bytes bytesOf(const Problem &problem, const Bucket &bucket) {
  Bytes bytes = 0;
  for (NodeId member : bucket.members)
    bytes += problem.nodes[member].bytes;
  return bytes;
}

/// Whether `to` depends on `from`, by search.
bool dependsOn(const Problem &problem, NodeId to, NodeId from) {
  std::vector<NodeId> worklist{to};
  std::vector<bool> seen(problem.size(), false);
  while (!worklist.empty()) {
    NodeId node = worklist.back();
    worklist.pop_back();
    for (NodeId pred : problem.preds[node]) {
      if (pred == from)
        return true;
      if (!seen[pred]) {
        seen[pred] = true;
        worklist.push_back(pred);
      }
    }
  }
  return false;
}

// Tests that the answer is always legal, keeps the caps and the keys, and has no member that depends on another.
TEST(GreedyBuckets, LegalOnRandomProblems) {
  int64_t merged = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomOptions random;
    random.nodes = 60;
    random.chanceOfStart = 50;
    random.chanceOfCoalesced = 0;
    random.chanceOfSecondWait = 0;
    random.chanceOfMergeable = 90;
    Problem problem = randomProblem(seed, random);
    if (problem.mergeKeys.empty())
      continue;
    GreedyBucketOptions options;
    options.form = seed % 2 ? BucketForm::Packed : BucketForm::Coalesced;
    if (seed % 3 == 0)
      options.caps = {1000};
    std::vector<Bucket> buckets = greedyBuckets(problem, allStarts(problem), options);
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, buckets);
    ASSERT_TRUE(static_cast<bool>(expanded)) << "seed " << seed << ": " << llvm::toString(expanded.takeError());
    EXPECT_EQ(expanded->problem.validate(), "") << "seed " << seed;
    for (const Bucket &bucket : buckets) {
      merged += bucket.members.size();
      ASSERT_GE(bucket.members.size(), 2u);
      if (seed % 3 == 0) {
        EXPECT_LE(bytesOf(problem, bucket), 1000);
      }
      for (NodeId a : bucket.members)
        for (NodeId b : bucket.members)
          EXPECT_FALSE(a != b && dependsOn(problem, a, b)) << "seed " << seed;
    }
  }
  EXPECT_GT(merged, 2000);
}

/// `count` independent all-gathers of `bytes` each, or a chain.
Problem gathers(int32_t count, Bytes bytes, bool chain) {
  Problem problem;
  problem.laneNames = {"compute", "dp"};
  problem.copyCost = [](Bytes, Bytes) -> Ns { return 1; };
  MergeKey key;
  key.lane = 1;
  key.ranks = 4;
  key.cost = [](Bytes total) -> Ns { return 10 + total; };
  problem.mergeKeys.push_back(key);
  for (int32_t index = 0; index < count; ++index) {
    NodeId start = problem.size();
    BufferId output = static_cast<BufferId>(problem.buffers.size());
    problem.buffers.push_back({bytes, start, true});
    Node node;
    node.kind = NodeKind::Start;
    node.lane = 1;
    node.mergeKey = 0;
    node.bytes = bytes;
    node.cost = key.cost(bytes);
    problem.nodes.push_back(node);
    bool depends = chain && index > 0;
    problem.preds.append(depends ? std::vector<NodeId>{start - 1} : std::vector<NodeId>{});
    std::vector<BufferId> touched{output};
    if (depends)
      touched.insert(touched.begin(), output - 1);
    problem.touches.append(touched);
    MergeMember member;
    member.wait = start + 1;
    member.output = output;
    member.input = depends ? output - 1 : kNone;
    member.inputBytes = bytes / 4;
    member.outputBytes = bytes;
    problem.members.push_back(member);
    Node wait;
    wait.kind = NodeKind::Wait;
    wait.start = start;
    problem.nodes.push_back(wait);
    problem.preds.append({start});
    problem.touches.append(touched);
    problem.members.emplace_back();
  }
  problem.finalize();
  return problem;
}

/// Adds an all-reduce of `key` and its wait.
NodeId addReduce(Problem &problem, int32_t key, Bytes bytes, llvm::ArrayRef<NodeId> preds) {
  NodeId id = problem.size();
  BufferId output = static_cast<BufferId>(problem.buffers.size());
  problem.buffers.push_back({bytes, id, false});
  Node start;
  start.kind = NodeKind::Start;
  start.lane = key + 1;
  start.mergeKey = key;
  start.bytes = bytes;
  problem.nodes.push_back(start);
  problem.preds.append(preds);
  problem.touches.append({output});
  MergeMember member;
  member.wait = id + 1;
  member.output = output;
  member.inputBytes = member.outputBytes = bytes;
  problem.members.push_back(member);
  Node wait;
  wait.kind = NodeKind::Wait;
  wait.start = id;
  problem.nodes.push_back(wait);
  problem.preds.append({id});
  problem.touches.append({output});
  problem.members.emplace_back();
  return id + 1;
}

/// All-reduces of `keys` keys and computes, half and half, each behind up to three earlier ones.
Problem randomGraph(uint64_t seed, int32_t nodes, int32_t keys) {
  Random random(seed);
  Problem problem;
  problem.laneNames = {"compute"};
  problem.copyCost = [](Bytes, Bytes) -> Ns { return 1; };
  for (int32_t index = 0; index < keys; ++index) {
    problem.laneNames.push_back("g" + std::to_string(index));
    MergeKey key;
    key.kind = CollectiveKind::AllReduce;
    key.lane = index + 1;
    key.ranks = 4;
    key.cost = [](Bytes bytes) -> Ns { return 10 + bytes; };
    problem.mergeKeys.push_back(key);
  }
  std::vector<NodeId> results;
  while (static_cast<int32_t>(results.size()) < nodes) {
    std::set<NodeId> preds;
    for (int64_t left = results.empty() ? 0 : random.below(4); left > 0; --left)
      preds.insert(results[random.below(static_cast<int64_t>(results.size()))]);
    std::vector<NodeId> sorted(preds.begin(), preds.end());
    if (random.percent(50)) {
      results.push_back(
          addReduce(problem, static_cast<int32_t>(random.below(keys)), 64 * random.between(1, 8), sorted));
      continue;
    }
    results.push_back(problem.size());
    problem.nodes.emplace_back();
    problem.preds.append(sorted);
    problem.touches.append({});
    problem.members.emplace_back();
  }
  problem.finalize();
  return problem;
}

/// The most collectives that any legal buckets save: tries every partition of `left` behind those in `buckets`.
int64_t mostSaved(const Problem &problem, llvm::ArrayRef<NodeId> left, std::vector<Bucket> &buckets) {
  if (left.empty()) {
    std::vector<Bucket> real;
    int64_t saved = 0;
    for (const Bucket &bucket : buckets)
      if (bucket.members.size() > 1) {
        real.push_back(bucket);
        saved += static_cast<int64_t>(bucket.members.size()) - 1;
      }
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, real);
    if (expanded)
      return saved;
    llvm::consumeError(expanded.takeError());
    return 0;
  }
  int64_t best = 0;
  for (size_t index = 0; index <= buckets.size(); ++index) {
    bool fresh = index == buckets.size();
    if (!fresh && problem.nodes[buckets[index].members.front()].mergeKey != problem.nodes[left.front()].mergeKey)
      continue;
    if (fresh)
      buckets.emplace_back();
    buckets[index].members.push_back(left.front());
    best = std::max(best, mostSaved(problem, left.drop_front(), buckets));
    buckets[index].members.pop_back();
    if (fresh)
      buckets.pop_back();
  }
  return best;
}

// Tests that the rule saves nearly as many collectives as the best buckets do, of one key and of several that depend on
// each other.
TEST(GreedyBuckets, NearTheOptimum) {
  for (int32_t keys : {1, 2, 3}) {
    int64_t found = 0, best = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      Problem problem = randomGraph(seed, 11, keys);
      ASSERT_EQ(problem.validate(), "");
      std::vector<NodeId> starts = allStarts(problem);
      if (starts.size() > 7)
        continue;
      int64_t saved = 0;
      for (const Bucket &bucket : greedyBuckets(problem, starts, {}))
        saved += static_cast<int64_t>(bucket.members.size()) - 1;
      std::vector<Bucket> buckets;
      int64_t most = mostSaved(problem, starts, buckets);
      EXPECT_LE(saved, most) << "seed " << seed;
      found += saved;
      best += most;
    }
    EXPECT_GT(best, 100);
    EXPECT_GE(found * 100, best * 98) << keys << " keys: " << found << " of " << best;
    RecordProperty("saved" + std::to_string(keys), std::to_string(found) + " of " + std::to_string(best));
  }
}

std::vector<size_t> sizesOf(llvm::ArrayRef<Bucket> buckets) {
  std::vector<size_t> sizes;
  for (const Bucket &bucket : buckets)
    sizes.push_back(bucket.members.size());
  return sizes;
}

// Tests caps of nothing, of one byte, of all, by number of the bucket, and one that is filled exactly.
TEST(GreedyBuckets, Caps) {
  Problem problem = gathers(10, 100, false);
  ASSERT_EQ(problem.validate(), "");
  auto sizes = [&](std::vector<Bytes> caps) {
    GreedyBucketOptions options;
    options.caps = std::move(caps);
    return sizesOf(greedyBuckets(problem, allStarts(problem), options));
  };
  EXPECT_EQ(sizes({}), std::vector<size_t>{10});
  EXPECT_EQ(sizes({-1}), std::vector<size_t>{10});
  EXPECT_EQ(sizes({0}), std::vector<size_t>());
  EXPECT_EQ(sizes({1}), std::vector<size_t>());
  EXPECT_EQ(sizes({199}), std::vector<size_t>());
  EXPECT_EQ(sizes({300}), (std::vector<size_t>{3, 3, 3}));
  EXPECT_EQ(sizes({200, 500, 300}), (std::vector<size_t>{2, 5, 3}));
  EXPECT_EQ(sizes({std::numeric_limits<Bytes>::max()}), std::vector<size_t>{10});
}

// Tests that only candidates are merged, and that a chain and a single collective are left alone.
TEST(GreedyBuckets, Nothing) {
  Problem problem = gathers(10, 100, false);
  EXPECT_EQ(greedyBuckets(problem, {0, 4, 8}, {}).front().members, (std::vector<NodeId>{0, 4, 8}));
  EXPECT_TRUE(greedyBuckets(problem, {4}, {}).empty());
  EXPECT_TRUE(greedyBuckets(problem, {}, {}).empty());
  Problem chain = gathers(50, 100, true);
  EXPECT_TRUE(greedyBuckets(chain, allStarts(chain), {}).empty());
}

// Tests that very many collectives are one bucket, and that the walk does not recurse along a long chain.
TEST(GreedyBuckets, Large) {
  Problem problem = gathers(50000, 100, false);
  EXPECT_EQ(sizesOf(greedyBuckets(problem, allStarts(problem), {})), std::vector<size_t>{50000});
  Problem chain = gathers(50000, 100, true);
  EXPECT_TRUE(greedyBuckets(chain, allStarts(chain), {}).empty());
}

} // namespace
