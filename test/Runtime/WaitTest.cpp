//===- WaitTest.cpp - Tests of waits that poll a backend --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A backend that completes its work in the thousandth poll shows how a wait spends the time until then: the system
// counts how often a thread gives its core away by itself, which a sleep does and a poll does not. The work claims to
// move so much that a wait may spin for seconds, so that the tests depend on no duration.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Runtime/Backend.h"
#include "RuntimeTestSupport.h"
#include <sys/resource.h>

using namespace commsched::test;

namespace {
constexpr int pollsOfWork = 1000;
constexpr int64_t largeCount = int64_t(1) << 33; // of bytes, 8 s at 1 GB/s

struct PolledJob {
  const commrt_host *host = nullptr;
  commrt_work *work = nullptr;
  int polls = 0;
};

const commrt_backend polledBackend = {
    COMMRT_BACKEND_ABI_VERSION,
    COMMRT_BACKEND_REQUIRED_SIZE,
    "polled",
    COMMRT_BACKEND_POLLED,
    [](const commrt_backend_config *config, void **job, int32_t *ranks, int32_t *local, char *, size_t) {
      *job = new PolledJob();
      *ranks = config->ranks;
      *local = -1;
      return int32_t(COMMRT_OK);
    },
    [](void *job) { delete static_cast<PolledJob *>(job); },
    [](void *job, int32_t, const commrt_host *host, void *, void **peer) {
      static_cast<PolledJob *>(job)->host = host;
      *peer = job;
      return int32_t(COMMRT_OK);
    },
    [](void *) {},
    [](void *peer, const char *, const int32_t *, int32_t, int32_t, void **group, char *, size_t) {
      *group = peer;
      return int32_t(COMMRT_OK);
    },
    [](void *) {},
    [](void *group, commrt_work *work) {
      static_cast<PolledJob *>(group)->work = work;
      return int32_t(COMMRT_OK);
    },
    [](void *peer) {
      auto *job = static_cast<PolledJob *>(peer);
      if (job->work && ++job->polls == pollsOfWork)
        job->host->complete(std::exchange(job->work, nullptr), COMMRT_OK, 0);
      return int32_t(COMMRT_OK);
    },
    [](void *, void *, int64_t, commrt_combine_fn, int64_t, char *, size_t) { return int32_t(COMMRT_OK); },
    [](void *, int32_t, const char *) {},
    [](void *, char *text, size_t size) {
      if (size > 0)
        *text = 0;
      return int32_t(COMMRT_OK);
    },
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

int64_t sleepsOfThread() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// How often the wait for one large gather sleeps in a job of that many ranks.
int64_t sleepsOfWait(int32_t ranks) {
  EXPECT_EQ(commrt_backend_register(&polledBackend), COMMRT_OK);
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "polled";
  options.ranks = ranks;
  commrt_job *job = nullptr;
  commrt_context *context = nullptr;
  commrt_group *group = nullptr;
  commrt_token *token = nullptr;
  EXPECT_EQ(commrt_job_create(&options, &job, nullptr, 0), COMMRT_OK);
  EXPECT_EQ(commrt_context_create(job, 0, &context), COMMRT_OK);
  int64_t offsets[] = {0, 1}, members[] = {0};
  EXPECT_EQ(commrt_group_create(context, "alone", 1, offsets, members, &group), COMMRT_OK);
  char in = 0, out = 0;
  EXPECT_EQ(commrt_all_gather_start(group, &in, &out, 1, largeCount, COMMRT_I8, -1, &token), COMMRT_OK);
  int64_t before = sleepsOfThread();
  EXPECT_EQ(commrt_wait(token, nullptr), COMMRT_OK);
  int64_t sleeps = sleepsOfThread() - before;
  commrt_token_release(token);
  commrt_context_destroy(context);
  commrt_job_destroy(job);
  return sleeps;
}

/// Tests that a wait spins where the rank has a core to itself.
TEST(Wait, SpinsOnACoreOfItsOwn) { EXPECT_LT(sleepsOfWait(1), pollsOfWork / 10); }

/// Tests that a wait gives the core away, yielding at first, where ranks outnumber cores.
TEST(Wait, SleepsWhereRanksOutnumberCores) { EXPECT_GE(sleepsOfWait(1 << 20), pollsOfWork / 2); }
} // namespace
