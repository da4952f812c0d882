//===- NcclDevice.cpp - Memory and copies of the nccl backend --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Device memory comes and goes in the order of streams; symmetric memory stays until the job closes. Copies between the
// host and a device go through pinned memory, because a copy from other memory would block without a deadline.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Support/Text.h"
#include "Nccl/NcclJob.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

using namespace commsched::runtime;
using Clock = std::chrono::steady_clock;

static constexpr size_t bounceBytes = size_t(4) << 20;
static constexpr std::chrono::microseconds drainInterval(20);

static NcclPeer &peerOf(void *opaque) {
  auto &peer = *static_cast<NcclPeer *>(opaque);
  peer.enter();
  return peer;
}
static cudaStream *streamOf(void *stream) { return static_cast<cudaStream *>(stream); }

/// An error of CUDA ends the job; the message is not lost.
static int32_t report(NcclPeer &peer, const std::string &error) {
  if (error.empty())
    return COMMRT_OK;
  raiseError(peer, COMMRT_ERR_BACKEND, peer.rank, error);
  return COMMRT_ERR_BACKEND;
}
static int32_t report(NcclPeer &peer, const char *what, int result) {
  return result ? report(peer, peer.cudaError(what, result)) : COMMRT_OK;
}

//===- Streams and events --------------------------------------------------------------------===//

static int32_t getStream(void *opaque, int32_t kind, int32_t lane, void **stream) {
  NcclPeer &peer = peerOf(opaque);
  cudaStream *&slot = peer.streams[{kind, lane}];
  std::string error;
  if (!slot) {
    slot = makeStream(peer, kind == COMMRT_STREAM_COMM, error);
    if (slot && peer.capture)
      error = joinCapture(peer, slot);
  }
  *stream = slot;
  return report(peer, error);
}

static int32_t record(void *opaque, void *stream, void **event) {
  NcclPeer &peer = peerOf(opaque);
  std::string error;
  *event = recordEvent(peer, streamOf(stream), error);
  return report(peer, error);
}

static int32_t recordTimed(void *opaque, void *stream, void **event) {
  NcclPeer &peer = peerOf(opaque);
  std::string error;
  *event = recordEvent(peer, streamOf(stream), error, /*isTimed=*/true);
  return report(peer, error);
}

static int32_t elapsed(void *opaque, void *begin, void *end, int64_t *ns) {
  NcclPeer &peer = peerOf(opaque);
  float milliseconds = 0;
  int result =
      peer.job->cuda().eventElapsedTime(&milliseconds, static_cast<cudaEvent *>(begin), static_cast<cudaEvent *>(end));
  *ns = std::llround(static_cast<double>(milliseconds) * 1e6);
  return report(peer, "cudaEventElapsedTime", result);
}

static int32_t groupStream(void *opaque, int32_t messages, void **stream) {
  auto &group = *static_cast<NcclGroup *>(opaque);
  *stream = (messages ? group.messages : group.collectives).stream;
  return COMMRT_OK;
}

static int32_t streamWait(void *opaque, void *stream, void *event) {
  NcclPeer &peer = peerOf(opaque);
  return report(peer, awaitEvent(peer, streamOf(stream), static_cast<cudaEvent *>(event)));
}

static int32_t query(void *opaque, void *event, int32_t *done) {
  NcclPeer &peer = peerOf(opaque);
  std::string error;
  *done = queryEvent(peer, static_cast<cudaEvent *>(event), error) == 1;
  return report(peer, error);
}

static void release(void *opaque, void *event) {
  releaseEvent(*static_cast<NcclPeer *>(opaque), static_cast<cudaEvent *>(event));
}

//===- Memory --------------------------------------------------------------------------------===//

static int32_t allocate(void *opaque, int64_t bytes, void *stream, void **pointer) {
  NcclPeer &peer = peerOf(opaque);
  *pointer = nullptr;
  int result = peer.capture ? takeGraphMemory(peer, bytes, streamOf(stream), pointer)
                            : peer.job->cuda().mallocAsync(pointer, bytes, streamOf(stream));
  if (result == 0)
    return COMMRT_OK;
  peer.job->cuda().getLastError();
  return COMMRT_ERR_MEMORY;
}

static int32_t freeMemory(void *opaque, void *pointer, void *stream) {
  NcclPeer &peer = peerOf(opaque);
  if (releaseGraphMemory(peer, pointer, streamOf(stream)))
    return COMMRT_OK;
  if (peer.capture) {
    peer.capture->pool.emplace(std::make_pair(nullptr, 0), pointer); // it goes with the graph
    raiseError(peer, COMMRT_ERR_UNSUPPORTED, peer.rank,
               "cannot be captured into a graph: a buffer is released that was made before the capture");
    return COMMRT_ERR_UNSUPPORTED;
  }
  int result = peer.job->cuda().freeAsync(pointer, streamOf(stream));
  // On its way out a rank does not report that the device has failed, too.
  return peer.failing ? COMMRT_OK : report(peer, "cudaFreeAsync", result);
}

