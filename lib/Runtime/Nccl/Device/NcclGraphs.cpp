//===- NcclGraphs.cpp - Captures and launches of CUDA graphs ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A capture begins on the default compute stream. All other streams of the rank join it by an event, and are joined
// back at its end, so that every start and wait in between becomes a node. Nothing runs meanwhile: a captured work is
// complete, as far as the core can tell, as soon as a stream waits for it, since what follows on that stream comes
// after it in every launch.
//
// The memory that is allocated during a capture belongs to the graph. It is used again within the capture, and stays
// until the graph is destroyed. Each launch is one flight with a deadline of its own.
//
//===------------------------------------------------------------------------------------------===//

#include "Nccl/NcclJob.h"
#include <algorithm>
#include <cstdlib>
#include <utility>

using namespace commsched::runtime;
using Clock = std::chrono::steady_clock;

static constexpr int captureModeThreadLocal = 1, captureModeRelaxed = 2; ///< cudaStreamCaptureMode

static cudaStream *originOf(NcclPeer &peer) { return peer.streams[{COMMRT_STREAM_COMPUTE, 0}]; }

RelaxedCapture::RelaxedCapture(NcclPeer &peer) : peer(peer), mode(captureModeRelaxed) { exchange(); }
RelaxedCapture::~RelaxedCapture() { exchange(); }
void RelaxedCapture::exchange() {
  if (peer.capture)
    peer.job->cuda().threadExchangeStreamCaptureMode(&mode);
}

//===- Streams -------------------------------------------------------------------------------===//

/// Each stream but the origin.
static std::vector<cudaStream *> sideStreams(NcclPeer &peer) {
  std::vector<cudaStream *> result;
  for (auto &[key, stream] : peer.streams)
    if (stream && stream != originOf(peer))
      result.push_back(stream);
  Lock lock(peer.mutex);
  for (NcclLane *lane : peer.lanes)
    if (lane->stream != originOf(peer))
      result.push_back(lane->stream);
  return result;
}

/// What is put on `to` later waits for what is on `from`.
static std::string order(NcclPeer &peer, cudaStream *from, cudaStream *to) {
  std::string error;
  cudaEvent *event = recordEvent(peer, from, error);
  if (!event)
    return error;
  error = awaitEvent(peer, to, event);
  releaseEvent(peer, event);
  return error;
}

std::string commsched::runtime::joinCapture(NcclPeer &peer, cudaStream *stream) {
  return order(peer, originOf(peer), stream);
}

//===- Capture -------------------------------------------------------------------------------===//

/// Why the rank cannot capture; empty if it can.
static std::string whyNot(const NcclPeer &peer) {
  const NcclJob &job = *peer.job;
  const CudaApi &cuda = job.cuda();
  if (!cuda.streamBeginCapture || !cuda.streamEndCapture || !cuda.graphInstantiate || !cuda.graphLaunch ||
      !cuda.graphExecDestroy || !cuda.graphDestroy || !cuda.eventRecordWithFlags ||
      !cuda.threadExchangeStreamCaptureMode)
    return "the CUDA runtime lacks functions for graphs, which are in 11.4 and later";
  const char *allowed = std::getenv("COMMRT_NCCL_GRAPH_THREADS");
  if (job.localRank < 0 && job.ranks > 1 && !(allowed && *allowed == '1'))
    return "several GPUs in one process cannot be captured, because a launch of one may wait for the launch of "
           "another; "
           "start one process per GPU";
  return "";
}

