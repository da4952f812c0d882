//===- NcclFaultsTest.cpp - Tests of faults on demand, abort and revocation -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank that is lost holds its peers until they abort; then nothing hangs, and nothing is leaked.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <atomic>

using namespace emulator::test;

namespace {
/// Runs in a process of its own, with the fault, and ends with 0 if the function returns.
void withFault(const char *fault, const std::function<void()> &function) {
  setenv("NCCL_EMU_FAULT", fault, 1);
  function();
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

#define EXPECT_FINE(statement) EXPECT_EXIT(statement, testing::ExitedWithCode(0), "")

/// Both ranks start three collectives; those that cannot be done are aborted.
void loseAndAbort(bool isRevoked) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  std::atomic<int> looked{0};
  onRanks(2, [&](int rank) {
    ncclComm_t comm = join(id, 2, rank);
    StreamOf stream;
    EventOf first, last;
    OnDevice<float> data(std::vector<float>{1, 1});
    for (int i = 0; i < 3; ++i) {
      NCCL(ncclAllReduce(data, data, 2, ncclFloat32, ncclSum, comm, stream));
      CUDA(cudaEventRecord(i == 0 ? first : last, stream));
    }
    CUDA(cudaEventSynchronize(first)); // the first one was complete
    EXPECT_EQ(cudaEventQuery(last), cudaErrorNotReady);
    for (++looked; looked < 2;) // an abort lets the other rank go, too
      std::this_thread::yield();
    if (isRevoked) {
      ncclResult_t state = ncclCommRevoke(comm, 0);
      while (state == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &state));
      EXPECT_EQ(state, ncclSuccess); // quiescent, and good for management calls alone
      EXPECT_EQ(ncclCommRevoke(comm, 0), ncclInvalidArgument);
      CUDA(cudaStreamSynchronize(stream));
      NCCL(ncclCommDestroy(comm));
    } else {
      NCCL(ncclCommAbort(comm));
    }
    CUDA(cudaStreamSynchronize(stream));
  });
}

// Tests that a lost rank holds the stream of its peers, and that abort and revocation let it go.
TEST(NcclFaults, LostRank) {
  EXPECT_FINE(withFault("lose:1:2", [] { loseAndAbort(false); }));
  EXPECT_FINE(withFault("lose:1:2", [] { loseAndAbort(true); }));
}

// Tests that a call fails as asked for, at that call and on that rank alone.
TEST(NcclFaults, ErrorAtACall) {
  EXPECT_FINE(withFault("error:1:2", [] {
    onComm(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
      OnDevice<float> data(std::vector<float>{1});
      auto send = [&] { return ncclSend(data, 1, ncclFloat32, 0, comm, stream); };
      if (rank == 0)
        NCCL(ncclRecv(data, 1, ncclFloat32, 1, comm, stream));
      else {
        NCCL(send());
        EXPECT_EQ(send(), ncclSystemError);
        EXPECT_STREQ(ncclGetLastError(comm), "a fault was asked for");
      }
      CUDA(cudaStreamSynchronize(stream));
    });
  }));
}

// Tests that a remote error appears where it is polled for.
TEST(NcclFaults, RemoteError) {
  EXPECT_FINE(withFault("remote:0:1", [] {
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    ncclComm_t comm = join(id, 1, 0);
    ncclResult_t state;
    NCCL(ncclCommGetAsyncError(comm, &state));
    NCCL(state);
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr), ncclRemoteError);
    NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclRemoteError);
    NCCL(ncclCommAbort(comm));
  }));
}

// Tests that an abort may hang, on the given rank alone.
TEST(NcclFaults, HangingAbort) {
  EXPECT_FINE(withFault("hang-abort:1", [] {
    ncclUniqueId id;
    NCCL(ncclGetUniqueId(&id));
    std::atomic<int> returned{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        CUDA(cudaSetDevice(rank));
        NCCL(ncclCommAbort(join(id, 2, rank)));
        returned += rank + 1;
      });
    threads[0].join();
    EXPECT_EQ(returned, 1);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0); // the other one never returns
  }));
}

// Tests that the wait for peers that never come ends with an abort by another thread.
TEST(NcclFaults, AbortWhileJoining) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  ncclConfig_t config = {};
  config.size = offsetof(ncclConfig_t, cgaClusterSize); // `blocking` alone
  config.magic = NCCL_API_MAGIC;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state;
  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclInProgress);
  NCCL(ncclCommAbort(comm));
}

// Tests that a fault that nobody knows is refused.
TEST(NcclFaults, Unknown) {
  auto unknown = [] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclComm_t comm = join(id, 1, 0);
    ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr);
  };
  EXPECT_REPORT(withFault("explode:1", unknown), "NCCL_EMU_FAULT: expected .*, got 'explode:1'");
  EXPECT_REPORT(withFault("lose:1", unknown), "NCCL_EMU_FAULT: expected .*, got 'lose:1'");
}
} // namespace
