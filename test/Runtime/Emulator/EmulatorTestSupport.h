//===- EmulatorTestSupport.h - Helpers shared by the emulator's tests -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checked calls, ranks as threads, and vectors on a device.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_EMULATORTESTSUPPORT_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_EMULATORTESTSUPPORT_H

#include "CudaApi.h"
#include "Hooks.h"
#include "NcclApi.h"
#include "Report.h"
#include <functional>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

// Whether this is a build with ThreadSanitizer.
#if defined(__SANITIZE_THREAD__)
#define EMULATOR_HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATOR_HAS_TSAN 1
#endif
#endif

#define CUDA(call) ASSERT_EQ(call, cudaSuccess)
#define NCCL(call) ASSERT_EQ(call, ncclSuccess)
/// The statement ends the process with one line that matches.
#define EXPECT_REPORT(statement, pattern)                                                                              \
  EXPECT_EXIT(statement, testing::ExitedWithCode(emulator::reportedStatus), "emulator: .*" pattern)

namespace emulator::test {

/// Death tests run in a new process: a fork of this one would lack the streams' threads.
struct NewProcesses : testing::Environment {
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};
inline testing::Environment *const newProcesses = testing::AddGlobalTestEnvironment(new NewProcesses);

/// A stream of the current device for a block.
struct StreamOf {
  cudaStream_t stream = nullptr;
  StreamOf() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess); }
  ~StreamOf() { EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess); }
  StreamOf(const StreamOf &) = delete;
  StreamOf &operator=(const StreamOf &) = delete;
  operator cudaStream_t() const { return stream; }
};

/// An event of the current device for a block.
struct EventOf {
  cudaEvent_t event = nullptr;
  explicit EventOf(unsigned flags = cudaEventDisableTiming) {
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
  }
  ~EventOf() { EXPECT_EQ(cudaEventDestroy(event), cudaSuccess); }
  EventOf(const EventOf &) = delete;
  EventOf &operator=(const EventOf &) = delete;
  operator cudaEvent_t() const { return event; }
};

/// Elements in memory of the current device for a block.
template <typename T> struct OnDevice {
  T *data = nullptr;
  size_t count;
  explicit OnDevice(size_t count) : count(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void **>(&data), count * sizeof(T)), cudaSuccess);
  }
  explicit OnDevice(const std::vector<T> &values) : OnDevice(values.size()) {
    EXPECT_EQ(cudaMemcpy(data, values.data(), count * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { EXPECT_EQ(cudaFree(data), cudaSuccess); }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;
  operator T *() const { return data; }
  /// A copy on the host, ordered after what the host has waited for.
  std::vector<T> read() const {
    std::vector<T> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
};

/// Runs a function on one thread for each rank, each with its own device.
inline void onRanks(int ranks, const std::function<void(int)> &function) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      function(rank);
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// A communicator of all ranks; blocking.
inline ncclComm_t join(const ncclUniqueId &id, int ranks, int rank) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, ranks, id, rank), ncclSuccess);
  return comm;
}

/// Runs a function on threads that are the ranks of one communicator.
inline void onComm(int ranks, const std::function<void(int rank, ncclComm_t comm, cudaStream_t stream)> &function) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  onRanks(ranks, [&](int rank) {
    ncclComm_t comm = join(id, ranks, rank);
    {
      StreamOf stream;
      function(rank, comm, stream);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    ASSERT_EQ(ncclCommFinalize(comm), ncclSuccess);
    ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

} // namespace emulator::test

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_EMULATORTESTSUPPORT_H
