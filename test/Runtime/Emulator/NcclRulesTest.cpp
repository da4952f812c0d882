//===- NcclRulesTest.cpp - Tests of the rules that the emulated NCCL keeps --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL answers with a hang or with wrong data ends here with one line.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <dlfcn.h>

using namespace emulator::test;

namespace {
float *allocate(size_t count = 64) {
  void *memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(float)), cudaSuccess);
  return static_cast<float *>(memory);
}

/// Two ranks do different things, and then wait for their streams.
void onTwo(const std::function<void(int rank, ncclComm_t comm, cudaStream_t stream)> &function) {
  onComm(2, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    function(rank, comm, stream);
    CUDA(cudaStreamSynchronize(stream));
  });
}

// Tests that ranks call the same collective with the same count, type, operation and root.
TEST(NcclRules, SameCalls) {
  auto kinds = [](int rank, ncclComm_t comm, cudaStream_t stream) {
    rank ? ncclAllGather(allocate(), allocate(), 4, ncclFloat32, comm, stream)
         : ncclAllReduce(allocate(), allocate(), 4, ncclFloat32, ncclSum, comm, stream);
  };
  EXPECT_REPORT(onTwo(kinds), "mismatch on world: rank . calls ncclAll.*count 4.*, rank . calls ncclAll");
  auto counts = [](int rank, ncclComm_t comm, cudaStream_t stream) {
    ncclAllReduce(allocate(), allocate(), size_t(4 + rank), ncclFloat32, ncclSum, comm, stream);
  };
  EXPECT_REPORT(onTwo(counts), "mismatch on world.*count 4.*count 5|mismatch on world.*count 5.*count 4");
  auto types = [](int rank, ncclComm_t comm, cudaStream_t stream) {
    ncclAllReduce(allocate(), allocate(), 4, rank ? ncclFloat32 : ncclInt32, ncclSum, comm, stream);
  };
  EXPECT_REPORT(onTwo(types), "mismatch on world.*type");
  auto operations = [](int rank, ncclComm_t comm, cudaStream_t stream) {
    ncclAllReduce(allocate(), allocate(), 4, ncclFloat32, rank ? ncclSum : ncclMax, comm, stream);
  };
  EXPECT_REPORT(onTwo(operations), "mismatch on world.*op");
  auto roots = [](int rank, ncclComm_t comm, cudaStream_t stream) {
    ncclBroadcast(allocate(), allocate(), 4, ncclFloat32, rank, comm, stream);
  };
  EXPECT_REPORT(onTwo(roots), "mismatch on world.*root");
  auto messages = [](int rank, ncclComm_t comm, cudaStream_t stream) {
    rank ? ncclSend(allocate(), 4, ncclFloat32, 0, comm, stream)
         : ncclRecv(allocate(), 5, ncclFloat32, 1, comm, stream);
  };
  EXPECT_REPORT(onTwo(messages), "mismatch on world: rank 0 calls ncclRecv.count 5.*rank 1 calls ncclSend.count 4");
}

/// Two communicators of both ranks, used in different orders, or in a group.
void crossed(bool isGrouped) {
  onTwo([&](int rank, ncclComm_t world, cudaStream_t stream) {
    ncclComm_t second = nullptr;
    NCCL(ncclCommSplit(world, 0, rank, &second, nullptr));
    OnDevice<float> data(std::vector<float>{1}), more(std::vector<float>{1});
    StreamOf other;
    auto onWorld = [&] { NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, world, stream)); };
    auto onSecond = [&] { NCCL(ncclAllReduce(more, more, 1, ncclFloat32, ncclSum, second, other)); };
    if (isGrouped)
      NCCL(ncclGroupStart());
    rank ? onWorld() : onSecond();
    rank ? onSecond() : onWorld();
    if (isGrouped)
      NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamSynchronize(other));
    EXPECT_EQ(data.read()[0], 2);
    NCCL(ncclCommDestroy(second));
  });
}

// Tests that two ranks call the collectives of two communicators in one order, unless they are in a group.
TEST(NcclRules, OneOrder) {
  EXPECT_REPORT(crossed(false), "another order of collectives: rank . calls ncclAllReduce.* before ncclAllReduce");
  crossed(true);
}

