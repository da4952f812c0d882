//===- ModelsBenchmark.cpp - Benchmarks of the models of time and memory ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On layered training steps (RandomProblem.h) of about 4,000, 16,000 and 100,000 nodes.
//
//===------------------------------------------------------------------------------------------===//

#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomProblem.h"
#include "benchmark/benchmark.h"
#include <map>

using namespace commsched;
using namespace commsched::test;

namespace {

/// A layered problem of about so many nodes, made once.
const Problem &layered(int64_t nodes) {
  static std::map<int64_t, Problem> made;
  auto found = made.find(nodes);
  if (found == made.end()) {
    LayeredOptions options;
    options.tensorParallel = true;
    options.layers = static_cast<int32_t>(nodes / nodesPerLayer(options));
    found = made.emplace(nodes, layeredProblem(1, options)).first;
  }
  return found->second;
}

void sizes(benchmark::internal::Benchmark *benchmark) {
  benchmark->Arg(4000)->Arg(16000)->Arg(100000)->Unit(benchmark::kMillisecond);
}

void simulateOrder(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate(problem, order).makespan);
}
BENCHMARK(simulateOrder)->Apply(sizes);

void makespan(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  for (auto _ : state)
    benchmark::DoNotOptimize(makespanOf(problem, order));
}
BENCHMARK(makespan)->Apply(sizes);

void memorySweep(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  for (auto _ : state)
    benchmark::DoNotOptimize(memoryProfile(problem, order).peak);
}
BENCHMARK(memorySweep)->Apply(sizes);

void verify(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  Bytes peak = peakOf(problem, order);
  for (auto _ : state)
    benchmark::DoNotOptimize(verifyOrder(problem, order, {peak, CollectiveOrder::Program}).empty());
}
BENCHMARK(verify)->Apply(sizes);

/// One question per start: what would the peak be at the leftmost legal place.
void moveQueries(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  MoveEvaluator evaluator(problem, identityOrder(problem));
  std::vector<NodeId> starts;
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].kind == NodeKind::Start)
      starts.push_back(id);
  for (auto _ : state)
    for (NodeId id : starts)
      benchmark::DoNotOptimize(evaluator.peakIfMoved(id, id + 1, evaluator.earliest(id, id + 1)));
  state.SetItemsProcessed(state.iterations() * starts.size());
}
BENCHMARK(moveQueries)->Apply(sizes);

void bound(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  for (auto _ : state)
    benchmark::DoNotOptimize(lowerBound(problem).makespan);
}
BENCHMARK(bound)->Apply(sizes);

void jointBound(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  for (auto _ : state)
    benchmark::DoNotOptimize(jointLowerBound(problem).makespan);
}
BENCHMARK(jointBound)->Apply(sizes);

void peakBound(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  for (auto _ : state)
    benchmark::DoNotOptimize(peakLowerBound(problem));
}
BENCHMARK(peakBound)->Apply(sizes);

} // namespace
