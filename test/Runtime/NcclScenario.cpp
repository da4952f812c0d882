//===- NcclScenario.cpp - Ranks of the nccl backend that fail, stop or disagree, as processes ---===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
//     RuntimeNcclScenario NAME TIMEOUT-MS
//
// One rank. It prints "rank R: STATUS: MESSAGE" when it ends, and its exit code is 0 after COMMRT_OK alone. Where it
// has to wait for another rank it waits for a line on its input, which nccl_scenarios.py writes: events decide about
// the order, and no clock.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include "ScenarioSupport.h"
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

using commsched::test::awaitWord;
using commsched::test::say;

namespace {
commrt_context *context;
int me, n;

/// Device memory with ones.
float *ones(int64_t count = 4) {
  void *data = nullptr;
  std::vector<float> values(count, 1);
  if (commrt_alloc(context, COMMRT_BUFFER_PLAIN, count * 4, &data) == COMMRT_OK)
    commrt_copy(context, data, values.data(), count * 4, COMMRT_COPY_TO_DEVICE, nullptr);
  return static_cast<float *>(data);
}

commrt_group *world() {
  std::vector<int64_t> offsets = {0, n}, ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  commrt_group *group = nullptr;
  commrt_group_create(context, "world", 1, offsets.data(), ranks.data(), &group);
  return group;
}

/// Sites of collectives, so that messages have locations.
const commrt_site sites[] = {{COMMRT_ALL_REDUCE, COMMRT_F32, 4, "world", "step.mlir:1:1", 0},
                             {COMMRT_ALL_REDUCE, COMMRT_F32, 4, "world", "step.mlir:2:2", 0},
                             {COMMRT_SEND, COMMRT_F32, 1, "world", "step.mlir:3:3", 0},
                             {COMMRT_RECV, COMMRT_F32, 1, "world", "step.mlir:4:4", 0}};
void begin() { commrt_program_begin(context, 7, sites, 4); }

int32_t reduce(commrt_group *group, float *data, int64_t site = 0, int64_t count = 4, bool onHost = true) {
  commrt_token *token = nullptr;
  if (int32_t status = commrt_all_reduce_start(group, data, data, count, COMMRT_F32, COMMRT_SUM, 1, site, &token))
    return status;
  int32_t status = onHost ? commrt_wait_host(token, -1) : commrt_wait(token, nullptr);
  commrt_token_release(token);
  return status;
}

/// Many collectives, read at the end; streams wait, the host does not.
void healthy() {
  commrt_group *group = world();
  begin();
  float *data = ones(), value = 0;
  for (int i = 0; i < 10; ++i)
    reduce(group, data, i % 2, 4, i % 3 == 0);
  commrt_copy(context, &value, data, 4, COMMRT_COPY_FROM_DEVICE, nullptr);
  float expected = 1;
  for (int i = 0; i < 10; ++i)
    expected *= static_cast<float>(n);
  if (commrt_program_end(context) == COMMRT_OK && value != expected)
    commrt_abort(context, COMMRT_ERR_INVALID, "a wrong sum");
}

/// The last rank waits for a word, which may be its end; the others are in a collective.
void needsLast() {
  commrt_group *group = world();
  begin();
  float *data = ones();
  reduce(group, data);
  if (me == n - 1) {
    say("ready");
    awaitWord();
    reduce(group, data, 1);
  } else {
    commrt_token *token = nullptr;
    if (commrt_all_reduce_start(group, data, data, 4, COMMRT_F32, COMMRT_SUM, 1, 1, &token) == COMMRT_OK) {
      say("ready");
      commrt_wait_host(token, -1);
      commrt_token_release(token);
    }
  }
  commrt_program_end(context);
}

/// The last rank starts the two collectives in another order, and nobody waits on the host before both.
void anotherOrder() {
  commrt_group *group = world();
  begin();
  float *data = ones();
  for (int i = 0; i < 2; ++i)
    reduce(group, data, me == n - 1 ? 1 - i : i, 4, false);
  commrt_program_end(context);
}

/// The last rank reduces less, in the eleventh collective.
void anotherSize() {
  commrt_group *group = world();
  begin();
  float *data = ones();
  for (int i = 0; i < 20; ++i)
    reduce(group, data, i % 2, me == n - 1 && i == 10 ? 3 : 4, false);
  commrt_program_end(context);
}

/// Rank 0 sends two messages, which rank 1 receives by their tags in the other order.
void anotherTag() {
  commrt_group *group = world();
  begin();
  float *data = ones();
  for (int i = 0; i < 2; ++i) {
    commrt_token *token = nullptr;
    if (me == 0)
      commrt_send_start(group, data + i, 1, COMMRT_F32, 1, i, 2, &token);
    else if (me == 1)
      commrt_recv_start(group, data + i, 1, COMMRT_F32, 0, 1 - i, 3, &token);
    commrt_wait(token, nullptr);
    commrt_token_release(token);
  }
  commrt_program_end(context);
}

/// The last rank finds no memory.
void noMemory() {
  commrt_group *group = world();
  begin();
  float *data = ones();
  reduce(group, data);
  void *large = nullptr;
  if (me == n - 1)
    commrt_alloc(context, COMMRT_BUFFER_PLAIN, int64_t(1) << 50, &large);
  reduce(group, data, 1);
  commrt_program_end(context);
}

/// The last rank leaves without the second collective.
void leaves() {
  commrt_group *group = world();
  begin();
  float *data = ones();
  reduce(group, data);
  if (me == n - 1)
    return;
  reduce(group, data, 1);
  commrt_program_end(context);
}

const std::map<std::string, std::function<void()>> scenarios = {
    {"healthy", healthy},
    {"needs-last", needsLast},
    {"another-order", anotherOrder},
    {"another-size", anotherSize},
    {"another-tag", anotherTag},
    {"no-memory", noMemory},
    {"leaves", leaves},
};
} // namespace

int main(int argc, char **argv) {
  auto found = argc == 3 ? scenarios.find(argv[1]) : scenarios.end();
  if (found == scenarios.end())
    return 2;
  const char *rank = std::getenv("COMMRT_RANK");
  me = rank ? static_cast<int>(std::strtol(rank, nullptr, 10)) : -1;
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl";
  options.ranks = 0;
  options.timeout_ns = std::strtoll(argv[2], nullptr, 10) * 1'000'000;
  char message[4096] = "";
  commrt_job *job = nullptr;
  int32_t status = commrt_job_create(&options, &job, message, sizeof(message));
  if (status == COMMRT_OK) {
    me = commrt_job_local_rank(job);
    n = commrt_job_ranks(job);
    status = commrt_context_create(job, me, &context);
    if (status == COMMRT_OK) {
      found->second();
      status = commrt_last_error(context, message, sizeof(message));
    }
  }
  say("rank " + std::to_string(me) + ": " + commrt_status_name(status) + ": " + message);
  commrt_context_destroy(context);
  commrt_job_destroy(job);
  return status == COMMRT_OK ? 0 : 1;
}