// Tests that an order is found to be contradictory over three ranks and three communicators of two.
TEST(NcclRules, OneOrderOfThree) {
  auto cycle = [] {
    onComm(3, [](int rank, ncclComm_t world, cudaStream_t stream) {
      // Part i has ranks i and i + 1.
      ncclComm_t parts[3] = {};
      for (int i = 0; i < 3; ++i)
        NCCL(ncclCommSplit(world, rank == i || rank == (i + 1) % 3 ? 0 : NCCL_SPLIT_NOCOLOR, rank, &parts[i], nullptr));
      // Rank r calls part r before part r - 1: each of the three comes before the next one around.
      for (int i : {rank, (rank + 2) % 3}) {
        StreamOf own;
        float *data = allocate();
        NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, parts[i], own));
      }
    });
  };
  EXPECT_REPORT(cycle(), "another order of collectives");
}

// Tests that one thread at a time is in a communicator, that it is idle, and that it is live.
TEST(NcclRules, Communicators) {
  auto destroyed = [] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclComm_t comm = join(id, 1, 0);
    ncclCommDestroy(comm);
    int rank;
    ncclCommUserRank(comm, &rank);
  };
  EXPECT_REPORT(destroyed(), "ncclCommUserRank: the communicator is destroyed");
  auto busy = [] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = {};
    config.size = offsetof(ncclConfig_t, cgaClusterSize);
    config.magic = NCCL_API_MAGIC;
    ncclComm_t comm = nullptr;
    ncclCommInitRankConfig(&comm, 2, id, 0, &config); // its peer never comes
    int rank;
    ncclCommUserRank(comm, &rank);
  };
  EXPECT_REPORT(busy(), "ncclCommUserRank: the communicator is still in progress");
  auto finalized = [] {
    onTwo([](int rank, ncclComm_t comm, cudaStream_t stream) {
      ncclCommFinalize(comm);
      ncclAllReduce(allocate(), allocate(), 4, ncclFloat32, ncclSum, comm, stream);
    });
  };
  EXPECT_REPORT(finalized(), "ncclAllReduce: the communicator is finalized");
  auto twoThreads = [] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    onRanks(2, [&](int rank) {
      if (rank == 1)
        std::this_thread::sleep_for(std::chrono::hours(1));
      cudaStream_t stream = nullptr;
      ncclComm_t comm = nullptr;
      ncclCommInitRank(&comm, 1, id, 0);
      float *data = allocate();
      // Any two of many calls overlap at some time.
      std::vector<std::thread> threads;
      for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
          cudaSetDevice(0);
          while (true)
            ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comm, stream);
        });
      for (std::thread &thread : threads)
        thread.join();
    });
  };
  EXPECT_REPORT(twoThreads(), "two threads are in one communicator");
  auto duplicate = [] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < 2; ++rank) {
      ncclConfig_t config = {};
      config.size = offsetof(ncclConfig_t, cgaClusterSize);
      config.magic = NCCL_API_MAGIC;
      ncclComm_t comm;
      ncclCommInitRankConfig(&comm, 2, id, rank, &config);
    }
  };
  EXPECT_REPORT(duplicate(), "duplicate GPU detected: ranks 0 and 1 of world are both on device 0");
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  ncclComm_t comm;
  ncclConfig_t noMagic = {};
  noMagic.size = sizeof(noMagic);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &noMagic), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument);
}

// Tests that a stream belongs to the communicator's device.
TEST(NcclRules, Devices) {
  auto wrong = [] {
    onTwo([](int rank, ncclComm_t comm, cudaStream_t stream) {
      cudaSetDevice(2);
      cudaStream_t other = nullptr;
      cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
      ncclAllReduce(allocate(), allocate(), 4, ncclFloat32, ncclSum, comm, other);
    });
  };
  EXPECT_REPORT(wrong(), "ncclAllReduce: wrong device: the stream is of device 2");
}

