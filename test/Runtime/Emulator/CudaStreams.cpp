//===- CudaStreams.cpp - Streams of the emulated runtime --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A handle is the address of the stream; a handle that is in no set of live ones is reported.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "Hooks.h"
#include "Memory.h"

namespace emulator {
static Stream *defaultStream(int device) {
  Machine &m = machine();
  Stream *&stream = m.devices[size_t(device)].defaultStream;
  if (!stream) {
    stream = makeStream(device, cudaStreamDefault, 0, /*isInternal=*/false);
    stream->isDefault = true;
  }
  return stream;
}

Stream *streamOf(cudaStream_t handle) {
  if (machine().devices.empty())
    report("there is no device");
  if (!handle || handle == cudaStreamLegacy)
    return defaultStream(currentDevice());
  if (handle == cudaStreamPerThread)
    report("per-thread default streams are not emulated");
  auto *stream = reinterpret_cast<Stream *>(handle);
  if (!machine().streams.count(stream))
    report("the stream is destroyed, or was never created");
  return stream;
}

void checkDevice(const Stream *stream) {
  if (stream->device != currentDevice())
    report("wrong device: the stream is of device " + std::to_string(stream->device) +
           ", the thread's current device is " + std::to_string(currentDevice()));
}

static OpRef lastOf(Stream *stream) { return stream->last; }
} // namespace emulator

using namespace emulator;

static cudaError_t create(cudaStream_t *result, unsigned flags, int priority) {
  if (machine().devices.empty())
    return finish(cudaErrorNoDevice);
  if (!result || flags > cudaStreamNonBlocking)
    return finish(cudaErrorInvalidValue);
  *result = reinterpret_cast<cudaStream_t>(makeStream(currentDevice(), flags, priority, /*isInternal=*/false));
  return cudaSuccess;
}

extern "C" {
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  Entry entry("cudaStreamCreate");
  return create(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  Entry entry("cudaStreamCreateWithFlags");
  return create(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  Entry entry("cudaStreamCreateWithPriority");
  return create(stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Entry entry("cudaStreamDestroy");
  if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return finish(cudaErrorInvalidResourceHandle);
  Stream *stream = streamOf(handle);
  if (stream->capture)
    report("the stream is being captured");
  closeStream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Entry entry("cudaStreamSynchronize");
  Stream *stream = streamOf(handle);
  checkNotCapturing(stream);
  waitFor(lastOf(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Entry entry("cudaStreamQuery");
  Stream *stream = streamOf(handle);
  checkNotCapturing(stream);
  return finish(query(lastOf(stream)) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  Entry entry("cudaDeviceSynchronize");
  checkNotCapturing(nullptr);
  std::vector<OpRef> open;
  for (const Stream *stream : machine().allStreams)
    if (stream->device == currentDevice() && stream->last)
      open.push_back(stream->last);
  for (const OpRef &op : open)
    waitFor(op);
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
  Entry entry("cudaStreamGetDevice");
  *device = streamOf(handle)->device;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority) {
  Entry entry("cudaStreamGetPriority");
  *priority = streamOf(handle)->priority;
  return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned *flags) {
  Entry entry("cudaStreamGetFlags");
  *flags = streamOf(handle)->flags;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data) {
  Entry entry("cudaLaunchHostFunc");
  Stream *stream = streamOf(handle);
  if (!function)
    return finish(cudaErrorInvalidValue);
  Work work;
  work.name = "cudaLaunchHostFunc";
  work.body = [function, data] { function(data); };
  submit(stream, std::move(work));
  return cudaSuccess;
}
}