int32_t commsched::runtime::beginCapture(NcclPeer &peer, std::string &error) {
  peer.enter();
  if (error = whyNot(peer); !error.empty())
    return COMMRT_ERR_UNSUPPORTED;
  flushMessages(peer);
  if (!peer.graphStream)
    peer.graphStream = makeStream(peer, false, error);
  if (!peer.graphStream)
    return COMMRT_ERR_BACKEND;
  if (peer.newest) {
    Lock lock(peer.mutex);
    dropFlightLocked(std::exchange(peer.newest, nullptr));
  }
  if (int result = peer.job->cuda().streamBeginCapture(originOf(peer), captureModeThreadLocal)) {
    error = peer.cudaError("cudaStreamBeginCapture", result);
    return COMMRT_ERR_BACKEND;
  }
  {
    Lock issuing(peer.issuing);
    peer.graphs.push_back(std::make_unique<NcclGraph>());
  }
  peer.capture = peer.graphs.back().get();
  for (cudaStream *stream : sideStreams(peer))
    if (error.empty())
      error = joinCapture(peer, stream);
  return error.empty() ? COMMRT_OK : COMMRT_ERR_BACKEND;
}

void commsched::runtime::completeCaptured(NcclFlight &flight, int32_t status) {
  std::vector<commrt_work *> works;
  works.swap(flight.works);
  for (commrt_work *work : works)
    flight.peer->host->complete(work, status, 0);
}

/// Ends the capture; null with an error.
static void *endCaptureOf(NcclPeer &peer, std::string &error) {
  flushMessages(peer);
  for (cudaStream *stream : sideStreams(peer)) {
    std::string text = order(peer, stream, originOf(peer));
    error = error.empty() ? text : error;
  }
  void *graph = nullptr;
  if (int result = peer.job->cuda().streamEndCapture(originOf(peer), &graph); result && error.empty())
    error = peer.cudaError("cudaStreamEndCapture", result);
  return graph;
}

int32_t commsched::runtime::endCapture(NcclPeer &peer, NcclGraph **result, std::string &error) {
  const CudaApi &cuda = peer.job->cuda();
  *result = nullptr;
  if (!peer.capture)
    return COMMRT_OK;
  peer.enter();
  void *graph = endCaptureOf(peer, error);
  NcclGraph *made = std::exchange(peer.capture, nullptr);
  int32_t failing = peer.failing;
  for (NcclFlight *flight : made->flights)
    completeCaptured(*flight, failing);
  if (peer.newest) {
    Lock lock(peer.mutex);
    dropFlightLocked(std::exchange(peer.newest, nullptr));
  }
  if (graph) {
    Lock issuing(peer.issuing);
    if (error.empty() && !peer.isAborted)
      if (int status = cuda.graphInstantiate(&made->exec, graph, 0))
        error = peer.cudaError("cudaGraphInstantiateWithFlags", status);
    cuda.graphDestroy(graph);
  }
  // Its memory was made on a stream of its own.
  if (std::string text = order(peer, peer.graphStream, originOf(peer)); error.empty())
    error = text;
  *result = made;
  return failing ? failing : error.empty() ? COMMRT_OK : COMMRT_ERR_BACKEND;
}

//===- Launches ------------------------------------------------------------------------------===//

int32_t commsched::runtime::launchGraph(NcclPeer &peer, NcclGraph &graph, std::string &error) {
  cudaStream *stream = originOf(peer);
  flushMessages(peer);
  Lock issuing(peer.issuing);
  if (peer.failing || peer.isAborted) {
    int32_t failing = peer.failing;
    return failing ? failing : COMMRT_ERR_ABORTED;
  }
  peer.enter();
  auto flight = std::make_unique<NcclFlight>();
  flight->peer = &peer;
  flight->lane = &peer.graphLane;
  flight->what = "launch " + std::to_string(++graph.launches) + " of a graph of " +
                 std::to_string(graph.flights.size()) + " starts";
  flight->begin = recordEvent(peer, stream, error);
  if (flight->begin)
    if (int result = peer.job->cuda().graphLaunch(graph.exec, stream))
      error = peer.cudaError("cudaGraphLaunch", result);
  std::string text;
  flight->done = recordEvent(peer, stream, text);
  error = error.empty() ? text : error;
  flight->issued = Clock::now();
  flight->waited.push_back(stream); // a rank that leaves lets it end
  Lock lock(peer.mutex);
  if (!peer.graphLane.stream) {
    peer.graphLane.stream = stream;
    peer.lanes.push_back(&peer.graphLane);
  }
  peer.graphLane.flights.push_back(flight.release());
  return error.empty() ? COMMRT_OK : COMMRT_ERR_BACKEND;
}

