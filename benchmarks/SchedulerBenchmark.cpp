//===- SchedulerBenchmark.cpp - Speed of the solver -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The first answer and the default effort on layered training steps of 10,000 and 100,000 nodes. The target is a first
// answer below 0.25 s of CPU time on 100,000 nodes (0.5 s with contention), and growth from 10,000 to 100,000 below 15
// times.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "RandomDemands.h"
#include "RandomProblem.h"
#include "Solver/Decode/Decoder.h"
#include "benchmark/benchmark.h"
#include <limits>

using namespace commsched;
using namespace commsched::test;

namespace {

Problem problemOf(int64_t nodes) {
  LayeredOptions options;
  options.layers = static_cast<int32_t>(nodes / nodesPerLayer(options));
  return layeredProblem(1, options);
}

/// One decode, facts and reference included.
void decode(benchmark::State &state) {
  Problem problem = problemOf(state.range(0));
  for (auto _ : state) {
    ScheduleFacts facts(problem, state.range(1) != 0);
    Reference reference(facts, identityOrder(problem));
    Decoder decoder(facts);
    DecodedSchedule decoded;
    decoder.run(reference, Policy(), reference.peak, std::numeric_limits<Ns>::max(), decoded);
    benchmark::DoNotOptimize(decoded.makespan);
  }
  state.counters["nodes"] = problem.size();
}
BENCHMARK(decode)->ArgsProduct({{10000, 100000}, {0, 1}})->Unit(benchmark::kMillisecond);

/// A first answer, with and without buckets and contention.
void firstAnswer(benchmark::State &state) {
  Problem problem = problemOf(100000);
  if (state.range(1) != 0)
    addRandomDemands(problem, 1);
  ScheduleOptions options;
  options.effort = 0;
  options.bucketing = state.range(0) != 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(schedule(problem, options).makespan);
}
BENCHMARK(firstAnswer)
    ->ArgNames({"buckets", "contention"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

void solve(benchmark::State &state) {
  Problem problem = problemOf(state.range(0));
  ScheduleOptions options;
  options.effort = state.range(1);
  Schedule result;
  for (auto _ : state)
    result = schedule(problem, options);
  state.counters["nodes"] = problem.size();
  state.counters["saved_permille"] = static_cast<double>(1000 - result.makespan * 1000 / result.inputMakespan);
}
BENCHMARK(solve)
    ->ArgNames({"nodes", "effort"})
    ->Args({10000, 0})
    ->Args({100000, 0})
    ->Args({4000, -1})
    ->Args({20000, -1})
    ->Unit(benchmark::kMillisecond);

} // namespace