static int32_t fill(void *opaque, void *to, int32_t byte, int64_t bytes, void *stream) {
  NcclPeer &peer = peerOf(opaque);
  return report(peer, "cudaMemsetAsync", peer.job->cuda().memsetAsync(to, byte, bytes, streamOf(stream)));
}

/// Waits until the event is done.
static int32_t waitHost(NcclPeer &peer, cudaEvent *event, Clock::time_point deadline) {
  for (;;) {
    std::string error;
    int done = queryEvent(peer, event, error);
    if (done < 0)
      return report(peer, error);
    if (done)
      return COMMRT_OK;
    if (int32_t failing = peer.failing)
      return failing;
    if (Clock::now() >= deadline)
      return COMMRT_ERR_TIMEOUT;
    std::this_thread::sleep_for(drainInterval);
  }
}

/// Pinned memory that no copy uses any more, in turn.
static int32_t takeBounce(NcclPeer &peer, int slot, Clock::time_point deadline) {
  std::string error;
  if (!peer.bounce[slot].data)
    peer.bounce[slot] = takePinned(peer, bounceBytes, error);
  if (!peer.bounce[slot].data)
    return report(peer, error);
  cudaEvent *before = std::exchange(peer.bounced[slot], nullptr);
  int32_t status = before ? waitHost(peer, before, deadline) : COMMRT_OK;
  if (before)
    releaseEvent(peer, before);
  return status;
}

static int32_t copy(void *opaque, void *to, const void *from, int64_t bytes, int32_t direction, void *stream,
                    int64_t timeoutNs) {
  NcclPeer &peer = peerOf(opaque);
  const CudaApi &cuda = peer.job->cuda();
  if (to == from) // CUDA takes no copy whose sides overlap.
    return COMMRT_OK;
  if (direction == COMMRT_COPY_ON_DEVICE)
    return report(peer, "cudaMemcpyAsync", cuda.memcpyAsync(to, from, bytes, onDevice, streamOf(stream)));
  flushMessages(peer);
  Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(timeoutNs);
  bool isUp = direction == COMMRT_COPY_TO_DEVICE;
  int slot = 0;
  for (int64_t at = 0; at < bytes; slot = 1 - slot) {
    auto part = std::min<int64_t>(bytes - at, bounceBytes);
    if (int32_t status = takeBounce(peer, slot, deadline))
      return status;
    char *pinned = peer.bounce[slot].data;
    char *target = static_cast<char *>(to) + at;
    const char *source = static_cast<const char *>(from) + at;
    if (isUp)
      std::memcpy(pinned, source, part);
    int result = isUp ? cuda.memcpyAsync(target, pinned, part, toDevice, streamOf(stream))
                      : cuda.memcpyAsync(pinned, source, part, toHost, streamOf(stream));
    if (int32_t status = report(peer, "cudaMemcpyAsync", result))
      return status;
    std::string error;
    peer.bounced[slot] = recordEvent(peer, streamOf(stream), error);
    if (!peer.bounced[slot])
      return report(peer, error);
    if (!isUp) {
      if (int32_t status = takeBounce(peer, slot, deadline))
        return status;
      std::memcpy(target, pinned, part);
    }
    at += part;
  }
  return COMMRT_OK;
}

//===- Symmetric memory ----------------------------------------------------------------------===//

int32_t commsched::runtime::createNcclSegment(void *opaque, int64_t, int64_t bytes, void **base, char *message,
                                              size_t size) {
  NcclPeer &peer = peerOf(opaque);
  NcclJob &job = *peer.job;
  // Only memory of NCCL's own can be registered as a window.
  bool isNccl = job.nccl().memAlloc && job.nccl().memFree;
  int result = isNccl ? job.nccl().memAlloc(base, bytes) : job.cuda().malloc(base, bytes);
  cudaStream *stream = peer.streams[{COMMRT_STREAM_COMPUTE, 0}];
  if (result) {
    copyText(isNccl ? peer.ncclError("ncclMemAlloc", result, nullptr) : peer.cudaError("cudaMalloc", result), message,
             size);
    return COMMRT_ERR_MEMORY;
  }
  {
    Lock lock(job.mutex);
    job.segments.push_back({&peer, *base, isNccl});
  }
  return report(peer, "cudaMemsetAsync", job.cuda().memsetAsync(*base, 0, bytes, stream));
}

