//===- CudaTest.cpp - Tests of the emulated CUDA runtime --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams, events, copies, kernels, memory.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <numeric>

using namespace emulator::test;

namespace {
std::vector<float> upTo(size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// Tests that operations of one stream run in order and that an event orders two streams.
TEST(Cuda, StreamsAndEvents) {
  std::vector<float> values = upTo(1000, 1);
  OnDevice<float> a(values), b(values.size()), c(values.size());
  StreamOf first, second;
  EventOf copied;
  size_t bytes = values.size() * sizeof(float);
  CUDA(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, first));
  CUDA(cudaEventRecord(copied, first));
  CUDA(cudaStreamWaitEvent(second, copied, 0));
  CUDA(cudaMemcpyAsync(c, b, bytes, cudaMemcpyDefault, second));
  CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(c.read(), values);
  EXPECT_EQ(cudaEventQuery(copied), cudaSuccess);
}

// Tests that a fill sets every byte, and that the copy of a rectangle leaves what is beside it.
TEST(Cuda, FillsAndRectangles) {
  StreamOf stream;
  OnDevice<uint8_t> to(64);
  OnDevice<uint8_t> from(std::vector<uint8_t>(12, 7));
  CUDA(cudaMemsetAsync(to, 1, 64, stream));
  CUDA(cudaMemcpy2DAsync(to.data + 2, 16, from, 4, 3, 3, cudaMemcpyDeviceToDevice, stream));
  CUDA(cudaStreamSynchronize(stream));
  std::vector<uint8_t> expected(64, 1);
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      expected[size_t(row) * 16 + 2 + size_t(column)] = 7;
  EXPECT_EQ(to.read(), expected);
}

void addOne(void **arguments, dim3 grid, dim3 block) {
  auto *data = *static_cast<float **>(arguments[0]);
  int count = *static_cast<int *>(arguments[1]);
  for (int i = 0; i < count; ++i)
    data[i] += 1;
}

// Tests that a registered kernel is found by its name and gets the values that its arguments had at the launch.
TEST(Cuda, LaunchesKernels) {
  size_t sizes[] = {sizeof(float *), sizeof(int)};
  emulatorRegisterKernel("add_one", addOne, 2, sizes);
  cudaLibrary_t library;
  cudaKernel_t kernel;
  CUDA(cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(cudaLibraryGetKernel(&kernel, library, "absent"), cudaErrorSymbolNotFound);
  CUDA(cudaLibraryGetKernel(&kernel, library, "add_one"));
  OnDevice<float> data(upTo(10, 0));
  StreamOf stream;
  float *pointer = data;
  int count = 10;
  void *arguments[] = {static_cast<void *>(&pointer), &count};
  CUDA(cudaLaunchKernel(kernel, dim3{1, 1, 1}, dim3{32, 1, 1}, arguments, 0, stream));
  count = 0, pointer = nullptr;
  CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(data.read(), upTo(10, 1));
  EXPECT_EQ(cudaLaunchKernel(kernel, dim3{1, 1, 1}, dim3{2048, 1, 1}, arguments, 0, stream),
            cudaErrorInvalidConfiguration);
  CUDA(cudaLibraryUnload(library));
}

// Tests that memory ordered in a stream can be used and freed there.
TEST(Cuda, OrderedMemory) {
  StreamOf stream;
  void *memory;
  CUDA(cudaMallocAsync(&memory, 256, stream));
  CUDA(cudaMemsetAsync(memory, 3, 256, stream));
  std::vector<uint8_t> values(256);
  CUDA(cudaMemcpyAsync(values.data(), memory, 256, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaFreeAsync(memory, stream));
  CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(values, std::vector<uint8_t>(256, 3));
}

// Tests that more memory than a device has is refused, and that freed memory counts no more.
TEST(Cuda, MemoryIsLimited) {
  size_t free, total;
  CUDA(cudaMemGetInfo(&free, &total));
  void *memory, *more;
  EXPECT_EQ(cudaMalloc(&memory, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  CUDA(cudaMalloc(&memory, free));
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  CUDA(cudaFree(memory));
  CUDA(cudaMalloc(&more, 1));
  CUDA(cudaFree(more));
}

// Tests that a captured fork and join can be launched again and again.
TEST(Cuda, CaptureAndReplay) {
  StreamOf main, side;
  EventOf fork, joined;
  OnDevice<float> a(upTo(100, 0)), b(100), c(100);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
  CUDA(cudaMemcpyAsync(b, a, 400, cudaMemcpyDeviceToDevice, main));
  CUDA(cudaEventRecord(fork, main));
  CUDA(cudaStreamWaitEvent(side, fork, 0));
  CUDA(cudaMemcpyAsync(c, b, 400, cudaMemcpyDeviceToDevice, side));
  CUDA(cudaEventRecord(joined, side));
  CUDA(cudaStreamWaitEvent(main, joined, 0));
  CUDA(cudaMemsetAsync(a, 0, 400, main));
  CUDA(cudaStreamEndCapture(main, &graph));
  size_t nodes = 0;
  CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 3u);
  CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  EXPECT_EQ(a.read(), upTo(100, 0)); // nothing has run
  CUDA(cudaGraphLaunch(exec, main));
  CUDA(cudaStreamSynchronize(main));
  EXPECT_EQ(c.read(), upTo(100, 0));
  EXPECT_EQ(a.read(), std::vector<float>(100, 0));
  CUDA(cudaGraphLaunch(exec, main));
  CUDA(cudaStreamSynchronize(main));
  EXPECT_EQ(c.read(), std::vector<float>(100, 0));
  CUDA(cudaGraphExecDestroy(exec));
  CUDA(cudaGraphDestroy(graph));
}
} // namespace
