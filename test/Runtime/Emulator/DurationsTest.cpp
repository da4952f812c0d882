//===- DurationsTest.cpp - Tests of the virtual clock -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Times are those of the model, whatever the machine does meanwhile.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <cstdlib>

using namespace emulator::test;

namespace {
/// Microseconds between two events that have happened.
double microseconds(cudaEvent_t begin, cudaEvent_t end) {
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
  return double(ms) * 1000;
}

// Tests that operations of a stream add up, and that those of two streams overlap.
TEST(Durations, OfStreams) {
  constexpr size_t bytes = 1500000; // a microsecond after 2 us of latency
  OnDevice<uint8_t> first(bytes), second(bytes);
  StreamOf main, side;
  EventOf begin(cudaEventDefault), middle(cudaEventDefault), end(cudaEventDefault), fork, joined;
  CUDA(cudaEventRecord(begin, main));
  CUDA(cudaMemsetAsync(first, 0, bytes, main));
  CUDA(cudaMemsetAsync(first, 0, bytes, main));
  CUDA(cudaEventRecord(middle, main));
  CUDA(cudaStreamWaitEvent(side, middle, 0));
  CUDA(cudaMemsetAsync(second, 0, bytes, side));
  CUDA(cudaEventRecord(joined, side));
  CUDA(cudaMemsetAsync(first, 0, bytes, main));
  CUDA(cudaStreamWaitEvent(main, joined, 0));
  CUDA(cudaEventRecord(end, main));
  CUDA(cudaStreamSynchronize(main));
  EXPECT_NEAR(microseconds(begin, middle), 6, 1e-3);
  EXPECT_NEAR(microseconds(middle, end), 3, 1e-3);
}

// Tests that an event that has not happened gives no time.
TEST(Durations, NotReady) {
  StreamOf stream;
  EventOf begin(cudaEventDefault), end(cudaEventDefault);
  std::atomic<bool> isReleased{false};
  CUDA(cudaEventRecord(begin, stream));
  if (std::getenv("CUDA_EMU_SCHEDULE") == nullptr) // the function holds its thread, and here there is one
    CUDA(cudaLaunchHostFunc(
        stream,
        [](void *flag) {
          while (!static_cast<std::atomic<bool> *>(flag)->load())
            std::this_thread::yield();
        },
        &isReleased));
  else
    isReleased = true;
  CUDA(cudaEventRecord(end, stream));
  float ms;
  if (!isReleased)
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  isReleased = true;
  CUDA(cudaEventSynchronize(end));
  EXPECT_NEAR(microseconds(begin, end), 0, 1e-3);
}

// Tests that a collective begins when its last rank does and takes as long on every rank.
TEST(Durations, OfCollectives) {
  onComm(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
    constexpr size_t count = 75000; // 300,000 bytes, twice: 2 us after 10 us of latency
    OnDevice<float> data(count);
    CUDA(cudaMemsetAsync(data, 0, count * sizeof(float), stream));
    EventOf begin(cudaEventDefault), end(cudaEventDefault);
    NCCL(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, stream)); // the ranks' clocks meet
    CUDA(cudaEventRecord(begin, stream));
    if (rank == 1)
      CUDA(cudaMemsetAsync(data, 0, count * sizeof(float), stream)); // 2.2 us late
    NCCL(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, stream));
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_NEAR(microseconds(begin, end), 14.2, 1e-2);
  });
}

// Tests that a collective and kernels slow each other down while both run, and only then.
TEST(Durations, OfContention) {
  auto contend = [] {
    setenv("CUDA_EMU_MEMORY_SLOW_PERMILLE", "400", 1);
    setenv("CUDA_EMU_MEMORY_SLOW_PER_CTA_PERMILLE", "75", 1);
    setenv("NCCL_EMU_SLOW_BY_MEMORY_PERMILLE", "250", 1);
    onComm(2, [](int, ncclComm_t comm, cudaStream_t stream) {
      constexpr size_t count = 3000000;  // 12,000,000 bytes, twice: 80 us after 10 us of latency
      constexpr size_t bytes = 60000000; // 40 us after 2 us
      OnDevice<float> data(count);
      OnDevice<uint8_t> other(bytes);
      StreamOf side;
      EventOf start, begin(cudaEventDefault), end(cudaEventDefault), copied(cudaEventDefault), late(cudaEventDefault);
      NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comm, stream)); // the ranks' clocks meet
      CUDA(cudaEventRecord(start, stream));
      CUDA(cudaStreamWaitEvent(side, start, 0));
      CUDA(cudaEventRecord(begin, stream));
      NCCL(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, stream));
      CUDA(cudaEventRecord(end, stream));
      CUDA(cudaMemsetAsync(other, 0, bytes, side));
      CUDA(cudaEventRecord(copied, side));
      CUDA(cudaStreamWaitEvent(side, end, 0));
      CUDA(cudaMemsetAsync(other, 0, bytes, side));
      CUDA(cudaEventRecord(late, side));
      CUDA(cudaStreamWaitEvent(stream, late, 0));
      NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comm, stream)); // both have run
      CUDA(cudaStreamSynchronize(stream));
      // The first copy takes twice as long, all of it beside the collective (8 thread blocks). In its 84 us the
      // collective does what takes 67.2 alone, and 22.8 are left.
      EXPECT_NEAR(microseconds(begin, copied), 84, 1e-2);
      EXPECT_NEAR(microseconds(begin, end), 84 + 22.8, 1e-2);
      EXPECT_NEAR(microseconds(end, late), 42, 1e-2);
    });
  };
  EXPECT_EXIT((contend(), std::exit(testing::Test::HasFailure() ? 1 : 0)), testing::ExitedWithCode(0), "");
}

// Tests that noise and outliers are as asked for, and the same in every run.
TEST(Durations, Noise) {
  auto noisy = [] {
    setenv("CUDA_EMU_NOISE_PERMILLE", "100", 1);
    setenv("CUDA_EMU_OUTLIER_PERMILLE", "50", 1);
    constexpr int samples = 400;
    OnDevice<uint8_t> data(1500000);
    StreamOf stream;
    int outliers = 0;
    double sum = 0;
    for (int i = 0; i < samples; ++i) {
      EventOf begin(cudaEventDefault), end(cudaEventDefault);
      CUDA(cudaEventRecord(begin, stream));
      CUDA(cudaMemsetAsync(data, 0, 1500000, stream));
      CUDA(cudaEventRecord(end, stream));
      CUDA(cudaStreamSynchronize(stream));
      double time = microseconds(begin, end);
      EXPECT_TRUE((time >= 2.99 && time <= 3.31) || (time >= 29.9 && time <= 33.1)) << time;
      outliers += time > 20;
      sum += time > 20 ? 0 : time;
    }
    EXPECT_GT(outliers, samples / 40);
    EXPECT_LT(outliers, samples / 10);
    EXPECT_NEAR(sum / (samples - outliers), 3.15, 0.02);
  };
  EXPECT_EXIT((noisy(), std::exit(testing::Test::HasFailure() ? 1 : 0)), testing::ExitedWithCode(0), "");
}
} // namespace
