//===- GreedyBucketsBenchmark.cpp - Benchmarks of the rule of comm-bucket ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A chain of computes with one collective in twenty operations. What is asked of the rule: the same time for 1, 10 and
// 1,000 keys, and less than 15 times as long for 100,000 operations as for 10,000.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/GreedyBuckets.h"
#include "benchmark/benchmark.h"

using namespace commsched;

namespace {

/// Adds a collective and its wait behind `pred`, or behind nothing.
void addCollective(Problem &problem, int32_t key, NodeId pred) {
  NodeId id = problem.size();
  auto output = static_cast<BufferId>(problem.buffers.size());
  problem.buffers.push_back({1 << 20, id, false});
  Node start;
  start.kind = NodeKind::Start;
  start.lane = 1;
  start.mergeKey = key;
  start.bytes = 1 << 20;
  Node wait;
  wait.kind = NodeKind::Wait;
  wait.start = id;
  problem.nodes.insert(problem.nodes.end(), {start, wait});
  problem.preds.append(pred == kNone ? std::vector<NodeId>() : std::vector<NodeId>{pred});
  problem.preds.append({id});
  problem.touches.append({output});
  problem.touches.append({output});
  MergeMember member;
  member.wait = id + 1;
  member.output = output;
  member.inputBytes = member.outputBytes = 1 << 20;
  problem.members.push_back(member);
  problem.members.emplace_back();
}

/// Of three collectives one gathers an argument that the chain then needs, one reduces what the chain makes, and one
/// does both; their keys take turns.
Problem chainOf(int64_t nodes, int64_t keys) {
  Problem problem;
  problem.laneNames = {"compute", "communication"};
  problem.copyCost = [](Bytes, Bytes) -> Ns { return 1; };
  for (int64_t index = 0; index < keys; ++index) {
    MergeKey key;
    key.lane = 1;
    key.cost = [](Bytes bytes) -> Ns { return 10 + bytes; };
    problem.mergeKeys.push_back(key);
  }
  NodeId last = kNone, awaited = kNone;
  int64_t collectives = 0;
  while (problem.size() < nodes) {
    if (problem.size() % 20 == 18) {
      bool reads = collectives % 3 != 0, feeds = collectives % 3 != 1;
      addCollective(problem, static_cast<int32_t>(collectives++ / 3 % keys), reads ? last : kNone);
      awaited = feeds ? problem.size() - 1 : kNone;
      continue;
    }
    std::vector<NodeId> preds;
    if (last != kNone)
      preds.push_back(last);
    if (awaited != kNone)
      preds.push_back(awaited);
    awaited = kNone;
    last = problem.size();
    problem.nodes.emplace_back();
    problem.preds.append(preds);
    problem.touches.append({});
    problem.members.emplace_back();
  }
  problem.finalize();
  return problem;
}

void greedyBucketing(benchmark::State &state) {
  Problem problem = chainOf(state.range(0), state.range(1));
  std::vector<NodeId> candidates;
  for (NodeId node = 0; node < problem.size(); ++node)
    if (problem.nodes[node].kind == NodeKind::Start)
      candidates.push_back(node);
  std::vector<Bucket> buckets;
  for (auto _ : state)
    buckets = greedyBuckets(problem, candidates, {});
  state.counters["collectives"] = static_cast<double>(candidates.size());
  size_t saved = 0;
  for (const Bucket &bucket : buckets)
    saved += bucket.members.size() - 1;
  state.counters["saved"] = static_cast<double>(saved);
}
BENCHMARK(greedyBucketing)
    ->ArgNames({"nodes", "keys"})
    ->ArgsProduct({{10000, 100000}, {1, 10, 1000}})
    ->Unit(benchmark::kMillisecond);

/// Carrying the buckets out on the problem.
void expandingBuckets(benchmark::State &state) {
  Problem problem = chainOf(state.range(0), state.range(1));
  std::vector<NodeId> candidates;
  for (NodeId node = 0; node < problem.size(); ++node)
    if (problem.nodes[node].kind == NodeKind::Start)
      candidates.push_back(node);
  std::vector<Bucket> buckets = greedyBuckets(problem, candidates, {});
  for (auto _ : state) {
    llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, buckets);
    if (!expanded)
      state.SkipWithError(llvm::toString(expanded.takeError()).c_str());
  }
}
BENCHMARK(expandingBuckets)
    ->ArgNames({"nodes", "keys"})
    ->ArgsProduct({{10000, 100000}, {1, 10, 1000}})
    ->Unit(benchmark::kMillisecond);

} // namespace
