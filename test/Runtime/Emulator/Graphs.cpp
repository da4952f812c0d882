//===- Graphs.cpp - Graphs and their launches -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A launch puts one operation for each node into internal streams, one for each stream that was captured, between two
// operations of the stream that it is launched on.
//
//===------------------------------------------------------------------------------------------===//

#include "Capture.h"
#include "CudaApi.h"

using namespace emulator;

static Graph *graphOf(cudaGraph_t handle) {
  auto *graph = reinterpret_cast<Graph *>(handle);
  if (!machine().graphs.count(graph))
    report("the graph is destroyed, or was never made");
  return graph;
}

static GraphExec *execOf(cudaGraphExec_t handle) {
  auto *exec = reinterpret_cast<GraphExec *>(handle);
  if (!machine().execs.count(exec))
    report("the executable graph is destroyed, or was never made");
  return exec;
}

extern "C" {
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t *nodes, size_t *count) {
  Entry entry("cudaGraphGetNodes");
  Graph *graph = graphOf(handle);
  if (nodes)
    for (size_t i = 0; i < *count; ++i)
      nodes[i] = i < graph->nodes.size() ? reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]) : nullptr;
  if (!nodes || *count > graph->nodes.size())
    *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *result, cudaGraph_t handle, unsigned long long flags) {
  Entry entry("cudaGraphInstantiateWithFlags");
  auto *exec = new GraphExec;
  exec->graph = *graphOf(handle);
  for (size_t lane = 0; lane < exec->graph.lanes; ++lane)
    exec->lanes.push_back(makeStream(exec->graph.device, cudaStreamNonBlocking, 0, /*isInternal=*/true));
  machine().execs.insert(exec);
  *result = reinterpret_cast<cudaGraphExec_t>(exec);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t on) {
  Entry entry("cudaGraphUpload");
  execOf(handle);
  checkDevice(streamOf(on));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t on) {
  Entry entry("cudaGraphLaunch");
  GraphExec *exec = execOf(handle);
  Stream *stream = streamOf(on);
  checkDevice(stream);
  if (stream->capture)
    report("a graph within a graph is not emulated");
  if (stream->device != exec->graph.device)
    report("wrong device: the graph is of device " + std::to_string(exec->graph.device) + ", the stream of device " +
           std::to_string(stream->device));
  Work work;
  work.name = "cudaGraphLaunch";
  OpRef first = enqueue(stream, work, {exec->last});
  std::vector<OpRef> ops;
  for (const Node &node : exec->graph.nodes) {
    std::vector<OpRef> after;
    for (size_t before : node.after)
      after.push_back(ops[before]);
    if (after.empty())
      after.push_back(first);
    ops.push_back(enqueue(exec->lanes[node.lane], node.work, std::move(after)));
    if (node.external && machine().events.count(node.external)) {
      node.external->op = ops.back();
      node.external->capture = nullptr;
    }
  }
  work.keeps = exec->graph.kept;
  exec->last = enqueue(stream, std::move(work), std::move(ops));
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  Entry entry("cudaGraphExecDestroy");
  GraphExec *exec = execOf(handle);
  machine().execs.erase(exec);
  for (Stream *lane : exec->lanes)
    closeStream(lane);
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  Entry entry("cudaGraphDestroy");
  Graph *graph = graphOf(handle);
  machine().graphs.erase(graph);
  delete graph;
  return cudaSuccess;
}
}
