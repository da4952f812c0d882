//===- OrderTest.cpp - Data races that the thread sanitizer has to find -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The same small programs with and without one wait each. Built with ThreadSanitizer, the program without it ends with
// the sanitizer's report of a data race, whenever the operations ran; with it, there is none. In other builds only the
// complete programs run.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"

using namespace emulator::test;

#ifdef EMULATOR_HAS_TSAN
/// The sanitizer would wait a second for other threads at the end of each process.
extern "C" const char *__tsan_default_options() { return "atexit_sleep_ms=0"; }
#endif

namespace {
constexpr size_t count = 64, bytes = count * sizeof(float);

/// Copies a to b on one stream and b to c on another.
void twoStreams(bool isComplete) {
  StreamOf first, second;
  OnDevice<float> a(std::vector<float>(count, 1)), b(count), c(count);
  EventOf copied;
  CUDA(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, first));
  CUDA(cudaEventRecord(copied, first));
  if (isComplete)
    CUDA(cudaStreamWaitEvent(second, copied, 0));
  else // the first copy is done before the second one is issued, but nobody may rely on it
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CUDA(cudaMemcpyAsync(c, b, bytes, cudaMemcpyDeviceToDevice, second));
  CUDA(cudaStreamSynchronize(first));
  CUDA(cudaStreamSynchronize(second));
}

/// Overwrites on one stream what another one still reads.
void reuse(bool isComplete) {
  StreamOf first, second;
  OnDevice<float> a(std::vector<float>(count, 1)), b(count);
  EventOf read;
  CUDA(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, first));
  CUDA(cudaEventRecord(read, first));
  if (isComplete)
    CUDA(cudaStreamWaitEvent(second, read, 0));
  CUDA(cudaMemsetAsync(a, 0, bytes, second));
  CUDA(cudaStreamSynchronize(first));
  CUDA(cudaStreamSynchronize(second));
}

/// Reads pinned memory on the host that a copy writes.
void hostReads(bool isComplete) {
  StreamOf stream;
  OnDevice<float> a(std::vector<float>(count, 1));
  float *pinned = nullptr;
  CUDA(cudaHostAlloc(reinterpret_cast<void **>(&pinned), bytes, 0));
  CUDA(cudaMemcpyAsync(pinned, a, bytes, cudaMemcpyDeviceToHost, stream));
  if (isComplete)
    CUDA(cudaStreamSynchronize(stream));
  else
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  volatile float value = pinned[0];
  (void)value;
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaFreeHost(pinned));
}

void increment(void **arguments, dim3 grid, dim3 block) {
  auto *data = *static_cast<float **>(arguments[0]);
  for (size_t i = 0; i < count; ++i)
    data[i] += 1;
}

/// A kernel beside a collective on another stream that reads what the kernel writes.
void collective(bool isComplete) {
  size_t size = sizeof(float *);
  emulatorRegisterKernel("increment", increment, 1, &size);
  onComm(2, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    CUDA(cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUDA(cudaLibraryGetKernel(&kernel, library, "increment"));
    StreamOf compute;
    OnDevice<float> data(std::vector<float>(count, 1)), out(count);
    EventOf computed;
    float *pointer = data;
    void *arguments[] = {static_cast<void *>(&pointer)};
    CUDA(cudaLaunchKernel(kernel, dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0, compute));
    CUDA(cudaEventRecord(computed, compute));
    if (isComplete)
      CUDA(cudaStreamWaitEvent(stream, computed, 0));
    NCCL(ncclAllReduce(data, out, count, ncclFloat32, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamSynchronize(compute));
    if (isComplete)
      EXPECT_EQ(out.read(), std::vector<float>(count, 4));
    CUDA(cudaLibraryUnload(library));
  });
}

/// The input of a collective is overwritten before all peers have read it.
void inputReuse(bool isComplete) {
  onComm(2, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    StreamOf compute;
    OnDevice<float> data(std::vector<float>(count, 1)), out(2 * count);
    EventOf gathered;
    NCCL(ncclAllGather(data, out, count, ncclFloat32, comm, stream));
    CUDA(cudaEventRecord(gathered, stream));
    if (isComplete)
      CUDA(cudaStreamWaitEvent(compute, gathered, 0));
    CUDA(cudaMemsetAsync(data, 0, bytes, compute));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamSynchronize(compute));
  });
}

/// As the first one, captured and replayed.
void captured(bool isComplete) {
  StreamOf main, side, reader;
  OnDevice<float> a(std::vector<float>(count, 1)), b(count), c(count);
  EventOf fork, joined, done;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaEventRecord(fork, main));
  CUDA(cudaStreamWaitEvent(side, fork, 0));
  CUDA(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, main));
  if (isComplete) {
    CUDA(cudaEventRecord(done, main));
    CUDA(cudaStreamWaitEvent(side, done, 0));
  }
  CUDA(cudaMemcpyAsync(c, b, bytes, cudaMemcpyDeviceToDevice, side));
  CUDA(cudaEventRecord(joined, side));
  CUDA(cudaStreamWaitEvent(main, joined, 0));
  CUDA(cudaStreamEndCapture(main, &graph));
  CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  CUDA(cudaGraphLaunch(exec, main));
  CUDA(cudaStreamSynchronize(main));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}

using Program = void (*)(bool);
class Order : public testing::TestWithParam<std::pair<const char *, Program>> {};

// Tests that the complete program is free of data races.
TEST_P(Order, IsCompleteWithItsWaits) { GetParam().second(true); }

// Tests that the sanitizer finds the race when a wait is removed.
TEST_P(Order, IsARaceWithoutAWait) {
#ifdef EMULATOR_HAS_TSAN
  Program program = GetParam().second;
  // 66 is the exit status of a program with a report.
  EXPECT_EXIT((program(false), std::exit(0)), testing::ExitedWithCode(66), "data race");
#else
  GTEST_SKIP() << "only ThreadSanitizer finds it, and this build is without (cmake --preset tsan)";
#endif
}

INSTANTIATE_TEST_SUITE_P(Programs, Order,
                         testing::Values(std::pair("TwoStreams", Program(twoStreams)),
                                         std::pair("Reuse", Program(reuse)), std::pair("HostReads", Program(hostReads)),
                                         std::pair("Collective", Program(collective)),
                                         std::pair("InputReuse", Program(inputReuse)),
                                         std::pair("Captured", Program(captured))),
                         [](const auto &info) { return std::string(info.param.first); });
} // namespace
