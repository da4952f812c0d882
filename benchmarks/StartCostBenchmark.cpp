//===- StartCostBenchmark.cpp - Benchmarks of starts and waits over NCCL ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On a device neither a start nor a wait blocks: both put something on a stream. What they cost is CPU time of the
// thread that calls them. Each benchmark measures the CPU time of rank 0's thread for many starts, waits and releases
// of one-element all_reduces, once over libraries whose functions do nothing, which leaves the share of the runtime,
// and once over the emulated libraries. One repetition is one job; the columns `min` and `median` are over repetitions.
//
//     build/bin/RuntimeBenchmarks --benchmark_filter=startCost
//
// The column `calls` has the calls of functions of NCCL and the CUDA runtime per start, wait and release, counted by
// the libraries that do nothing.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <numeric>
#include <thread>
#include <vector>

namespace {
/// Starts per measurement. What was started is waited for between measurements, without being measured, so that queues
/// stay short.
constexpr int startsPerBatch = 50;
constexpr int batches = 40;
/// Batches before the first that is measured: pools fill, and communicators connect.
constexpr int warmUp = 4;

enum Library { nothing, emulated };

int64_t threadNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t(1'000'000'000) + now.tv_nsec;
}

/// The calls that this thread has made of one of the libraries that do nothing; 0 for the emulated ones.
int64_t callsOfThread(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (!library)
    return 0;
  auto calls = reinterpret_cast<long (*)()>(dlsym(library, "fakeCallsOfThread"));
  dlclose(library);
  return calls ? calls() : 0;
}
int64_t callsOfThread() { return callsOfThread(COMMSCHED_NOTHING_NCCL) + callsOfThread(COMMSCHED_NOTHING_CUDART); }

/// What all measured starts of one rank take.
struct Cost {
  int64_t ns = -1; ///< CPU time; negative if something failed
  int64_t calls = 0;
};

Cost measureRank(commrt_context *context, int inFlight) {
  std::vector<int64_t> offsets = {0, commrt_ranks(context)}, members(commrt_ranks(context));
  std::iota(members.begin(), members.end(), 0);
  commrt_group *group = nullptr;
  void *data = nullptr;
  if (commrt_group_create(context, "world", 1, offsets.data(), members.data(), &group) ||
      commrt_alloc(context, COMMRT_BUFFER_PLAIN, 4 * int64_t(inFlight), &data))
    return {};
  std::vector<commrt_token *> tokens(inFlight);
  Cost total;
  total.ns = 0;
  int32_t status = COMMRT_OK;
  for (int batch = 0; batch < warmUp + batches && status == COMMRT_OK; ++batch) {
    int64_t calls = callsOfThread(), begin = threadNs();
    for (int done = 0; done < startsPerBatch && status == COMMRT_OK; done += inFlight) {
      for (int i = 0; i < inFlight; ++i) {
        float *value = static_cast<float *>(data) + i;
        status = status ? status
                        : commrt_all_reduce_start(group, value, value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &tokens[i]);
      }
      for (int i = 0; i < inFlight && status == COMMRT_OK; ++i) {
        status = commrt_wait(tokens[i], nullptr);
        commrt_token_release(tokens[i]);
      }
    }
    int64_t end = threadNs();
    if (batch >= warmUp) {
      total.ns += end - begin;
      total.calls += callsOfThread() - calls;
    }
    if (status == COMMRT_OK)
      status = commrt_program_end(context);
  }
  commrt_free(context, data);
  return status == COMMRT_OK ? total : Cost();
}

/// Sets a library that the user has not chosen.
void choose(const char *variable, Library library, const char *nothingPath, const char *emulatedPath) {
  setenv(variable, library == nothing ? nothingPath : emulatedPath, 1);
}

void startCost(benchmark::State &state) {
  auto library = static_cast<Library>(state.range(0));
  auto ranks = static_cast<int32_t>(state.range(1));
  auto inFlight = static_cast<int>(state.range(2));
  choose("COMMRT_NCCL_LIBRARY", library, COMMSCHED_NOTHING_NCCL, COMMSCHED_EMULATED_NCCL);
  choose("COMMRT_CUDART_LIBRARY", library, COMMSCHED_NOTHING_CUDART, COMMSCHED_EMULATED_CUDART);
  for (auto _ : state) {
    commrt_options options;
    commrt_options_init(&options);
    options.backend = "nccl";
    options.ranks = ranks;
    commrt_job *job = nullptr;
    char message[512] = "";
    if (commrt_job_create(&options, &job, message, sizeof(message)) != COMMRT_OK) {
      state.SkipWithError(message);
      return;
    }
    std::vector<Cost> costs(ranks);
    std::vector<commrt_context *> contexts(ranks);
    for (int32_t rank = 0; rank < ranks; ++rank)
      commrt_context_create(job, rank, &contexts[rank]);
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        costs[rank] = measureRank(contexts[rank], inFlight);
        commrt_context_destroy(contexts[rank]);
      });
    for (std::thread &thread : threads)
      thread.join();
    commrt_job_destroy(job);
    if (std::any_of(costs.begin(), costs.end(), [](const Cost &cost) { return cost.ns < 0; }))
      state.SkipWithError("a rank failed");
    state.SetIterationTime(double(costs[0].ns) * 1e-9 / (startsPerBatch * batches));
    state.counters["calls"] = double(costs[0].calls) / (startsPerBatch * batches);
  }
}
double least(const std::vector<double> &values) { return *std::min_element(values.begin(), values.end()); }
BENCHMARK(startCost)
    ->ArgNames({"emulated", "ranks", "inFlight"})
    ->ArgsProduct({{nothing, emulated}, {1, 2}, {1, 50}})
    ->UseManualTime()
    ->Iterations(1)
    ->Repetitions(15)
    ->ComputeStatistics("min", least)
    ->ReportAggregatesOnly()
    ->Unit(benchmark::kMicrosecond);
} // namespace
