//===- Graphs.cpp - Part of a program as one launch -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Between the begin and the end of a capture nothing runs, so whatever needs a result on the host is refused: a graph
// that were captured with one outcome of a decision would be launched with every other one.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/Core.h"
#include "Core/Trace/Ranges.h"
#include <utility>

using namespace commsched::runtime;

static const commrt_device_ops *graphOps(const commrt_job *job) {
  const commrt_device_ops *device = job->device;
  bool hasGraphs = device && COMMRT_REACHES(device, commrt_device_ops, graph_destroy) && device->capture_begin &&
                   device->capture_end && device->graph_launch && device->graph_destroy;
  return hasGraphs ? device : nullptr;
}

int32_t commsched::runtime::refuseInCapture(commrt_context *context, const std::string &what) {
  return context->isCapturing ? fail(context, COMMRT_ERR_UNSUPPORTED, "cannot be captured into a graph: " + what)
                              : latched(context);
}

//===- Capture -------------------------------------------------------------------------------===//

int32_t commrt_graph_begin(commrt_context *context) {
  if (!context)
    return COMMRT_ERR_INVALID;
  if (int32_t status = refuseInCapture(context, "a capture within a capture"))
    return status;
  const commrt_device_ops *device = graphOps(context->job);
  if (!device)
    return fail(context, COMMRT_ERR_UNSUPPORTED,
                std::string("backend '") + context->job->backend->name + "' captures no graphs");
  if (context->coalescing)
    return fail(context, COMMRT_ERR_INVALID, "commrt_graph_begin within a coalesced list");
  if (int32_t status = waitAll(context))
    return status;
  if (int32_t status = waitStreams(context))
    return status;
  reclaimCompleted(context);
  if (tracesDevice(context))
    resolveTrace(context);
  char text[512] = "";
  int32_t status = device->capture_begin(context->peer, text, sizeof(text));
  // With an error, too: then the backend may have begun.
  context->isCapturing = true;
  ++context->captures;
  context->capturedFrom = context->spans.size();
  return status ? fail(context, status, text) : latched(context);
}

int32_t commrt_graph_end(commrt_context *context, commrt_graph **graph) {
  if (!context || !graph)
    return COMMRT_ERR_INVALID;
  *graph = nullptr;
  if (!context->isCapturing) {
    int32_t status = latched(context);
    return status ? status : fail(context, COMMRT_ERR_INVALID, "commrt_graph_end without a begin");
  }
  const commrt_device_ops *device = graphOps(context->job);
  reclaimCompleted(context);
  auto made = std::make_unique<commrt_graph>();
  made->context = context;
  char text[512] = "";
  int32_t status = device->capture_end(context->peer, &made->state, text, sizeof(text));
  context->isCapturing = false;
  auto first = context->spans.begin() + static_cast<std::ptrdiff_t>(context->capturedFrom);
  made->spans.assign(first, context->spans.end());
  context->spans.erase(first, context->spans.end());
  if (status)
    fail(context, status, std::string("capturing a graph: ") + text);
  commrt_graph *owned = made.release();
  context->graphs.insert(owned);
  reclaimCompleted(context);
  if (int32_t failed = latched(context)) {
    commrt_graph_destroy(owned);
    return failed;
  }
  *graph = owned;
  return COMMRT_OK;
}

//===- Launch --------------------------------------------------------------------------------===//

int32_t commrt_graph_launch(commrt_graph *graph) {
  if (!graph)
    return COMMRT_ERR_INVALID;
  commrt_context *context = graph->context;
  if (int32_t status = refuseInCapture(context, "a launch of another graph"))
    return status;
  Range range([] { return std::string("launch of a graph"); });
  // The next launch overwrites the times of the last one.
  if (int32_t status = readGraphTimes(*graph))
    return status;
  reclaimCompleted(context);
  joinComputeStreams(context);
  if (tracesDevice(context))
    beginGraphTimes(*graph);
  char text[512] = "";
  int32_t status = graphOps(context->job)->graph_launch(context->peer, graph->state, text, sizeof(text));
  if (int32_t earlier = latched(context))
    return earlier;
  if (status)
    return fail(context, status, text);
  joinComputeStreams(context);
  return latched(context);
}

int32_t commrt_graph_destroy(commrt_graph *graph) {
  if (!graph)
    return COMMRT_OK;
  commrt_context *context = graph->context;
  int32_t status = context->isCapturing ? COMMRT_ERR_INVALID : waitStreams(context);
  if (status == COMMRT_OK)
    status = readGraphTimes(*graph);
  dropGraph(graph);
  return status;
}

void commsched::runtime::dropGraph(commrt_graph *graph) {
  commrt_context *context = graph->context;
  for (const DeviceSpan &span : graph->spans)
    forgetSpan(context, span);
  if (graph->state)
    graphOps(context->job)->graph_destroy(context->peer, graph->state);
  context->graphs.erase(graph);
  delete graph;
}