static int32_t createWindow(void *opaque, void *base, int64_t bytes, void **window, char *message, size_t size) {
  auto &group = *static_cast<NcclGroup *>(opaque);
  NcclPeer &peer = peerOf(group.peer);
  const NcclApi &nccl = peer.job->nccl();
  ncclComm *comm = group.collectives.comm;
  *window = nullptr;
  if (!comm || !nccl.commWindowRegister || !nccl.commWindowDeregister || !nccl.memAlloc)
    return COMMRT_OK; // slower, and right
  constexpr int ncclWinCollSymmetric = 1, ncclInProgress = 7;
  Lock issuing(peer.issuing);
  if (peer.isAborted)
    return peer.failing;
  std::string error;
  int32_t status = COMMRT_OK;
  int result = nccl.commWindowRegister(comm, base, bytes, window, ncclWinCollSymmetric);
  if (result && result != ncclInProgress) {
    status = COMMRT_ERR_BACKEND;
    error = peer.ncclError("ncclCommWindowRegister", result, comm);
  } else {
    status = awaitComm(peer, comm, error);
  }
  copyText(error, message, size);
  if (status == COMMRT_OK && *window)
    peer.windows.emplace_back(comm, *window);
  return status;
}

static void destroyWindow(void *opaque, void *window) {
  auto &group = *static_cast<NcclGroup *>(opaque);
  NcclPeer &peer = peerOf(group.peer);
  Lock issuing(peer.issuing);
  auto found =
      std::find_if(peer.windows.begin(), peer.windows.end(), [&](const auto &entry) { return entry.second == window; });
  if (found == peer.windows.end())
    return;
  if (!peer.isAborted && !peer.failing) {
    std::string error;
    peer.job->nccl().commWindowDeregister(found->first, window);
    awaitComm(peer, found->first, error);
  }
  peer.windows.erase(found);
}

const commrt_device_ops commsched::runtime::ncclDeviceOps = {
    sizeof(commrt_device_ops),
    getStream,
    record,
    streamWait,
    query,
    release,
    [](void *peer, commrt_work *work, void *stream) {
      return awaitWork(*static_cast<NcclPeer *>(peer), work, streamOf(stream));
    },
    [](void *, commrt_work *work) { releaseWork(work); },
    [](void *peer) { return beginGroup(*static_cast<NcclPeer *>(peer)); },
    [](void *peer) { return endGroup(*static_cast<NcclPeer *>(peer)); },
    allocate,
    freeMemory,
    copy,
    fill,
    createWindow,
    destroyWindow,
    recordTimed,
    elapsed,
    groupStream,
    [](void *opaque, const commrt_image_info *info, void **result, char *message, size_t size) {
      NcclImage *image = nullptr;
      std::string error;
      int32_t status = loadImage(peerOf(opaque), *info, &image, error);
      *result = image;
      copyText(error, message, size);
      return status;
    },
    [](void *opaque, void *image, int32_t idle) {
      unloadImage(peerOf(opaque), static_cast<NcclImage *>(image), idle != 0);
    },
    [](void *opaque, void *image, const commrt_kernel_call *call, void *stream, char *message, size_t size) {
      std::string error;
      int32_t status = launchKernel(peerOf(opaque), *static_cast<NcclImage *>(image), *call, streamOf(stream), error);
      copyText(error, message, size);
      return status;
    },
    [](void *, const commrt_work *work, void **begin, void **end) {
      const NcclFlight *flight = flightOf(*work);
      if (flight && !flight->lane) // it moved nothing
        flight = nullptr;
      *begin = flight ? flight->begin : nullptr;
      *end = flight ? flight->ended ? flight->ended : flight->done : nullptr;
      return int32_t(COMMRT_OK);
    },
    [](void *opaque, void **image, char *message, size_t size) {
      NcclImage *found = nullptr;
      std::string error;
      int32_t status = findKernels(peerOf(opaque), &found, error);
      *image = found;
      copyText(error, message, size);
      return status;
    },
    [](void *opaque, const commrt_product *what, void *stream, char *message, size_t size) {
      std::string error;
      int32_t status = multiplyByLibrary(peerOf(opaque), *what, streamOf(stream), error);
      copyText(error, message, size);
      return status;
    },
    [](void *opaque, char *message, size_t size) {
      std::string error;
      int32_t status = beginCapture(peerOf(opaque), error);
      copyText(error, message, size);
      return status;
    },
    [](void *opaque, void **graph, char *message, size_t size) {
      std::string error;
      NcclGraph *result = nullptr;
      int32_t status = endCapture(peerOf(opaque), &result, error);
      *graph = result;
      copyText(error, message, size);
      return status;
    },
    [](void *opaque, void *graph, char *message, size_t size) {
      std::string error;
      int32_t status = launchGraph(peerOf(opaque), *static_cast<NcclGraph *>(graph), error);
      copyText(error, message, size);
      return status;
    },
    [](void *opaque, void *graph) { destroyGraph(peerOf(opaque), static_cast<NcclGraph *>(graph)); },
};
