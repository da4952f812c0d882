//===- RuntimeTestSupport.h - Ranks as threads, for tests -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Runs one function per rank on a job of the threads backend, and gathers what each rank ended with.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_RUNTIMETESTSUPPORT_H
#define COMMSCHED_TEST_RUNTIME_RUNTIMETESTSUPPORT_H

#include "CommSched/Runtime/Runtime.h"
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace commsched::test {
struct RankResult {
  int32_t status = COMMRT_OK;
  std::string message;
};

/// The backend that tests run on unless they say otherwise.
inline const char *defaultBackend() {
  const char *name = std::getenv("COMMRT_TEST_BACKEND");
  return name && *name ? name : "threads";
}

struct RunOptions {
  int64_t timeoutMs = 20000;
  const char *fault = nullptr;
  const char *backend = defaultBackend();
  bool trace = false, poison = true;
  int32_t workers = 2;
};

inline commrt_job *openJob(int32_t ranks, const RunOptions &how) {
  commrt_options options;
  commrt_options_init(&options);
  options.ranks = ranks;
  options.backend = how.backend;
  options.timeout_ns = how.timeoutMs * 1'000'000;
  options.fault = how.fault;
  options.trace = how.trace;
  options.poison = how.poison;
  options.workers = how.workers;
  commrt_job *job = nullptr;
  char message[512];
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  return job;
}

/// Runs body(context) on each rank; the results are the ranks' last errors.
inline std::vector<RankResult> runRanks(int32_t ranks, const RunOptions &how,
                                        const std::function<void(commrt_context *)> &body) {
  commrt_job *job = openJob(ranks, how);
  std::vector<RankResult> results(ranks);
  std::vector<commrt_context *> contexts(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank)
    EXPECT_EQ(commrt_context_create(job, rank, &contexts[rank]), COMMRT_OK);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      body(contexts[rank]);
      char message[4096];
      results[rank].status = commrt_last_error(contexts[rank], message, sizeof(message));
      results[rank].message = message;
      commrt_context_destroy(contexts[rank]);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
  return results;
}

inline void expectAllOk(const std::vector<RankResult> &results) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    EXPECT_EQ(results[rank].status, COMMRT_OK) << "rank " << rank << ": " << results[rank].message;
}

/// Every rank ended with the status, and with a message that holds each text.
inline void expectAllFailed(const std::vector<RankResult> &results, int32_t status,
                            const std::vector<std::string> &texts) {
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].status, status) << "rank " << rank << ": " << results[rank].message;
    for (const std::string &text : texts)
      EXPECT_NE(results[rank].message.find(text), std::string::npos)
          << "rank " << rank << " lacks '" << text << "' in: " << results[rank].message;
  }
}

/// The group of all ranks.
inline commrt_group *worldGroup(commrt_context *context, const char *name = "world") {
  int64_t n = commrt_ranks(context);
  std::vector<int64_t> offsets = {0, n}, ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  commrt_group *group = nullptr;
  commrt_group_create(context, name, 1, offsets.data(), ranks.data(), &group);
  return group;
}

/// What collectives read and write: a vector where ranks have host memory, otherwise memory of the device, which is
/// read in the order of the default stream.
template <typename T> class Memory {
public:
  Memory(commrt_context *context, std::vector<T> initial) : context(context), host(std::move(initial)) {
    if (!isDevice())
      return;
    // After an error of another rank there is memory, but nothing is copied.
    EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes(), &device), COMMRT_OK);
    commrt_copy(context, device, host.data(), bytes(), COMMRT_COPY_TO_DEVICE, nullptr);
  }
  Memory(commrt_context *context, int64_t size, T value) : Memory(context, std::vector<T>(size, value)) {}
  ~Memory() {
    if (device)
      commrt_free(context, device);
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  /// For starts. What is read next is what is there then.
  T *data() {
    isCurrent = false;
    return isDevice() ? static_cast<T *>(device) : host.data();
  }
  const std::vector<T> &values() {
    if (isDevice() && !isCurrent) {
      EXPECT_EQ(commrt_copy(context, host.data(), device, bytes(), COMMRT_COPY_FROM_DEVICE, nullptr), COMMRT_OK);
    }
    isCurrent = true;
    return host;
  }
  T operator[](int64_t index) { return values()[index]; }

private:
  bool isDevice() const { return commrt_context_is_device(context); }
  int64_t bytes() const { return static_cast<int64_t>(host.size() * sizeof(T)); }

  commrt_context *context;
  std::vector<T> host;
  void *device = nullptr;
  bool isCurrent = true;
};

/// Blocks until the token is complete, also on a device, and releases it.
inline int32_t finishOnHost(commrt_token *token) {
  if (!token)
    return COMMRT_ERR_INVALID;
  int32_t status = commrt_wait_host(token, -1);
  commrt_token_release(token);
  return status;
}

/// Waits and releases. On a device the default stream waits.
inline int32_t finish(commrt_token *token) {
  if (!token)
    return COMMRT_ERR_INVALID;
  int32_t status = commrt_wait(token, nullptr);
  commrt_token_release(token);
  return status;
}
} // namespace commsched::test

#endif // COMMSCHED_TEST_RUNTIME_RUNTIMETESTSUPPORT_H
