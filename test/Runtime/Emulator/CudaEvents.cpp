//===- CudaEvents.cpp - Events of the emulated runtime ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An event stands for the operation that recorded it last. Waiting for one that was never recorded does nothing in CUDA
// and hides a mistake; the emulator reports it.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "Machine.h"

using namespace emulator;

static Event *eventOf(cudaEvent_t handle) {
  auto *event = reinterpret_cast<Event *>(handle);
  if (!machine().events.count(event))
    report("the event is destroyed, or was never created");
  return event;
}

static cudaError_t create(cudaEvent_t *result, unsigned flags) {
  if (machine().devices.empty())
    return finish(cudaErrorNoDevice);
  if (!result || flags > (cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess))
    return finish(cudaErrorInvalidValue);
  auto *event = new Event;
  event->device = currentDevice();
  event->flags = flags;
  machine().events.insert(event);
  *result = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}

/// Reports unless the event was recorded outside of a capture.
static const OpRef &recorded(const Event *event) {
  if (event->capture)
    report("the event was recorded in a capture, and can be waited for only there");
  if (!event->op)
    report("the event was never recorded");
  return event->op;
}

extern "C" {
cudaError_t cudaEventCreate(cudaEvent_t *event) {
  Entry entry("cudaEventCreate");
  return create(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  Entry entry("cudaEventCreateWithFlags");
  return create(event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Entry entry("cudaEventDestroy");
  Event *event = eventOf(handle);
  machine().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t on, unsigned flags) {
  Entry entry("cudaEventRecord");
  Event *event = eventOf(handle);
  Stream *stream = streamOf(on);
  if (event->device != stream->device)
    report("wrong device: the event is of device " + std::to_string(event->device) + ", the stream of device " +
           std::to_string(stream->device));
  checkDevice(stream);
  if (stream->capture && flags != cudaEventRecordExternal) {
    captureRecord(stream, event);
    return cudaSuccess;
  }
  if (stream->capture) {
    captureExternalRecord(stream, event);
    return cudaSuccess;
  }
  Work work;
  work.name = "cudaEventRecord";
  event->capture = nullptr;
  event->op = enqueue(stream, std::move(work), {});
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t on, cudaEvent_t handle, unsigned flags) {
  Entry entry("cudaStreamWaitEvent");
  Event *event = eventOf(handle);
  Stream *stream = streamOf(on);
  if (event->capture || stream->capture) {
    captureWait(stream, event);
    return cudaSuccess;
  }
  Work work;
  work.name = "cudaStreamWaitEvent";
  enqueue(stream, std::move(work), {recorded(event)});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Entry entry("cudaEventQuery");
  checkSafe();
  return finish(query(recorded(eventOf(handle))) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Entry entry("cudaEventSynchronize");
  checkSafe();
  OpRef op = recorded(eventOf(handle));
  waitFor(op);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t beginHandle, cudaEvent_t endHandle) {
  Entry entry("cudaEventElapsedTime");
  const Event *begin = eventOf(beginHandle), *end = eventOf(endHandle);
  if ((begin->flags | end->flags) & cudaEventDisableTiming)
    report("the event was created with cudaEventDisableTiming");
  if (begin->device != end->device)
    report("wrong device: the events are of devices " + std::to_string(begin->device) + " and " +
           std::to_string(end->device));
  const OpRef &first = recorded(begin), &last = recorded(end);
  if (!query(first) || !query(last))
    return finish(cudaErrorNotReady);
  settleTimes();
  query(last); // the host knows when it was
  *milliseconds = float(double(last->endNs - first->endNs) * 1e-6);
  return cudaSuccess;
}
}
