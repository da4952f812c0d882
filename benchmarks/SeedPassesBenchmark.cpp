//===- SeedPassesBenchmark.cpp - How fast the reordering passes are ---------------------------===//
//
// On layered training steps (RandomProblem.h) of about 10,000 and 100,000 nodes with one collective in twenty. What is
// asked of each pass: 100,000 nodes in less than a second, and less than 15 times the time of 10,000.
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/OverlapListScheduler.h"
#include "CommSched/Scheduling/PeakPreserving.h"
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
void note(benchmark::State &state, const Problem &problem, const ReorderResult &result) {
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
  ReorderResult result;
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
  options.peakBudgetPpm = budgetPpm;
  ReorderResult result;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = reorderPreservingPeakMemory(problem, order, options));
  note(state, problem, result);
}
BENCHMARK_CAPTURE(reorderPreservingPeak, plain, false, 200'000, false)->Apply(sizes);
BENCHMARK_CAPTURE(reorderPreservingPeak, estimates, true, 200'000, false)->Apply(sizes);
BENCHMARK_CAPTURE(reorderPreservingPeak, unlimited, false, 100'000'000, false)->Apply(sizes);
BENCHMARK_CAPTURE(reorderPreservingPeak, raisedEstimates, true, 100'000'000, true)->Apply(sizes);

void sinkWaitsPreservingPeak(benchmark::State &state, bool estimates, bool swap, bool raised) {
  const Problem &problem = layered(state.range(0));
  Order order = identityOrder(problem);
  if (raised)
    order = scheduleForOverlap(problem, order, kRaiseStarts).order;
  SinkWaitsPreservingPeakOptions options;
  options.useEstimates = estimates;
  options.swapWithCollectives = swap;
  ReorderResult result;
  for (auto _ : state)
    benchmark::DoNotOptimize(result = sinkWaitsPreservingPeakMemory(problem, order, options));
  note(state, problem, result);
}
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, plain, false, false, false)->Apply(sizes);
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, swapping, false, true, false)->Apply(sizes);
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, estimates, true, true, false)->Apply(sizes);
BENCHMARK_CAPTURE(sinkWaitsPreservingPeak, raised, true, true, true)->Apply(sizes);

} // namespace