/// Registers a window on both ranks and calls a collective at offsets that the rank decides.
void windows(const std::function<size_t(int rank)> &inputAt, const std::function<void(int, ncclComm_t, char *)> &also) {
  onTwo([&](int rank, ncclComm_t comm, cudaStream_t stream) {
    void *memory = nullptr;
    ncclWindow_t window;
    NCCL(ncclMemAlloc(&memory, 8192));
    auto *bytes = static_cast<char *>(memory);
    NCCL(ncclCommWindowRegister(comm, memory, 8192, &window, NCCL_WIN_COLL_SYMMETRIC));
    CUDA(cudaMemsetAsync(memory, 0, 8192, stream));
    also(rank, comm, bytes);
    NCCL(ncclAllReduce(bytes + inputAt(rank), bytes + 4096, 4, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclAllGather(bytes + 4096 + rank * 16, bytes + 4096, 4, ncclFloat32, comm, stream)); // in place
    CUDA(cudaStreamSynchronize(stream));
    NCCL(ncclCommWindowDeregister(comm, window));
    NCCL(ncclMemFree(memory));
  });
}

// Tests that buffers in a window are at one offset, and that windows are registered once and from NCCL's memory.
TEST(NcclRules, Windows) {
  auto nothing = [](int, ncclComm_t, char *) {};
  windows([](int) { return 64; }, nothing);
  EXPECT_REPORT(windows([](int rank) { return size_t(rank) * 16; }, nothing),
                "the input of rank . is at offset .* of window 0, of rank . at offset .* of window 0");
  auto zero = [](int) { return size_t(0); };
  EXPECT_REPORT(windows(zero,
                        [](int, ncclComm_t comm, char *bytes) {
                          ncclWindow_t again;
                          ncclCommWindowRegister(comm, bytes, 4096, &again, NCCL_WIN_COLL_SYMMETRIC);
                        }),
                "registered twice");
  EXPECT_REPORT(windows(zero,
                        [](int, ncclComm_t comm, char *) {
                          ncclWindow_t other;
                          ncclCommWindowRegister(comm, allocate(2048), 4096, &other, NCCL_WIN_COLL_SYMMETRIC);
                        }),
                "the memory is not from ncclMemAlloc");
  EXPECT_REPORT(windows(zero, [](int, ncclComm_t, char *bytes) { ncclMemFree(bytes); }),
                "ncclMemFree: a window is still registered");
  EXPECT_REPORT(windows(zero, [](int, ncclComm_t comm, char *) { ncclCommDestroy(comm); }),
                "ncclCommDestroy: a window is still registered");
  EXPECT_REPORT(ncclMemFree(allocate()), "the pointer is not from ncclMemAlloc");
}

// Tests that a collective's buffers may not be freed before it is done.
TEST(NcclRules, BuffersLive) {
  auto early = [] {
    onTwo([](int rank, ncclComm_t comm, cudaStream_t stream) {
      float *data = allocate();
      ncclAllReduce(data, data, 4, ncclFloat32, ncclSum, comm, stream);
      if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cudaFree(data);
      }
    });
  };
  EXPECT_REPORT(early(), "free");
}

// Tests that old versions lack later functions, as symbols and by number.
TEST(NcclRules, Versions) {
  void *old = dlopen(NCCL_EMU_2_18, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(old, nullptr) << dlerror();
  EXPECT_EQ(dlsym(old, "ncclAlltoAll"), nullptr);
  EXPECT_EQ(dlsym(old, "ncclCommWindowRegister"), nullptr);
  EXPECT_NE(dlsym(old, "ncclCommSplit"), nullptr);
  auto version = reinterpret_cast<ncclResult_t (*)(int *)>(dlsym(old, "ncclGetVersion"));
  ASSERT_NE(version, nullptr);
  int number = 0;
  NCCL(version(&number));
  EXPECT_EQ(number, 21805);
  auto imitated = [] {
    setenv("NCCL_EMU_VERSION", "22700", 1);
    void *memory = nullptr;
    ncclAlltoAll(memory, memory, 1, ncclFloat32, nullptr, nullptr);
  };
  EXPECT_REPORT(imitated(), "ncclAlltoAll appeared in NCCL 2.28.0, and this is 2.27.0");
}
} // namespace
