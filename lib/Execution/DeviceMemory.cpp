//===- DeviceMemory.cpp - Arguments and results in the memory of a backend --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// All copies are in the order of the context's current stream.
//
//===------------------------------------------------------------------------------------------===//

#include "DeviceMemory.h"
#include <chrono>
#include <thread>

using namespace commsched;

ArgumentMemory::ArgumentMemory(commrt_context *context, std::vector<HostValue> &values)
    : context(context), values(values) {
  for (HostValue &value : values)
    buffers.push_back(value.bytes.data());
}

int32_t ArgumentMemory::create() {
  if (!commrt_context_is_device(context))
    return COMMRT_OK;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isScalar)
      continue;
    const HostBuffer &bytes = values[i].bytes;
    if (int32_t status = commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes.size(), &buffers[i]))
      return status;
    if (int32_t status = commrt_copy(context, buffers[i], bytes.data(), bytes.size(), COMMRT_COPY_TO_DEVICE, nullptr))
      return status;
  }
  return COMMRT_OK;
}

int32_t ArgumentMemory::fetch() {
  if (!commrt_context_is_device(context))
    return COMMRT_OK;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isScalar)
      continue;
    HostBuffer &bytes = values[i].bytes;
    if (int32_t status = commrt_copy(context, bytes.data(), buffers[i], bytes.size(), COMMRT_COPY_FROM_DEVICE, nullptr))
      return status;
    if (int32_t status = commrt_free(context, buffers[i]))
      return status;
  }
  return COMMRT_OK;
}

int32_t commsched::awaitDevice(commrt_context *context) {
  constexpr std::chrono::microseconds pause(20);
  if (!commrt_context_is_device(context))
    return COMMRT_OK;
  commrt_stream *stream = nullptr;
  commrt_event *event = nullptr;
  if (int32_t status = commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 0, &stream))
    return status;
  if (int32_t status = commrt_event_record(context, stream, &event))
    return status;
  // The runtime's deadlines hold: a query after them returns an error.
  int32_t done = 0, status = commrt_event_test(event, &done);
  while (status == COMMRT_OK && !done) {
    std::this_thread::sleep_for(pause);
    status = commrt_event_test(event, &done);
  }
  if (int32_t released = commrt_event_release(event); status == COMMRT_OK)
    status = released;
  return status;
}
