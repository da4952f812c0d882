//===- MpiScenario.cpp - Ranks that leave, fail or never come, over MPI -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
//     mpirun -np N RuntimeMpiScenario NAME TIMEOUT-MS
//
// Each rank prints one line, "rank R: STATUS: MESSAGE". mpi_scenarios.py starts the scenarios and knows how each has to
// end. A failed job ends without MPI_Finalize, which mpirun reports: so these are no gtests. Where ranks have to do
// something in an order, they tell each other over MPI_COMM_WORLD, past the runtime.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Runtime.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

namespace {
commrt_job *job;
commrt_context *context;
int me, n;
int64_t timeoutNs;

void print(int32_t status, const char *message) {
  std::printf("rank %d: %s: %s\n", me, commrt_status_name(status), message);
  std::fflush(stdout);
}

int32_t open(bool progressThread = false) {
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "mpi";
  options.timeout_ns = timeoutNs;
  options.progress_thread |= progressThread;
  char message[1024] = "";
  int32_t status = commrt_job_create(&options, &job, message, sizeof(message));
  if (status == COMMRT_OK)
    status = commrt_context_create(job, commrt_job_local_rank(job), &context);
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

void leaveBeforeCollective() {
  float value = 1;
  commrt_group *group = world();
  if (me != 0)
    reduce(group, &value);
  close();
}

/// The others are in the collective, or not: both happen.
void leaveLate() {
  float value = 1;
  commrt_group *group = world();
  if (me == 0)
    usleep(100'000);
  else
    reduce(group, &value);
  close();
}

void leaveBeforeComparison() {
  if (me != 0)
    commrt_program_begin(context, 1, nullptr, 0);
  close();
}

void leaveBeforeEnd() {
  if (commrt_program_begin(context, 1, nullptr, 0) == COMMRT_OK && me != 0)
    commrt_program_end(context);
  close();
}

void leaveBeforeGroup() {
  if (me != 0)
    world();
  close();
}

/// Rank 0 sends one message of the two that rank 1 expects, and the large one that it sends is not received.
void leaveBeforeMessage() {
  commrt_group *group = world();
  std::vector<float> first(100'000, 7), second(100'000);
  commrt_token *token = nullptr;
  if (me == 0)
    finish(commrt_send_start(group, first.data(), first.size(), COMMRT_F32, 1, 0, -1, &token), token);
  if (me == 1) {
    int32_t status =
        finish(commrt_recv_start(group, second.data(), second.size(), COMMRT_F32, 0, 0, -1, &token), token);
    if (status != COMMRT_OK || second != first)
      commrt_abort(context, COMMRT_ERR_INVALID, "the first message has not arrived");
    finish(commrt_recv_start(group, second.data(), second.size(), COMMRT_F32, 0, 0, -1, &token), token);
  }
  if (me > 1)
    commrt_program_end(context);
  close();
}

void leaveBeforeReceiving() {
  commrt_group *group = world();
  std::vector<float> large(1'000'000);
  commrt_token *token = nullptr;
  if (me == 1)
    finish(commrt_send_start(group, large.data(), large.size(), COMMRT_F32, 0, 0, -1, &token), token);
  close();
}

/// What a rank sent before it left still arrives, in several jobs of one process after each other.
void leaveAfterSending() {
  for (int round = 0; round < 3; ++round) {
    if (round > 0 && open() != COMMRT_OK)
      return;
    commrt_group *group = world();
    std::vector<float> data(1000, 5 + round);
    if (me != 0)
      usleep(20'000);
    commrt_token *token = nullptr;
    finish(commrt_broadcast_start(group, data.data(), data.data(), 1000, COMMRT_F32, 0, -1, &token), token);
    if (data[999] != 5 + round)
      commrt_abort(context, COMMRT_ERR_INVALID, "wrong data");
    close();
  }
}

/// Rank 1 fails after rank 0 has destroyed its context and before it closes its job.
void failAfterOthersLeft() {
  int word = 0;
  if (commrt_program_end(context) != COMMRT_OK)
    return close();
  if (me == 0) {
    commrt_context_destroy(context);
    MPI_Send(&word, 1, MPI_INT, 1, 77, MPI_COMM_WORLD);
    MPI_Recv(&word, 1, MPI_INT, 1, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    usleep(50'000); // many rounds of a progress thread, if there were one
    commrt_job_destroy(job);
    return print(COMMRT_OK, "");
  }
  if (me == 1) {
    MPI_Recv(&word, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    commrt_abort(context, COMMRT_OK, "late");
    MPI_Send(&word, 1, MPI_INT, 0, 78, MPI_COMM_WORLD);
  }
  close();
}

/// Rank 1 initialises MPI and does something else.
void oneRankOpensNothing() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  int word = 0;
  if (me == 1) {
    MPI_Recv(&word, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return print(COMMRT_OK, "");
  }
  if (open() != COMMRT_OK)
    MPI_Send(&word, 1, MPI_INT, 1, 77, MPI_COMM_WORLD);
  else
    close();
}

void oneRankNeverCompares() {
  int word = 0;
  if (me == 1)
    MPI_Recv(&word, 1, MPI_INT, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else
    commrt_program_begin(context, 1, nullptr, 0);
  if (me == 0)
    MPI_Send(&word, 1, MPI_INT, 1, 77, MPI_COMM_WORLD);
  commrt_progress(context);
  close();
}

/// Some compare schedules while others end the program.
void differentCombinations() {
  if (me == n - 1)
    commrt_program_end(context);
  else
    commrt_program_begin(context, 1, nullptr, 0);
  close();
}

int numFatal = 0;
void countFatal(MPI_Comm *, int *, ...) { ++numFatal; }

/// The application initialises MPI without threads: a progress thread is refused, a job without one works, and the
/// application's error handler is there again.
void applicationWithoutThreads() {
  int level;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  MPI_Errhandler own, after;
  MPI_Comm_create_errhandler(countFatal, &own);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
  if (open(true) == COMMRT_OK)
    return print(COMMRT_ERR_INVALID, "a progress thread was not refused");
  if (open() != COMMRT_OK)
    return;
  float value = 1;
  reduce(world(), &value);
  commrt_program_end(context);
  commrt_context_destroy(context);
  commrt_job_destroy(job);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  print(value == n && after == own && numFatal == 0 ? COMMRT_OK : COMMRT_ERR_INVALID, "the job has ended");
  MPI_Finalize();
}

const std::map<std::string, void (*)()> scenarios = {
    {"leave-before-collective", leaveBeforeCollective}, {"leave-late", leaveLate},
    {"leave-before-comparison", leaveBeforeComparison}, {"leave-before-end", leaveBeforeEnd},
    {"leave-before-group", leaveBeforeGroup},           {"leave-before-message", leaveBeforeMessage},
    {"leave-before-receiving", leaveBeforeReceiving},   {"leave-after-sending", leaveAfterSending},
    {"fail-after-others-left", failAfterOthersLeft},    {"never-compares", oneRankNeverCompares},
    {"different-combinations", differentCombinations},
};
} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    return 1;
  std::string name = argv[1];
  timeoutNs = std::atoll(argv[2]) * 1'000'000;
  if (name == "opens-nothing") {
    oneRankOpensNothing();
    std::_Exit(0); // rank 0 may not wait in MPI_Finalize for what rank 1 never made
  }
  if (name == "application-without-threads") {
    applicationWithoutThreads();
    return 0;
  }
  auto found = scenarios.find(name);
  if (found == scenarios.end() || open() != COMMRT_OK)
    return 1;
  me = commrt_job_local_rank(job);
  n = commrt_job_ranks(job);
  found->second();
  return 0;
}
