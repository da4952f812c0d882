//===- Capture.h - Stream capture and graphs --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A captured stream appends nodes to a graph in place of operations to a queue. An event that was recorded in a capture
// brings other streams into it, as in CUDA; all must be joined again before the capture ends.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_EMULATOR_CAPTURE_H
#define COMMSCHED_TEST_RUNTIME_EMULATOR_CAPTURE_H

#include "Machine.h"

namespace emulator {

/// One operation of a graph.
struct Node {
  Work work;
  std::vector<size_t> after;
  size_t lane = 0;           ///< one per captured stream
  Event *external = nullptr; ///< recorded at each launch
};

struct Graph {
  int device = 0;
  size_t lanes = 0;
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<void>> kept; ///< until the graph and its launches are gone
};

struct GraphExec {
  Graph graph;
  std::vector<Stream *> lanes;
  OpRef last; ///< of its latest launch
};

struct Capture {
  Stream *origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  int thread = 0;
  bool isActive = true;
  Graph graph;
  std::map<Stream *, size_t> lanes;
  std::map<Stream *, std::vector<size_t>> tails; ///< what the stream's next node comes after
};

/// Appends a node to the graph that captures the stream.
void captureNode(Stream *stream, Work work, Event *external);

} // namespace emulator

#endif // COMMSCHED_TEST_RUNTIME_EMULATOR_CAPTURE_H