void commsched::runtime::endGraphs(NcclPeer &peer) {
  for (auto &graph : peer.graphs)
    if (void *exec = std::exchange(graph->exec, nullptr))
      peer.job->cuda().graphExecDestroy(exec);
}

void commsched::runtime::freeGraph(NcclPeer &peer, NcclGraph &graph) {
  const CudaApi &cuda = peer.job->cuda();
  if (void *exec = std::exchange(graph.exec, nullptr))
    cuda.graphExecDestroy(exec);
  for (void *pointer : graph.memory)
    peer.graphMemory.erase(pointer);
  // What the program still has is given back when the program does so.
  for (auto &[key, pointer] : graph.pool)
    cuda.freeAsync(pointer, originOf(peer));
  Lock lock(peer.mutex);
  for (NcclFlight *flight : graph.flights) {
    for (const PinnedBlock &block : std::exchange(flight->pinned, {}))
      releasePinnedLocked(peer, block);
    dropFlightLocked(flight);
  }
}

void commsched::runtime::destroyGraph(NcclPeer &peer, NcclGraph *graph) {
  if (peer.failing)
    return; // a launch may still run: until close
  peer.enter();
  // Its launches may be ended by another thread: by an abort, or by the last rank that leaves, for all.
  Lock issuing(peer.issuing);
  freeGraph(peer, *graph);
  auto found = std::find_if(peer.graphs.begin(), peer.graphs.end(), [&](auto &each) { return each.get() == graph; });
  peer.graphs.erase(found);
}

//===- Memory --------------------------------------------------------------------------------===//

/// Memory from the pool of the capture: what was given back on the same stream, since what is put there next comes
/// after its last use. 0 or CUDA's error.
static int takeFromPool(NcclPeer &peer, int64_t bytes, cudaStream *stream, void **pointer) {
  auto &pool = peer.capture->pool;
  auto found = pool.lower_bound({stream, bytes});
  // More than twice as much would be kept from others.
  if (found != pool.end() && found->first.first == stream && found->first.second < 2 * bytes) {
    *pointer = found->second;
    pool.erase(found);
    return 0;
  }
  RelaxedCapture relaxed(peer);
  return peer.job->cuda().mallocAsync(pointer, bytes, peer.graphStream);
}

int commsched::runtime::takeGraphMemory(NcclPeer &peer, int64_t bytes, cudaStream *stream, void **pointer) {
  if (int result = takeFromPool(peer, bytes, stream, pointer))
    return result;
  if (peer.graphMemory.try_emplace(*pointer, peer.capture, bytes).second)
    peer.capture->memory.push_back(*pointer);
  return 0;
}

bool commsched::runtime::releaseGraphMemory(NcclPeer &peer, void *pointer, cudaStream *stream) {
  auto found = peer.graphMemory.find(pointer);
  if (found == peer.graphMemory.end())
    return false;
  auto [graph, bytes] = found->second;
  graph->pool.emplace(std::make_pair(stream, bytes), pointer);
  return true;
}

int commsched::runtime::takeScratch(NcclPeer &peer, cudaStream *stream, int64_t bytes, void **pointer) {
  return peer.capture ? takeFromPool(peer, bytes, stream, pointer)
                      : peer.job->cuda().mallocAsync(pointer, bytes, stream);
}

int commsched::runtime::releaseScratch(NcclPeer &peer, cudaStream *stream, int64_t bytes, void *pointer) {
  if (!peer.capture)
    return peer.job->cuda().freeAsync(pointer, stream);
  peer.capture->pool.emplace(std::make_pair(stream, bytes), pointer);
  return 0;
}
