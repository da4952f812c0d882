//===- CudaRulesTest.cpp - Tests of the rules that the emulated CUDA runtime keeps ------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each rule is broken by a small program, which must end with one line that says so.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <cstring>

using namespace emulator::test;

namespace {
void *allocate(size_t bytes = 64) {
  void *memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
  return memory;
}
cudaStream_t makeStream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  return stream;
}
cudaEvent_t makeEvent(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
  return event;
}
cudaStream_t captured(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  cudaStream_t stream = makeStream();
  EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  return stream;
}
/// Work that takes part in captures and needs no memory.
void addWork(cudaStream_t stream) {
  EXPECT_EQ(cudaLaunchHostFunc(stream, [](void *) {}, nullptr), cudaSuccess);
}

// Tests that the host cannot touch device memory.
TEST(CudaRules, HostAccess) {
  EXPECT_REPORT(*static_cast<volatile int *>(allocate()) = 1, "the host touched device memory");
  EXPECT_REPORT(std::exit(*static_cast<volatile int *>(allocate())), "the host touched device memory");
}

// Tests that memory is used only while it is allocated, and within its bounds.
TEST(CudaRules, Lifetime) {
  auto useAfterFree = [] {
    void *memory = allocate();
    cudaFree(memory);
    cudaMemsetAsync(memory, 0, 64, makeStream());
  };
  EXPECT_REPORT(useAfterFree(), "cudaMemsetAsync: use after free");
  auto useAfterOrderedFree = [] {
    void *memory = nullptr;
    cudaStream_t stream = makeStream();
    cudaMallocAsync(&memory, 64, stream);
    cudaFreeAsync(memory, stream);
    cudaMemsetAsync(memory, 0, 64, stream);
  };
  EXPECT_REPORT(useAfterOrderedFree(), "cudaMemsetAsync: use after free");
  auto freeInUse = [] {
    void *memory = allocate();
    cudaStream_t stream = makeStream();
    cudaMemsetAsync(memory, 0, 64, stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // it is done, but nobody has waited for it
    cudaFree(memory);
  };
  EXPECT_REPORT(freeInUse(), "cudaFree: free while in use");
  auto freeTwice = [] {
    void *memory = allocate();
    cudaFree(memory);
    cudaFree(memory);
  };
  EXPECT_REPORT(freeTwice(), "cudaFree: use after free");
  EXPECT_REPORT(cudaFree(static_cast<char *>(allocate()) + 8), "cudaFree: the pointer is not the beginning");
  EXPECT_REPORT(cudaMemset(allocate(), 0, 65), "cudaMemset: out of bounds");
  EXPECT_REPORT(cudaMemset(static_cast<char *>(allocate()) + (1 << 20), 0, 1), "cudaMemset: not allocated");
}

// Tests that a free or a use that is not ordered after what it needs is found, even if it came later by luck.
TEST(CudaRules, OrderedMemory) {
  auto freeUnordered = [] {
    void *memory = nullptr;
    cudaStream_t stream = makeStream(), other = makeStream();
    cudaMallocAsync(&memory, 64, stream);
    cudaStreamSynchronize(stream);
    cudaMemsetAsync(memory, 0, 64, other);
    cudaFreeAsync(memory, stream);
    cudaDeviceSynchronize();
  };
  EXPECT_REPORT(freeUnordered(), "cudaFreeAsync: free while in use");
  auto useUnordered = [] {
    void *memory = nullptr;
    cudaMallocAsync(&memory, 64, makeStream());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cudaMemsetAsync(memory, 0, 64, makeStream());
    cudaDeviceSynchronize();
  };
  EXPECT_REPORT(useUnordered(), "cudaMemsetAsync: used by a stream that is not ordered after cudaMallocAsync");
}

// Tests that the direction of a copy is that of its addresses, and that its two sides are apart.
TEST(CudaRules, Copies) {
  int value = 0;
  EXPECT_REPORT(cudaMemcpy(allocate(), &value, 4, cudaMemcpyDeviceToHost), "direction 2 is not that of the addresses");
  auto overlap = [] {
    auto *memory = static_cast<char *>(allocate());
    cudaMemcpy(memory + 4, memory, 8, cudaMemcpyDeviceToDevice);
  };
  EXPECT_REPORT(overlap(), "overlap");
}

// Tests that handles are live, and that events are recorded before somebody waits for them.
TEST(CudaRules, Handles) {
  EXPECT_REPORT(cudaStreamWaitEvent(makeStream(), makeEvent(), 0), "cudaStreamWaitEvent: the event was never recorded");
  EXPECT_REPORT(cudaEventQuery(makeEvent()), "cudaEventQuery: the event was never recorded");
  EXPECT_REPORT(cudaEventSynchronize(makeEvent()), "cudaEventSynchronize: the event was never recorded");
  auto destroyedEvent = [] {
    cudaEvent_t event = makeEvent();
    cudaEventDestroy(event);
    cudaEventRecord(event, makeStream());
  };
  EXPECT_REPORT(destroyedEvent(), "cudaEventRecord: the event is destroyed");
  auto destroyedStream = [] {
    cudaStream_t stream = makeStream();
    cudaStreamDestroy(stream);
    cudaStreamSynchronize(stream);
  };
  EXPECT_REPORT(destroyedStream(), "cudaStreamSynchronize: the stream is destroyed");
  auto untimed = [] {
    cudaEvent_t event = makeEvent();
    cudaEventRecord(event, nullptr);
    float ms;
    cudaEventElapsedTime(&ms, event, event);
  };
  EXPECT_REPORT(untimed(), "cudaEventElapsedTime: the event was created with cudaEventDisableTiming");
  auto unloaded = [] {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0);
    cudaLibraryUnload(library);
    cudaLibraryGetKernel(&kernel, library, "name");
  };
  EXPECT_REPORT(unloaded(), "cudaLibraryGetKernel: the library is unloaded");
}

