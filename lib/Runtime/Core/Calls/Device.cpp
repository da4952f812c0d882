//===- Device.cpp - Streams, events and memory of backends over devices -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On a device a wait makes a stream wait and returns. So works outlive their completion, which another thread notices,
// until their token goes; and memory that a completion frees is given back by the context's own thread.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

using namespace commsched::runtime;

void *commsched::runtime::streamHandle(const commrt_context *context, const commrt_stream *stream) {
  if (stream)
    return stream->handle;
  auto found = context->streams.find({COMMRT_STREAM_COMPUTE, 0});
  return found == context->streams.end() ? nullptr : found->second->handle;
}

//===- Waits ---------------------------------------------------------------------------------===//

int32_t commsched::runtime::notePassed(commrt_context *context, Work &work) {
  work.capture = context->isCapturing ? context->captures : 0;
  if (int32_t status = context->job->device->record(context->peer, work.base.stream, &work.passed))
    return fail(context, status, "cannot record an event for " + describeWork(work.base));
  return COMMRT_OK;
}

/// Makes the stream wait for what came before the start of a work that the backend did not get. What came before a
/// capture is done, and what is captured is ordered by its launches.
static int32_t awaitPassed(commrt_context *context, const Work &work, void *handle) {
  if (!work.passed || work.capture != (context->isCapturing ? context->captures : 0))
    return COMMRT_OK;
  return context->job->device->stream_wait(context->peer, handle, work.passed);
}

void commsched::runtime::waitOnStream(commrt_token *token, commrt_stream *stream) {
  commrt_context *context = token->context;
  void *handle = streamHandle(context, stream);
  bool isTraced = context->job->trace && !context->isAligning;
  void *begin = isTraced ? traceEvent(context, stream) : nullptr;
  for (Work *work : token->works) {
    // Without a state it never reached the backend: the rank is in no subset, or a fault holds it back.
    int32_t status = work->base.state ? context->job->device->wait_work(context->peer, &work->base, handle)
                                      : awaitPassed(context, *work, handle);
    if (status) {
      fail(context, status, "a stream cannot wait for " + describeWork(work->base));
      return;
    }
  }
  if (isTraced)
    traceEvents(context, 100, token->site, token->group, begin, begin ? traceEvent(context, stream) : nullptr);
}

/// An event on each compute stream; fewer, with an error that latches, where one cannot be recorded.
static std::vector<void *> recordComputeStreams(commrt_context *context) {
  std::vector<void *> events;
  for (auto &[key, stream] : context->streams) {
    if (key.first != COMMRT_STREAM_COMPUTE || !stream)
      continue;
    void *event = nullptr;
    if (int32_t status = context->job->device->record(context->peer, stream->handle, &event)) {
      fail(context, status, "cannot record an event on stream " + std::to_string(key.second));
      break;
    }
    events.push_back(event);
  }
  return events;
}

static void releaseEvents(commrt_context *context, const std::vector<void *> &events) {
  for (void *event : events)
    context->job->device->release(context->peer, event);
}

void commsched::runtime::joinComputeStreams(commrt_context *context) {
  auto isCompute = [](auto &entry) { return entry.first.first == COMMRT_STREAM_COMPUTE && entry.second; };
  if (std::count_if(context->streams.begin(), context->streams.end(), isCompute) < 2)
    return;
  std::vector<void *> events = recordComputeStreams(context);
  for (auto &[key, stream] : context->streams)
    for (size_t i = 0; key.first == COMMRT_STREAM_COMPUTE && stream && i < events.size(); ++i)
      if (int32_t status = context->job->device->stream_wait(context->peer, stream->handle, events[i]))
        fail(context, status, "a stream cannot wait for another");
  releaseEvents(context, events);
}

int32_t commsched::runtime::waitStreams(commrt_context *context) {
  constexpr std::chrono::microseconds pause(20);
  if (context->isCapturing)
    return refuseInCapture(context, "a wait of the host for what is on its streams");
  const commrt_device_ops *device = context->job->device;
  std::vector<void *> events = recordComputeStreams(context);
  Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(context->job->timeoutNs);
  for (size_t i = 0; i < events.size() && context->status == COMMRT_OK;) {
    int32_t done = 0;
    if (int32_t status = device->query(context->peer, events[i], &done))
      fail(context, status, "cannot ask for an event");
    else if (done)
      ++i;
    else if (Clock::now() >= deadline)
      fail(context, COMMRT_ERR_TIMEOUT,
           "waited " + std::to_string(context->job->timeoutNs / 1'000'000) + " ms for the computations of a stream");
    else
      std::this_thread::sleep_for(pause);
  }
  releaseEvents(context, events);
  return latched(context);
}

//===- What completions leave behind ---------------------------------------------------------===//

void commsched::runtime::reclaimCompleted(commrt_context *context) {
  std::vector<Work *> retired;
  std::vector<ReturnedMemory> returned;
  for (auto &[key, stream] : context->streams)
    if (stream)
      trim(stream.get());
  {
    Lock lock(context->mutex);
    retired.swap(context->retired);
    returned.swap(context->returned);
  }
  const commrt_device_ops *device = context->job->device;
  for (Work *work : retired) {
    if (work->passed)
      device->release(context->peer, std::exchange(work->passed, nullptr));
    work->isKept = work->isTraced;
    if (work->isKept)
      continue; // until its times are known
    if (work->base.state)
      device->release_work(context->peer, &work->base);
    delete work;
  }
  if (returned.empty())
    return;
  // What is put on any stream before may still use the memory.
  joinComputeStreams(context);
  void *stream = streamHandle(context, nullptr);
  for (auto [data, bytes] : returned) {
    if (context->job->poison && bytes > 0 && context->status == COMMRT_OK)
      device->fill(context->peer, data, poisonByte, bytes, stream);
    device->free(context->peer, data, stream);
  }
}

//===- Copies --------------------------------------------------------------------------------===//

int32_t commrt_copy(commrt_context *context, void *to, const void *from, int64_t bytes, int32_t direction,
                    commrt_stream *stream) {
  if (!context || (stream && stream->context != context))
    return COMMRT_ERR_INVALID;
  if (int32_t status = latched(context))
    return status;
  if (bytes < 0 || (bytes > 0 && (!to || !from)) || direction < COMMRT_COPY_TO_DEVICE ||
      direction > COMMRT_COPY_ON_DEVICE)
    return fail(context, COMMRT_ERR_INVALID, "commrt_copy: a negative size, an unknown direction or no address");
  if (bytes == 0)
    return COMMRT_OK;
  const commrt_device_ops *device = context->job->device;
  if (!device) {
    std::memcpy(to, from, bytes);
    return COMMRT_OK;
  }
  if (direction != COMMRT_COPY_ON_DEVICE)
    if (int32_t status = refuseInCapture(
            context, "the host " + std::string(direction == COMMRT_COPY_TO_DEVICE ? "writes " : "reads ") +
                         std::to_string(bytes) + " bytes of the device's memory"))
      return status;
  int32_t status = device->copy(context->peer, to, from, bytes, direction, (stream ? stream : context->stream)->handle,
                                context->job->timeoutNs);
  if (int32_t earlier = latched(context))
    return earlier;
  if (status == COMMRT_OK)
    return status;
  std::string copied = std::to_string(bytes) + " bytes";
  if (status == COMMRT_ERR_TIMEOUT)
    return fail(context, status,
                "waited " + std::to_string(context->job->timeoutNs / 1'000'000) + " ms for a copy of " + copied);
  return fail(context, status, "cannot copy " + copied);
}
