//===- ControlScenario.cpp - Ranks of the control plane that leave, fail, stop or never come --===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
//     RuntimeControlScenario NAME TIMEOUT-MS
//
// One rank, which uses the control plane as the nccl backend does. It prints "rank R: STATUS: MESSAGE" when it ends,
// and before that words that tell control_scenarios.py where it is. Where it has to wait for another rank it waits for
// a line on its input, which that script writes: so events decide about the order, and no clock.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Backend.h"
#include "ScenarioSupport.h"
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using commsched::test::awaitWord;
using commsched::test::say;

namespace {
const commrt_backend *control;
void *job, *peer;
int me, n;
int64_t timeoutNs;

/// What the host's functions, which any thread calls, and the rank's own thread share.
std::mutex mutex;
int32_t firstError = COMMRT_OK;
std::string errorText;
int numStarted, numCompleted;

void note(int32_t status, const std::string &text) {
  std::lock_guard<std::mutex> lock(mutex);
  if (firstError != COMMRT_OK)
    return;
  firstError = status;
  errorText = text;
}

const commrt_host host = {sizeof(commrt_host),
                          [](commrt_work *, int32_t, int64_t) {
                            std::lock_guard<std::mutex> lock(mutex);
                            ++numCompleted;
                          },
                          [](void *, int32_t status, int32_t rank, const char *message) {
                            note(status, "rank " + std::to_string(rank) + ": " + message);
                          },
                          [](const commrt_work *work, char *text, size_t size) {
                            return static_cast<int32_t>(std::snprintf(text, size, "%s", work->location));
                          },
                          [](commrt_work *, int32_t) {
                            std::lock_guard<std::mutex> lock(mutex);
                            ++numCompleted;
                          }};

void print(int32_t status, const std::string &message) {
  say("rank " + std::to_string(me) + ": " + commrt_status_name(status) + ": " + message);
}

int32_t open() {
  commrt_backend_config config = {};
  config.struct_size = sizeof(config);
  config.workers = 1;
  config.timeout_ns = timeoutNs;
  char message[1024] = "";
  say("opening");
  int32_t status = control->open(&config, &job, &n, &me, message, sizeof(message));
  if (status == COMMRT_OK)
    status = control->attach(job, me, &host, nullptr, &peer);
  if (status != COMMRT_OK)
    print(status, message);
  return status;
}

/// Ends the job and says how.
void close() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    print(firstError, errorText);
  }
  control->detach(peer);
  control->close(job);
  if (numStarted != numCompleted)
    say("rank " + std::to_string(me) + ": " + std::to_string(numStarted - numCompleted) + " starts never ended");
}

void addFloats(void *lower, const void *higher, int64_t bytes) {
  for (int64_t i = 0; i < bytes / int64_t(sizeof(float)); ++i)
    static_cast<float *>(lower)[i] += static_cast<const float *>(higher)[i];
}

/// Adds the values of all ranks. On a timeout the rank ends the job.
int32_t add(float *values, int64_t count = 1, int64_t limitNs = timeoutNs) {
  char text[1024] = "";
  int32_t status =
      control->combine(peer, values, count * int64_t(sizeof(float)), addFloats, limitNs, text, sizeof(text));
  if (status == COMMRT_ERR_TIMEOUT) {
    note(status, "rank " + std::to_string(me) + ": " + text);
    control->abort(peer, status, text);
  }
  return status;
}

void check(bool isRight, const char *what) {
  if (isRight)
    return;
  note(COMMRT_ERR_INVALID, what);
  control->abort(peer, COMMRT_ERR_INVALID, what);
}

/// A group of these ranks; all ranks where none is given.
void *groupOf(std::vector<int32_t> members = {}) {
  int32_t index = -1;
  if (members.empty()) {
    members.resize(n);
    std::iota(members.begin(), members.end(), 0);
  }
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i] == me)
      index = static_cast<int32_t>(i);
  void *group = nullptr;
  char text[256];
  control->group_create(peer, "world", members.data(), static_cast<int32_t>(members.size()), index, &group, text,
                        sizeof(text));
  return group;
}

/// Presents the start of a collective to the others of the group.
void start(void *group, const char *location = "all_reduce of 1 x f32", uint64_t fingerprint = 1) {
  static std::deque<commrt_work> works; // they stay where they are
  commrt_work &work = works.emplace_back();
  work = {};
  work.struct_size = sizeof(work);
  work.kind = COMMRT_BARRIER;
  work.dtype = COMMRT_I8;
  work.fingerprint = fingerprint;
  work.location = location;
  if (control->submit(group, &work) == COMMRT_OK)
    ++numStarted;
}

