//===- CudaCopies.cpp - Copies and fills of the emulated runtime ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A copy from memory that is not pinned takes its bytes at the call, one into such memory returns when it is done, as
// CUDA documents.
//
//===------------------------------------------------------------------------------------------===//

#include "CudaApi.h"
#include "Memory.h"
#include <cstring>

namespace emulator {
namespace {
/// Rows of bytes; a plain copy is one row.
struct Rows {
  char *to;
  const char *from;
  size_t toPitch, fromPitch, width, height;
};
} // namespace

static size_t extent(size_t pitch, size_t width, size_t height) {
  return height == 0 || width == 0 ? 0 : (height - 1) * pitch + width;
}

static void copyRows(const Rows &rows) {
  char *to = static_cast<char *>(reach(rows.to));
  const char *from = static_cast<const char *>(reach(rows.from));
  for (size_t row = 0; row < rows.height; ++row, to += rows.toPitch, from += rows.fromPitch) {
    Tsan::read(from, rows.width);
    Tsan::write(to, rows.width);
    memcpy(to, from, rows.width);
  }
}

static void checkKind(cudaMemcpyKind kind, bool toDevice, bool fromDevice) {
  bool isRight = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToHost && !toDevice && !fromDevice) ||
                 (kind == cudaMemcpyHostToDevice && toDevice && !fromDevice) ||
                 (kind == cudaMemcpyDeviceToHost && !toDevice && fromDevice) ||
                 (kind == cudaMemcpyDeviceToDevice && toDevice && fromDevice);
  if (!isRight)
    report("the direction " + std::to_string(int(kind)) + " is not that of the addresses (" +
           (fromDevice ? "device" : "host") + " to " + (toDevice ? "device" : "host") + ")");
}

static void copy(Rows rows, cudaMemcpyKind kind, Stream *stream) {
  size_t toBytes = extent(rows.toPitch, rows.width, rows.height);
  size_t fromBytes = extent(rows.fromPitch, rows.width, rows.height);
  if (toBytes == 0)
    return;
  bool toDevice = isDeviceAddress(rows.to), fromDevice = isDeviceAddress(rows.from);
  checkKind(kind, toDevice, fromDevice);
  if (rows.to < rows.from + fromBytes && rows.from < rows.to + toBytes)
    report("the source and the destination overlap");
  Work work;
  work.name = "cudaMemcpyAsync";
  work.durationNs = copyNs(rows.width * rows.height, toDevice && fromDevice);
  work.contends = toDevice && fromDevice ? Contends::Memory : Contends::Nothing;
  if (AllocationRef to = find(rows.to, toBytes))
    work.uses.push_back({std::move(to), true});
  if (AllocationRef from = find(rows.from, fromBytes))
    work.uses.push_back({std::move(from), false});
  if (stream->capture || !isPageable(rows.from)) {
    work.body = [rows] { copyRows(rows); };
  } else {
    auto staged = std::make_shared<std::vector<char>>(rows.from, rows.from + fromBytes);
    Tsan::read(rows.from, fromBytes);
    rows.from = staged->data();
    work.body = [rows, staged] { copyRows(rows); };
  }
  submit(stream, std::move(work));
  if (!stream->capture && isPageable(rows.to))
    waitFor(stream->last);
}

static void fill(void *pointer, int value, size_t bytes, Stream *stream) {
  if (bytes == 0)
    return;
  Work work;
  work.name = "cudaMemsetAsync";
  work.durationNs = copyNs(bytes, true);
  work.contends = Contends::Memory;
  AllocationRef used = find(pointer, bytes);
  if (!used)
    report("the memory is not of a device and not pinned");
  work.uses.push_back({std::move(used), true});
  work.body = [pointer, value, bytes] {
    void *where = reach(pointer);
    Tsan::write(where, bytes);
    memset(where, value, bytes);
  };
  submit(stream, std::move(work));
}

static Rows oneRow(void *to, const void *from, size_t bytes) {
  return {static_cast<char *>(to), static_cast<const char *>(from), bytes, bytes, bytes, 1};
}
} // namespace emulator

using namespace emulator;

extern "C" {
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Entry entry("cudaMemcpyAsync");
  copy(oneRow(to, from, bytes), kind, streamOf(stream));
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int toDevice, const void *from, int fromDevice, size_t bytes,
                                cudaStream_t stream) {
  Entry entry("cudaMemcpyPeerAsync");
  for (auto [pointer, device] : {std::pair<const void *, int>{to, toDevice}, {from, fromDevice}})
    if (AllocationRef found = find(pointer, bytes); !found || found->device != device)
      report("wrong device: the memory is not of device " + std::to_string(device));
  copy(oneRow(to, from, bytes), cudaMemcpyDeviceToDevice, streamOf(stream));
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from, size_t fromPitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  Entry entry("cudaMemcpy2DAsync");
  if (width > toPitch || width > fromPitch)
    return finish(cudaErrorInvalidValue);
  copy({static_cast<char *>(to), static_cast<const char *>(from), toPitch, fromPitch, width, height}, kind,
       streamOf(stream));
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  Entry entry("cudaMemcpy");
  checkSafe();
  Stream *stream = streamOf(nullptr);
  copy(oneRow(to, from, bytes), kind, stream);
  waitFor(stream->last);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
  Entry entry("cudaMemsetAsync");
  fill(pointer, value, bytes, streamOf(stream));
  return cudaSuccess;
}

cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
  Entry entry("cudaMemset");
  checkSafe();
  fill(pointer, value, bytes, streamOf(nullptr));
  return cudaSuccess;
}
}
