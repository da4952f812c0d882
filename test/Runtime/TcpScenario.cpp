//===- TcpScenario.cpp - Ranks that leave, fail, stop or never come, over tcp -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
//     RuntimeTcpScenario NAME TIMEOUT-MS
//
// One rank. It prints "rank R: STATUS: MESSAGE" when it ends, and before that words that tell tcp_scenarios.py where it
// is. Where it has to wait for another rank it waits for a line on its input, which that script writes: so events
// decide about the order, and no clock.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include "ScenarioSupport.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

using commsched::test::awaitWord;
using commsched::test::say;

namespace {
commrt_job *job;
commrt_context *context;
int me, n;
int64_t timeoutNs;

void print(int32_t status, const char *message) {
  say("rank " + std::to_string(me) + ": " + commrt_status_name(status) + ": " + message);
}

int32_t open() {
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "tcp";
  options.ranks = 0;
  options.timeout_ns = timeoutNs;
  char message[1024] = "";
  say("opening");
  int32_t status = commrt_job_create(&options, &job, message, sizeof(message));
  if (status == COMMRT_OK) {
    me = commrt_job_local_rank(job);
    n = commrt_job_ranks(job);
    status = commrt_context_create(job, me, &context);
  }
  if (status != COMMRT_OK)
    print(status, message);
  return status;
}

/// Ends the job and says how.
void close() {
  char message[4096] = "";
  int32_t status = commrt_last_error(context, message, sizeof(message));
  print(status, message);
  commrt_context_destroy(context);
  commrt_job_destroy(job);
}

commrt_group *world(const char *name = "world") {
  std::vector<int64_t> offsets = {0, n}, ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  commrt_group *group = nullptr;
  commrt_group_create(context, name, 1, offsets.data(), ranks.data(), &group);
  return group;
}

int32_t finish(int32_t status, commrt_token *token) {
  if (status == COMMRT_OK) {
    status = commrt_wait(token, nullptr);
    commrt_token_release(token);
  }
  return status;
}

int32_t reduce(commrt_group *group, float *value) {
  commrt_token *token = nullptr;
  return finish(commrt_all_reduce_start(group, value, value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), token);
}

void check(bool isRight, const char *what) {
  if (!isRight)
    commrt_abort(context, COMMRT_ERR_INVALID, what);
}

/// A whole program: comparison, collectives, end.
void healthy() {
  float value = static_cast<float>(me + 1);
  if (commrt_program_begin(context, 7, nullptr, 0) == COMMRT_OK && reduce(world(), &value) == COMMRT_OK) {
    check(value == static_cast<float>(n * (n + 1) / 2), "a wrong sum");
    commrt_program_end(context);
  }
  close();
}

/// One job after another at the same port.
void twice() {
  healthy();
  if (open() == COMMRT_OK)
    healthy();
}

/// More than any buffer of the system holds, both ways at once.
void large() {
  constexpr int64_t count = 6'000'000;
  std::vector<int32_t> in(count), out(count * n);
  for (int64_t i = 0; i < count; ++i)
    in[i] = static_cast<int32_t>(i * (me + 3));
  commrt_token *token = nullptr;
  finish(commrt_all_gather_start(world(), in.data(), out.data(), 1, count, COMMRT_I32, -1, &token), token);
  bool isRight = true;
  for (int64_t from = 0; from < n; ++from)
    for (int64_t i = 0; i < count; ++i)
      isRight &= out[from * count + i] == static_cast<int32_t>(i * (from + 3));
  check(isRight, "wrong data");
  commrt_program_end(context);
  close();
}

/// The last rank waits for a word, which may be its end; the others need it.
void needsLast() {
  float value = 1;
  commrt_group *group = world();
  reduce(group, &value);
  say("ready");
  if (me == n - 1)
    awaitWord();
  reduce(group, &value);
  close();
}

/// The same with rank 0.
void needsFirst() {
  float value = 1;
  commrt_group *group = world();
  reduce(group, &value);
  say("ready");
  if (me == 0)
    awaitWord();
  reduce(group, &value);
  close();
}

void leaveBeforeCollective() {
  float value = 1;
  commrt_group *group = world();
  if (me != 1)
    reduce(group, &value);
  close();
}

void firstLeavesBeforeCollective() {
  float value = 1;
  commrt_group *group = world();
  if (me != 0)
    reduce(group, &value);
  close();
}

void leaveBeforeComparison() {
  if (me != 1)
    commrt_program_begin(context, 1, nullptr, 0);
  close();
}

void firstLeavesBeforeComparison() {
  if (me != 0)
    commrt_program_begin(context, 1, nullptr, 0);
  close();
}

/// Ranks 1 and 2 go on without rank 0, whose process carries their messages.
void firstLeavesEarly() {
  std::vector<int64_t> offsets = {0, 2}, ranks = {1, 2};
  commrt_group *group = nullptr;
  commrt_group_create(context, "others", 1, offsets.data(), ranks.data(), &group);
  if (me == 0)
    return close();
  float value = 1;
  say("ready");
  awaitWord();
  reduce(group, &value);
  check(value == 2, "a wrong sum");
  close();
}

void differentCombinations() {
  if (me == 1)
    commrt_program_begin(context, 1, nullptr, 0);
  else
    commrt_program_end(context);
  close();
}

void differentSchedules() {
  commrt_site site = {
      COMMRT_ALL_REDUCE, COMMRT_F32, me == 1 ? 5 : 4, "world", me == 1 ? "b.mlir:2:1" : "a.mlir:1:1", 0};
  commrt_program_begin(context, 1, &site, 1);
  close();
}

void abortOnOne() {
  float value = 1;
  commrt_group *group = world();
  if (me == n - 1)
    commrt_abort(context, COMMRT_ERR_ABORTED, "enough");
  else
    reduce(group, &value);
  close();
}

/// The wait ends by its own deadline; the report names who is missing.
void shortWait() {
  float value = 1;
  commrt_group *group = world();
  commrt_token *token = nullptr;
  if (me == 1) {
    commrt_all_reduce_start(group, &value, &value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token);
    commrt_wait_host(token, 100'000'000);
  } else {
    if (me == 2)
      awaitWord();
    reduce(group, &value);
  }
  close();
}

/// Nothing but waits until somebody else ends the job.
void idle() {
  say("ready");
  commrt_program_begin(context, 1, nullptr, 0);
  close();
}

const std::map<std::string, std::function<void()>> scenarios = {
    {"healthy", healthy},
    {"twice", twice},
    {"large", large},
    {"needs-last", needsLast},
    {"needs-first", needsFirst},
    {"leave-before-collective", leaveBeforeCollective},
    {"first-leaves-before-collective", firstLeavesBeforeCollective},
    {"leave-before-comparison", leaveBeforeComparison},
    {"first-leaves-before-comparison", firstLeavesBeforeComparison},
    {"first-leaves-early", firstLeavesEarly},
    {"different-combinations", differentCombinations},
    {"different-schedules", differentSchedules},
    {"abort", abortOnOne},
    {"short-wait", shortWait},
    {"idle", idle},
};
} // namespace

int main(int argc, char **argv) {
  auto found = argc == 3 ? scenarios.find(argv[1]) : scenarios.end();
  if (found == scenarios.end())
    return 2;
  timeoutNs = std::atoll(argv[2]) * 1'000'000;
  const char *rank = std::getenv("COMMRT_RANK");
  me = rank ? std::atoi(rank) : -1;
  if (open() != COMMRT_OK)
    return 1;
  found->second();
  return 0;
}