// Tests that a stream is used with its own device, and a kernel with memory that its device can reach.
TEST(CudaRules, Devices) {
  auto onOther = [](auto use) {
    cudaStream_t stream = makeStream();
    cudaSetDevice(1);
    use(stream);
  };
  void *memory;
  EXPECT_REPORT(onOther([&](cudaStream_t stream) { cudaMallocAsync(&memory, 64, stream); }),
                "cudaMallocAsync: wrong device");
  EXPECT_REPORT(onOther([](cudaStream_t stream) { cudaEventRecord(makeEvent(), stream); }),
                "cudaEventRecord: wrong device");
  EXPECT_REPORT(onOther([](cudaStream_t stream) { cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed); }),
                "cudaStreamBeginCapture: wrong device");
  auto kernelOf = [](const char *name) {
    size_t size = sizeof(void *);
    emulatorRegisterKernel(name, [](void **, dim3, dim3) {}, 1, &size);
    cudaLibrary_t library;
    cudaKernel_t kernel;
    cudaLibraryLoadData(&library, "image", nullptr, nullptr, 0, nullptr, nullptr, 0);
    cudaLibraryGetKernel(&kernel, library, name);
    return kernel;
  };
  auto launch = [&](cudaStream_t stream, void *pointer) {
    void *arguments[] = {static_cast<void *>(&pointer)};
    return cudaLaunchKernel(kernelOf("nothing"), dim3{1, 1, 1}, dim3{1, 1, 1}, arguments, 0, stream);
  };
  EXPECT_REPORT(onOther([&](cudaStream_t stream) { launch(stream, nullptr); }), "cudaLaunchKernel: wrong device");
  auto foreign = [&](bool isPeer) {
    void *pointer = allocate();
    cudaSetDevice(1);
    if (isPeer)
      cudaDeviceEnablePeerAccess(0, 0);
    cudaStream_t stream = makeStream();
    launch(stream, pointer);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    cudaSetDevice(0);
    cudaFree(pointer);
    std::exit(0);
  };
  EXPECT_REPORT(foreign(false), "cudaLaunchKernel: wrong device: a kernel on device 1 is given device memory");
  EXPECT_EXIT(foreign(true), testing::ExitedWithCode(0), "");
}

// Tests that a function that runs in a stream calls nothing of CUDA.
TEST(CudaRules, HostFunctions) {
  auto nested = [] {
    cudaLaunchHostFunc(makeStream(), [](void *) { cudaDeviceSynchronize(); }, nullptr);
    cudaDeviceSynchronize();
  };
  EXPECT_REPORT(nested(), "cudaDeviceSynchronize: called from a kernel or a host function");
}

