//===- Capture.cpp - Stream capture -----------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What CUDA answers with an error during a capture is reported: in the program under test each such call is a mistake.
//
//===------------------------------------------------------------------------------------------===//

#include "Capture.h"
#include "CudaApi.h"
#include "Hooks.h"
#include <algorithm>

namespace emulator {
static thread_local cudaStreamCaptureMode threadMode = cudaStreamCaptureModeGlobal;
/// The captures that are going on.
static std::vector<std::shared_ptr<Capture>> &captures() {
  static auto *list = new std::vector<std::shared_ptr<Capture>>;
  return *list;
}

static int threadNumber() {
  static std::atomic<int> next{1};
  static thread_local int mine = next++;
  return mine;
}

void checkSafe() {
  if (threadMode == cudaStreamCaptureModeRelaxed)
    return;
  for (const auto &capture : captures()) {
    bool isMine = capture->thread == threadNumber() && capture->mode != cudaStreamCaptureModeRelaxed;
    bool isForAll = capture->mode == cudaStreamCaptureModeGlobal && threadMode == cudaStreamCaptureModeGlobal;
    if (isMine || isForAll)
      report("not permitted while a stream is being captured");
  }
}

void checkNotCapturing(const Stream *stream) {
  if (stream && stream->capture)
    report("the stream is being captured");
  checkSafe();
}

void captureNode(Stream *stream, Work work, Event *external) {
  Capture &capture = *stream->capture;
  std::vector<size_t> &tail = capture.tails[stream];
  auto [lane, isNew] = capture.lanes.try_emplace(stream, capture.lanes.size());
  capture.graph.nodes.push_back({std::move(work), tail, lane->second, external});
  tail = {capture.graph.nodes.size() - 1};
}

void submit(Stream *stream, Work work) {
  if (stream->capture) {
    captureNode(stream, std::move(work), nullptr);
    return;
  }
  if (stream->isDefault)
    for (const auto &capture : captures())
      if (capture->origin->device == stream->device && !(capture->origin->flags & cudaStreamNonBlocking))
        report("the legacy default stream would wait for a stream that is being captured");
  enqueue(stream, std::move(work), {});
}

void captureRecord(Stream *stream, Event *event) {
  event->capture = stream->capture;
  event->nodes = stream->capture->tails[stream];
  event->op = nullptr;
}

void captureExternalRecord(Stream *stream, Event *event) {
  Work work;
  work.name = "cudaEventRecord";
  captureNode(stream, std::move(work), event);
}

void captureWait(Stream *stream, const Event *event) {
  if (!event->capture)
    report(event->op ? "a captured stream cannot wait for an event that was recorded outside of the capture"
                     : "the event was never recorded");
  if (!event->capture->isActive)
    report("the event was recorded in a capture that has ended");
  if (stream->capture && stream->capture != event->capture)
    report("the stream and the event are in different captures");
  stream->capture = event->capture;
  std::vector<size_t> &tail = stream->capture->tails[stream];
  tail.insert(tail.end(), event->nodes.begin(), event->nodes.end());
  std::sort(tail.begin(), tail.end());
  tail.erase(std::unique(tail.begin(), tail.end()), tail.end());
}

/// Reports unless every node comes before the end of the origin's part.
static void checkJoined(const Capture &capture) {
  std::vector<bool> isJoined(capture.graph.nodes.size());
  auto tail = capture.tails.find(capture.origin);
  if (tail != capture.tails.end())
    for (size_t node : tail->second)
      isJoined[node] = true;
  for (size_t node = isJoined.size(); node-- > 0;) {
    if (!isJoined[node])
      report(std::string("the capture has a stream that was not joined: ") + capture.graph.nodes[node].work.name);
    for (size_t before : capture.graph.nodes[node].after)
      isJoined[before] = true;
  }
}
} // namespace emulator

using namespace emulator;

extern "C" {
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  Entry entry("cudaStreamBeginCapture");
  Stream *stream = streamOf(handle);
  if (stream->isDefault)
    report("the legacy default stream cannot be captured");
  if (stream->capture)
    report("the stream is being captured already");
  checkDevice(stream);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = threadNumber();
  capture->graph.device = stream->device;
  captures().push_back(capture);
  stream->capture = std::move(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *result) {
  Entry entry("cudaStreamEndCapture");
  Stream *stream = streamOf(handle);
  if (!stream->capture)
    report("the stream is not being captured");
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream)
    report("the capture was begun on another stream");
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != threadNumber())
    report("the capture was begun by another thread");
  checkJoined(*capture);
  capture->isActive = false;
  for (Stream *other : machine().streams)
    if (other->capture == capture)
      other->capture = nullptr;
  captures().erase(std::find(captures().begin(), captures().end(), capture));
  auto *graph = new Graph(std::move(capture->graph));
  graph->lanes = capture->lanes.size();
  machine().graphs.insert(graph);
  *result = reinterpret_cast<cudaGraph_t>(graph);
  return cudaSuccess;
}

void emulatorKeepWithGraph(cudaStream_t handle, void (*release)(void *), void *argument) {
  Entry entry("emulatorKeepWithGraph");
  Stream *stream = streamOf(handle);
  if (!stream->capture)
    report("the stream is not being captured");
  stream->capture->graph.kept.emplace_back(argument, release);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status) {
  Entry entry("cudaStreamIsCapturing");
  *status = streamOf(handle)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  std::swap(*mode, threadMode);
  return cudaSuccess;
}
}
