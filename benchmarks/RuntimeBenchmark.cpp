//===- RuntimeBenchmark.cpp - Benchmarks of the runtime's own costs ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Collectives on the threads backend: the latency of small ones by the number of ranks, the bandwidth of large ones,
// tokens in flight, and what a start and a wait cost a single rank, where nothing moves. Times are of all ranks
// together.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include <algorithm>
#include <benchmark/benchmark.h>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

namespace {
using Body = std::function<int32_t(commrt_context *, commrt_group *)>;

/// Runs the body on each of `ranks` threads of one job; false if a rank failed.
bool runRanks(int32_t ranks, const Body &body) {
  commrt_options options;
  commrt_options_init(&options);
  options.ranks = ranks;
  commrt_job *job = nullptr;
  if (commrt_job_create(&options, &job, nullptr, 0) != COMMRT_OK)
    return false;
  std::vector<int32_t> statuses(ranks);
  std::vector<commrt_context *> contexts(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank)
    commrt_context_create(job, rank, &contexts[rank]);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<int64_t> offsets = {0, ranks}, members(ranks);
      std::iota(members.begin(), members.end(), 0);
      commrt_group *group = nullptr;
      statuses[rank] = commrt_group_create(contexts[rank], "world", 1, offsets.data(), members.data(), &group);
      if (statuses[rank] == COMMRT_OK)
        statuses[rank] = body(contexts[rank], group);
      if (statuses[rank] == COMMRT_OK)
        statuses[rank] = commrt_program_end(contexts[rank]);
      commrt_context_destroy(contexts[rank]);
    });
  for (std::thread &thread : threads)
    thread.join();
  commrt_job_destroy(job);
  return std::all_of(statuses.begin(), statuses.end(), [](int32_t status) { return status == COMMRT_OK; });
}

/// `inFlight` starts, then their waits.
int32_t allReduces(commrt_group *group, std::vector<float> &values, int64_t count, int inFlight) {
  std::vector<commrt_token *> tokens(inFlight);
  int32_t status = COMMRT_OK;
  for (int i = 0; i < inFlight && status == COMMRT_OK; ++i)
    status = commrt_all_reduce_start(group, &values[i * count], &values[i * count], count, COMMRT_F32, COMMRT_MAX, 1.0,
                                     -1, &tokens[i]);
  for (commrt_token *token : tokens) {
    if (status == COMMRT_OK)
      status = commrt_wait(token, nullptr);
    commrt_token_release(token);
  }
  return status;
}

/// One all_reduce after the other, of `count` elements.
void allReduceLatency(benchmark::State &state) {
  auto ranks = static_cast<int32_t>(state.range(0));
  int64_t count = state.range(1);
  constexpr int rounds = 50;
  for (auto _ : state)
    if (!runRanks(ranks, [&](commrt_context *, commrt_group *group) {
          std::vector<float> values(count, 1.f);
          int32_t status = COMMRT_OK;
          for (int i = 0; i < rounds && status == COMMRT_OK; ++i)
            status = allReduces(group, values, count, 1);
          return status;
        }))
      state.SkipWithError("a rank failed");
  state.SetItemsProcessed(state.iterations() * rounds);
}
BENCHMARK(allReduceLatency)->ArgNames({"ranks", "count"})->ArgsProduct({{1, 2, 8}, {1, 1 << 20}})->UseRealTime();
BENCHMARK(allReduceLatency)->ArgNames({"ranks", "count"})->Args({1000, 1})->Iterations(1)->UseRealTime();

/// Many tokens at once: a start and a wait must not depend on how many there are.
void outstandingTokens(benchmark::State &state) {
  auto inFlight = static_cast<int>(state.range(0));
  for (auto _ : state)
    if (!runRanks(2, [&](commrt_context *, commrt_group *group) {
          std::vector<float> values(inFlight, 1.f);
          return allReduces(group, values, 1, inFlight);
        }))
      state.SkipWithError("a rank failed");
  state.SetItemsProcessed(state.iterations() * inFlight);
}
BENCHMARK(outstandingTokens)->Arg(100)->Arg(10000)->UseRealTime();

/// Symmetric buffers made and released.
void symmetricBuffers(benchmark::State &state) {
  constexpr int many = 1000;
  for (auto _ : state)
    if (!runRanks(2, [&](commrt_context *context, commrt_group *) {
          int32_t status = COMMRT_OK;
          for (int i = 0; i < many && status == COMMRT_OK; ++i) {
            void *buffer = nullptr;
            status = commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 4096, &buffer);
            commrt_free(context, buffer);
          }
          return status;
        }))
      state.SkipWithError("a rank failed");
  state.SetItemsProcessed(state.iterations() * many);
}
BENCHMARK(symmetricBuffers)->UseRealTime();
} // namespace