/// Returns when all starts have been compared, or the job has failed.
void finishStarts() {
  constexpr auto pause = std::chrono::milliseconds(1);
  auto isOver = [] {
    std::lock_guard<std::mutex> lock(mutex);
    return numCompleted == numStarted || firstError != COMMRT_OK;
  };
  while (!isOver())
    std::this_thread::sleep_for(pause);
}

/// Comparison of starts, values and the end.
void healthy() {
  auto value = static_cast<float>(me + 1);
  void *group = groupOf();
  start(group);
  add(&value);
  check(value == static_cast<float>(n * (n + 1) / 2), "a wrong sum");
  start(group);
  add(&value);
  finishStarts();
  control->group_destroy(group);
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
  std::vector<float> values(6'000'000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 1000 * (me + 1));
  add(values.data(), static_cast<int64_t>(values.size()));
  bool isRight = true;
  for (size_t i = 0; i < values.size(); ++i)
    isRight &= values[i] == static_cast<float>(i % 1000 * n * (n + 1) / 2);
  check(isRight, "wrong data");
  close();
}

/// Values are combined twice. Between the two one rank waits for a word, which may be its end.
void needs(int rank) {
  float value = 1;
  add(&value);
  say("ready");
  if (me == rank)
    awaitWord();
  add(&value);
  close();
}

void leaveBeforeStart(int rank) {
  void *group = groupOf();
  if (me != rank) {
    start(group);
    finishStarts();
  }
  close();
}

void leaveBeforeCombining(int rank) {
  float value = 1;
  if (me != rank)
    add(&value);
  close();
}

/// Ranks 1 and 2 go on without rank 0, whose process compares what they start.
void firstLeavesEarly() {
  void *group = groupOf({1, 2});
  if (me == 0)
    return close();
  say("ready");
  awaitWord();
  start(group);
  finishStarts();
  close();
}

/// One rank combines values of another size, as one that ends a program while others compare schedules.
void differentCombinations() {
  float values[] = {1, 2};
  add(values, me == 1 ? 2 : 1);
  close();
}

void differentStarts() {
  float value = 1;
  start(groupOf(), me == 1 ? "all_reduce of 5 x f32 (b.mlir:2:1)" : "all_reduce of 4 x f32 (a.mlir:1:1)", me == 1);
  add(&value);
  close();
}

/// What the control plane is not for.
void data() {
  commrt_work work = {};
  work.struct_size = sizeof(work);
  work.kind = COMMRT_ALL_REDUCE;
  work.count = 1;
  check(control->submit(groupOf(), &work) == COMMRT_ERR_UNSUPPORTED, "data was accepted");
  close();
}

void abortOnOne() {
  float value = 1;
  if (me == n - 1) {
    note(COMMRT_ERR_ABORTED, "rank " + std::to_string(me) + ": enough");
    control->abort(peer, COMMRT_ERR_ABORTED, "enough");
  } else {
    add(&value);
  }
  close();
}

/// Combining ends by its own deadline; the report names who is missing.
void shortWait() {
  float value = 1;
  if (me == 2)
    awaitWord();
  constexpr int64_t shortNs = 100'000'000;
  add(&value, 1, me == 1 ? shortNs : timeoutNs);
  close();
}

/// Nothing but waits until somebody else ends the job.
void idle() {
  float value = 1;
  say("ready");
  add(&value);
  close();
}

const std::map<std::string, std::function<void()>> scenarios = {
    {"healthy", healthy},
    {"twice", twice},
    {"large", large},
    {"needs-last", [] { needs(n - 1); }},
    {"needs-first", [] { needs(0); }},
    {"leave-before-start", [] { leaveBeforeStart(1); }},
    {"first-leaves-before-start", [] { leaveBeforeStart(0); }},
    {"leave-before-combining", [] { leaveBeforeCombining(1); }},
    {"first-leaves-before-combining", [] { leaveBeforeCombining(0); }},
    {"first-leaves-early", firstLeavesEarly},
    {"different-combinations", differentCombinations},
    {"different-starts", differentStarts},
    {"data", data},
    {"abort", abortOnOne},
    {"short-wait", shortWait},
    {"idle", idle},
};
} // namespace

int main(int argc, char **argv) {
  auto found = argc == 3 ? scenarios.find(argv[1]) : scenarios.end();
  char message[1024];
  if (found == scenarios.end() || commrt_backend_find("tcp", &control, message, sizeof(message)) != COMMRT_OK)
    return 2;
  timeoutNs = std::atoll(argv[2]) * 1'000'000;
  const char *rank = std::getenv("COMMRT_RANK");
  me = rank ? std::atoi(rank) : -1;
  if (open() != COMMRT_OK)
    return 1;
  found->second();
  return 0;
}