// Tests what a capture forbids to the captured stream.
TEST(CudaRules, CapturedStream) {
  EXPECT_REPORT(cudaStreamSynchronize(captured()), "cudaStreamSynchronize: the stream is being captured");
  EXPECT_REPORT(cudaStreamQuery(captured()), "cudaStreamQuery: the stream is being captured");
  EXPECT_REPORT(cudaStreamDestroy(captured()), "cudaStreamDestroy: the stream is being captured");
  EXPECT_REPORT(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), "default stream cannot be captured");
  void *memory;
  EXPECT_REPORT(cudaMallocAsync(&memory, 64, captured()), "cudaMallocAsync: allocation in a capture");
  cudaGraph_t graph;
  EXPECT_REPORT(cudaStreamEndCapture(makeStream(), &graph), "the stream is not being captured");
  auto otherThread = [&] {
    cudaStream_t stream = captured();
    std::thread([&] { cudaStreamEndCapture(stream, &graph); }).join();
  };
  EXPECT_REPORT(otherThread(), "the capture was begun by another thread");
}

// Tests what a capture forbids to threads, by their mode.
TEST(CudaRules, CapturingThread) {
  auto during = [](cudaStreamCaptureMode capture, cudaStreamCaptureMode thread, bool isSame, auto call) {
    cudaEvent_t event = makeEvent();
    cudaEventRecord(event, nullptr);
    captured(capture);
    auto run = [&] {
      cudaThreadExchangeStreamCaptureMode(&thread);
      call(event);
      _exit(0);
    };
    if (isSame)
      run();
    std::thread(run).join();
  };
  auto query = [](cudaEvent_t event) { cudaEventQuery(event); };
  auto malloc = [](cudaEvent_t) { allocate(); };
  constexpr auto global = cudaStreamCaptureModeGlobal, local = cudaStreamCaptureModeThreadLocal,
                 relaxed = cudaStreamCaptureModeRelaxed;
  EXPECT_REPORT(during(local, global, true, query), "cudaEventQuery: not permitted while a stream is being captured");
  EXPECT_REPORT(during(local, global, true, malloc), "cudaMalloc: not permitted while a stream is being captured");
  EXPECT_REPORT(during(global, global, false, query), "cudaEventQuery: not permitted");
  EXPECT_EXIT(during(local, global, false, query), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(during(global, local, false, query), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(during(global, relaxed, true, query), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(during(relaxed, local, true, malloc), testing::ExitedWithCode(0), "");
}

// Tests that captured and other streams meet only by events of the capture, and that all are joined at its end.
TEST(CudaRules, CaptureAndEvents) {
  auto outside = [] {
    cudaEvent_t event = makeEvent();
    cudaEventRecord(event, makeStream());
    cudaStreamWaitEvent(captured(), event, 0);
  };
  EXPECT_REPORT(outside(), "cannot wait for an event that was recorded outside of the capture");
  auto unjoined = [] {
    cudaEvent_t event = makeEvent();
    cudaStream_t stream = captured(), side = makeStream();
    addWork(stream);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(side, event, 0);
    addWork(side);
    cudaGraph_t graph;
    cudaStreamEndCapture(stream, &graph);
  };
  EXPECT_REPORT(unjoined(), "cudaStreamEndCapture: the capture has a stream that was not joined");
  auto ended = [](bool isHost) {
    cudaEvent_t event = makeEvent();
    cudaStream_t stream = captured();
    addWork(stream);
    cudaEventRecord(event, stream);
    cudaGraph_t graph;
    cudaStreamEndCapture(stream, &graph);
    isHost ? cudaEventSynchronize(event) : cudaStreamWaitEvent(makeStream(), event, 0);
  };
  EXPECT_REPORT(ended(false), "the event was recorded in a capture that has ended");
  EXPECT_REPORT(ended(true), "the event was recorded in a capture");
}

// Tests that what is left at exit is reported, each kind of thing.
TEST(CudaRules, Leaks) {
  EXPECT_REPORT((allocate(), std::exit(0)), "leak: device memory");
  void *pinned;
  EXPECT_REPORT((cudaHostAlloc(&pinned, 64, 0), std::exit(0)), "leak: pinned memory");
  EXPECT_REPORT((makeStream(), std::exit(0)), "leak: stream");
  EXPECT_REPORT((makeEvent(), std::exit(0)), "leak: 1 events");
  auto graph = [] {
    cudaStream_t stream = captured();
    addWork(stream);
    cudaGraph_t graph;
    cudaStreamEndCapture(stream, &graph);
    cudaStreamDestroy(stream);
    std::exit(0);
  };
  EXPECT_REPORT(graph(), "leak: 1 graphs");
  EXPECT_EXIT((cudaFree(allocate()), std::exit(0)), testing::ExitedWithCode(0), "");
}
} // namespace
