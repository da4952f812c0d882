//===- NcclEvents.cpp - Streams, events and pinned memory of the nccl backend -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Events and pinned memory are pooled: making and destroying them may block. An event is used again when its waits were
// issued and nobody asks for it any more.
//
//===------------------------------------------------------------------------------------------===//

#include "Nccl/NcclJob.h"
#include <algorithm>

using namespace commsched::runtime;

static constexpr int cudaErrorNotReady = 600;
static constexpr unsigned cudaEventDisableTiming = 2;
static constexpr unsigned cudaStreamNonBlocking = 1;
static constexpr unsigned cudaHostAllocPortable = 1;

std::string NcclPeer::cudaError(const char *what, int result) const {
  job->cuda().getLastError(); // so that it is not reported by a later call
  return std::string(what) + " failed: " + job->cuda().getErrorString(result);
}

std::string NcclPeer::ncclError(const char *what, int result, ncclComm *comm) const {
  std::string text = std::string(what) + " failed: " + job->nccl().getErrorString(result);
  const char *more = job->nccl().getLastError(comm);
  if (more && *more)
    text += std::string(" (") + more + ")";
  for (char &c : text)
    c = c == '\n' ? ' ' : c;
  return text;
}

void NcclPeer::enter() const { job->cuda().setDevice(device); }

//===- Events --------------------------------------------------------------------------------===//

cudaEvent *commsched::runtime::takeEvent(NcclPeer &peer, std::string &error, bool isTimed) {
  {
    Lock lock(peer.mutex);
    std::vector<cudaEvent *> &spare = isTimed ? peer.spareTimedEvents : peer.spareEvents;
    if (!spare.empty()) {
      cudaEvent *event = spare.back();
      spare.pop_back();
      return event;
    }
  }
  cudaEvent *event = nullptr;
  if (int result = peer.job->cuda().eventCreateWithFlags(&event, isTimed ? 0 : cudaEventDisableTiming)) {
    error = peer.cudaError("cudaEventCreateWithFlags", result);
    return nullptr;
  }
  Lock lock(peer.mutex);
  peer.allEvents.push_back(event);
  if (isTimed)
    peer.timedEvents.insert(event);
  return event;
}

void commsched::runtime::releaseEventLocked(NcclPeer &peer, cudaEvent *event) {
  if (event)
    (peer.timedEvents.count(event) ? peer.spareTimedEvents : peer.spareEvents).push_back(event);
}

void commsched::runtime::releaseEvent(NcclPeer &peer, cudaEvent *event) {
  Lock lock(peer.mutex);
  releaseEventLocked(peer, event);
}

cudaEvent *commsched::runtime::recordEvent(NcclPeer &peer, cudaStream *stream, std::string &error, bool isTimed) {
  cudaEvent *event = takeEvent(peer, error, isTimed);
  if (!event)
    return nullptr;
  // What is captured is to be timed at each launch.
  constexpr unsigned cudaEventRecordExternal = 1;
  const CudaApi &cuda = peer.job->cuda();
  if (int result = isTimed && peer.capture ? cuda.eventRecordWithFlags(event, stream, cudaEventRecordExternal)
                                           : cuda.eventRecord(event, stream)) {
    error = peer.cudaError("cudaEventRecord", result);
    releaseEvent(peer, event);
    return nullptr;
  }
  return event;
}

std::string commsched::runtime::awaitEvent(NcclPeer &peer, cudaStream *stream, cudaEvent *event) {
  int result = peer.job->cuda().streamWaitEvent(stream, event, 0);
  return result ? peer.cudaError("cudaStreamWaitEvent", result) : "";
}

int commsched::runtime::queryEvent(NcclPeer &peer, cudaEvent *event, std::string &error) {
  int result = peer.job->cuda().eventQuery(event);
  if (result == 0)
    return 1;
  if (result == cudaErrorNotReady)
    return 0;
  error = peer.cudaError("cudaEventQuery", result);
  return -1;
}

//===- Streams and pinned memory -------------------------------------------------------------===//

cudaStream *commsched::runtime::makeStream(NcclPeer &peer, bool isUrgent, std::string &error) {
  int least = 0, greatest = 0;
  cudaStream *stream = nullptr;
  const CudaApi &cuda = peer.job->cuda();
  // Thread blocks of collectives come next when those of a computation retire.
  if (int result = cuda.deviceGetStreamPriorityRange(&least, &greatest))
    error = peer.cudaError("cudaDeviceGetStreamPriorityRange", result);
  else if (int made = cuda.streamCreateWithPriority(&stream, cudaStreamNonBlocking, isUrgent ? greatest : least))
    error = peer.cudaError("cudaStreamCreateWithPriority", made);
  else
    return stream;
  return nullptr;
}

PinnedBlock commsched::runtime::takePinned(NcclPeer &peer, size_t bytes, std::string &error) {
  // Powers of two, so that the pool serves many sizes.
  size_t rounded = 4096;
  while (rounded < bytes)
    rounded *= 2;
  {
    Lock lock(peer.mutex);
    auto &spare = peer.sparePinned;
    auto found =
        std::find_if(spare.begin(), spare.end(), [&](const PinnedBlock &block) { return block.bytes == rounded; });
    if (found != spare.end()) {
      PinnedBlock block = *found;
      *found = spare.back();
      spare.pop_back();
      return block;
    }
  }
  void *data = nullptr;
  RelaxedCapture relaxed(peer);
  if (int result = peer.job->cuda().hostAlloc(&data, rounded, cudaHostAllocPortable)) {
    error = peer.cudaError("cudaHostAlloc", result);
    return {};
  }
  PinnedBlock block{static_cast<char *>(data), rounded};
  Lock lock(peer.mutex);
  peer.allPinned.push_back(block);
  return block;
}

void commsched::runtime::releasePinnedLocked(NcclPeer &peer, const PinnedBlock &block) {
  if (block.data)
    peer.sparePinned.push_back(block);
}
