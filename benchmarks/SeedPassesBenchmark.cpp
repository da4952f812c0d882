//===- SeedPassesBenchmark.cpp - Benchmarks of the reordering rules ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On layered training steps (RandomProblem.h) of about 10,000 and 100,000 nodes with one collective in twenty. What is
// asked of each pass: 100,000 nodes in less than a second, and less than 15 times the time of 10,000.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/AlignCosts.h"
#include "CommSched/Scheduling/Inductor/OrderFsdp.h"
#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "CommSched/Scheduling/Inductor/PeakPreserving.h"
#include "RandomProblem.h"
#include "benchmark/benchmark.h"
#include "llvm/ADT/STLExtras.h"
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
    options.computes = 48;
    options.parameters = 3;
    options.layers = static_cast<int32_t>(nodes / nodesPerLayer(options));
    found = made.emplace(nodes, layeredProblem(1, options)).first;
  }
  return found->second;
}

void sizes(benchmark::internal::Benchmark *benchmark) {
  benchmark->Arg(10000)->Arg(100000)->Unit(benchmark::kMillisecond);
}

/// Reports what the run was about next to its time.
void note(benchmark::State &state, const Problem &problem, const Schedule &result) {
  state.counters["nodes"] = problem.size();
  state.counters["collectives"] =
      static_cast<double>(llvm::count_if(problem.nodes, [](const Node &node) { return node.kind == NodeKind::Start; }));
  int64_t moves = 0;
  for (const CollectiveRecord &record : result.records)
    moves += record.moves;
  state.counters["moves"] = static_cast<double>(moves);
}

void listScheduler(benchmark::State &state, const OverlapListOptions &options) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  Schedule result;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = scheduleForOverlap(problem, order, options));
  note(state, problem, result);
}
BENCHMARK_CAPTURE(listScheduler, raise, kRaiseStarts)->Apply(sizes);
BENCHMARK_CAPTURE(listScheduler, sinkWaits, kSinkWaits)->Apply(sizes);
BENCHMARK_CAPTURE(listScheduler, reorderCompute, kReorderComputeForOverlap)->Apply(sizes);

/// `raised`: on an order whose starts all stand first, which the walks find hardest.
void reorderPreservingPeak(benchmark::State &state, bool estimates, int64_t budgetPpm, bool raised) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  if (raised)
    order = scheduleForOverlap(problem, order, kRaiseStarts).order;
  ReorderPreservingPeakOptions options;
  options.useEstimates = estimates;
  options.memory.ppm = budgetPpm;
  Schedule result;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = reorderPreservingPeakMemory(problem, order, options));
  note(state, problem, result);
}
BENCHMARK_CAPTURE(reorderPreservingPeak, plain, false, 200'000, false)->Apply(sizes);
BENCHMARK_CAPTURE(reorderPreservingPeak, estimates, true, 200'000, false)->Apply(sizes);
BENCHMARK_CAPTURE(reorderPreservingPeak, unlimited, false, 100'000'000, false)->Apply(sizes);
BENCHMARK_CAPTURE(reorderPreservingPeak, raisedEstimates, true, 100'000'000, true)->Apply(sizes);

/// After comm-reorder-compute-for-overlap, with an all-reduce per layer besides: most moves raise the makespan,
/// so that its guard has the most to do.
void sinkWaitsGuarded(benchmark::State &state) {
  static std::map<int64_t, Problem> made;
  LayeredOptions shape;
  shape.computes = 48;
  shape.tensorParallel = true;
  shape.layers = static_cast<int32_t>(state.range(0) / nodesPerLayer(shape));
  Problem &problem = made[state.range(0)];
  if (problem.size() == 0)
    problem = layeredProblem(2, shape);
  Order order = scheduleForOverlap(problem, identityOrder(problem), kReorderComputeForOverlap).order;
  SinkWaitsPreservingPeakOptions options;
  options.useEstimates = true;
  Schedule result;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = sinkWaitsPreservingPeakMemory(problem, order, options));
  note(state, problem, result);
}
BENCHMARK(sinkWaitsGuarded)->Apply(sizes);

void orderFsdpGroups(benchmark::State &state) {
  const Problem &problem = layered(state.range(0));
  // A gather's predecessor is its copy-in; what makes a reduce-scatter's input is its own.
  std::vector<FsdpRole> roles(problem.size(), FsdpRole::None);
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].kind == NodeKind::Start)
      for (NodeId pred : problem.preds[id])
        roles[pred] = problem.nodes[id].collective == CollectiveKind::AllGather ? FsdpRole::CopyIn : FsdpRole::ChunkCat;
  Order order = scheduleForOverlap(problem, identityOrder(problem), kRaiseStarts).order;
  Schedule result;
  std::vector<FsdpGroups> groups;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = orderFsdp(problem, order, roles, groups));
  note(state, problem, result);
  state.counters["groups"] = static_cast<double>(groups.size());
}
BENCHMARK(orderFsdpGroups)->Apply(sizes);

/// Eight ranks' costs of as many nodes.
void alignCosts(benchmark::State &state) {
  std::vector<std::vector<Ns>> byRank(8, std::vector<Ns>(state.range(0)));
  Random random(1);
  for (std::vector<Ns> &row : byRank)
    for (Ns &cost : row)
      cost = random.between(1000, 1'000'000);
  for (auto _ : state)
    benchmark::DoNotOptimize(lowerMedians(byRank));
}
BENCHMARK(alignCosts)->Apply(sizes);

void sinkWaitsPreservingPeak(benchmark::State &state, bool estimates, bool swap, bool raised) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  if (raised)
    order = scheduleForOverlap(problem, order, kRaiseStarts).order;
  SinkWaitsPreservingPeakOptions options;
  options.useEstimates = estimates;
  options.swapWithCollectives = swap;
  Schedule result;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = sinkWaitsPreservingPeakMemory(problem, order, options));
  note(state, problem, result);
}
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, plain, false, false, false)->Apply(sizes);
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, swapping, false, true, false)->Apply(sizes);
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, estimates, true, true, false)->Apply(sizes);
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, raised, true, true, true)->Apply(sizes);

} // namespace
