//===- NcclTest.cpp - Tests of the emulated NCCL ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks are threads. Results are compared with plain loops.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <numeric>

using namespace emulator::test;

namespace {
constexpr int ranks = 4;

/// Element i of rank r's input: small integers, so that any order of additions gives the same bits.
std::vector<float> inputOf(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = float((rank + 1) * 100 + int(i));
  return values;
}

// Tests that a sum over all ranks is theirs, also in place and again and again.
TEST(Nccl, AllReduce) {
  onComm(ranks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
    OnDevice<float> data(inputOf(rank, 50)), out(50);
    NCCL(ncclAllReduce(data, out, 50, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclAllReduce(data, data, 50, ncclFloat32, ncclMax, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    std::vector<float> sum(50);
    for (int r = 0; r < ranks; ++r)
      for (size_t i = 0; i < 50; ++i)
        sum[i] += inputOf(r, 50)[i];
    EXPECT_EQ(out.read(), sum);
    EXPECT_EQ(data.read(), inputOf(ranks - 1, 50));
  });
}

// Tests that every rank gets every rank's part in the order of ranks, in place too.
TEST(Nccl, AllGather) {
  onComm(ranks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
    std::vector<float> expected;
    for (int r = 0; r < ranks; ++r)
      for (float value : inputOf(r, 5))
        expected.push_back(value);
    OnDevice<float> data(inputOf(rank, 5)), out(5 * ranks), inPlace(5 * ranks);
    NCCL(ncclAllGather(data, out, 5, ncclFloat32, comm, stream));
    CUDA(cudaMemcpyAsync(inPlace.data + 5 * rank, data, 20, cudaMemcpyDeviceToDevice, stream));
    NCCL(ncclAllGather(inPlace.data + 5 * rank, inPlace, 5, ncclFloat32, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(out.read(), expected);
    EXPECT_EQ(inPlace.read(), expected);
  });
}

// Tests that messages sent around a ring in a group arrive, and that two to one peer arrive in order.
TEST(Nccl, GroupedMessages) {
  onComm(ranks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    OnDevice<float> data(inputOf(rank, 8)), first(4), second(4);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(data, 4, ncclFloat32, next, comm, stream));
    NCCL(ncclSend(data.data + 4, 4, ncclFloat32, next, comm, stream));
    NCCL(ncclRecv(first, 4, ncclFloat32, before, comm, stream));
    NCCL(ncclRecv(second, 4, ncclFloat32, before, comm, stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamSynchronize(stream));
    std::vector<float> sent = inputOf(before, 8);
    EXPECT_EQ(first.read(), std::vector<float>(sent.begin(), sent.begin() + 4));
    EXPECT_EQ(second.read(), std::vector<float>(sent.begin() + 4, sent.end()));
  });
}

// Tests that a split gives each colour a communicator with ranks by key, and no colour none.
TEST(Nccl, Split) {
  onComm(ranks, [](int rank, ncclComm_t world, cudaStream_t stream) {
    ncclComm_t part = nullptr, none = nullptr;
    NCCL(ncclCommSplit(world, rank % 2, -rank, &part, nullptr));
    NCCL(ncclCommSplit(world, rank == 0 ? NCCL_SPLIT_NOCOLOR : 1, 0, &none, nullptr));
    EXPECT_EQ(none == nullptr, rank == 0);
    int size = 0, place = -1;
    NCCL(ncclCommCount(part, &size));
    NCCL(ncclCommUserRank(part, &place));
    EXPECT_EQ(size, 2);
    EXPECT_EQ(place, rank < 2 ? 1 : 0); // the greater rank has the smaller key
    OnDevice<float> data(inputOf(rank, 3)), out(6);
    NCCL(ncclAllGather(data, out, 3, ncclFloat32, part, stream));
    CUDA(cudaStreamSynchronize(stream));
    std::vector<float> expected = inputOf(rank % 2 + 2, 3), second = inputOf(rank % 2, 3);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(out.read(), expected);
    NCCL(ncclCommDestroy(part));
    if (none)
      NCCL(ncclCommDestroy(none));
  });
}

// Tests a communicator that does not block: it is polled after the start, after calls and at the end.
TEST(Nccl, Nonblocking) {
  ncclUniqueId id;
  NCCL(ncclGetUniqueId(&id));
  onRanks(2, [&](int rank) {
    ncclConfig_t config = {};
    config.size = 80; // an older library's
    config.magic = NCCL_API_MAGIC;
    config.version = 22800;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = 2;
    config.CTAPolicy = NCCL_CONFIG_UNDEF_INT;
    ncclComm_t comm = nullptr;
    auto poll = [&] {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &state));
      NCCL(state);
    };
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
    poll();
    OnDevice<float> data(inputOf(rank, 4));
    StreamOf stream;
    for (int i = 0; i < 10; ++i) {
      ncclResult_t result = ncclAllReduce(data, data, 4, ncclFloat32, ncclMin, comm, stream);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
      poll();
    }
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(data.read(), inputOf(0, 4));
    EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    poll();
    NCCL(ncclCommDestroy(comm));
  });
}
} // namespace
