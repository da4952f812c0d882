//===- MultiStream.h - Nodes on several streams -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// List scheduling by upward rank on several streams: HEFT (Topcuoglu, Hariri, Wu: Performance-Effective and
// Low-Complexity Task Scheduling for Heterogeneous Computing, 2002), with the roles, synchronisation costs and the gate
// of MultiStreamSchedulePass, a pass of the simulator tensor_cast. The order of the program is not changed; nodes get
// streams, and events between them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_INDUCTOR_MULTISTREAM_H
#define COMMSCHED_SCHEDULING_INDUCTOR_MULTISTREAM_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched {

/// On which streams a node may run, and which resources it occupies.
enum class StreamRole : uint8_t {
  /// Compute streams; occupies compute.
  Compute,
  /// Communication streams; occupies communication.
  Comm,
  /// Compute streams; occupies both.
  Hybrid,
  /// On no stream, and takes no time: waits, views, terminators. Dependences through it count (that pass
  /// loses them).
  Transparent,
};

/// The order in which the operations of a block are issued.
enum class IssueOrder : uint8_t {
  /// The one of the two below in which the block takes less time; that of the program if both take as long.
  Best,
  /// As in the program.
  Graph,
  /// By the start that was planned.
  StartTime,
};

struct StreamNode {
  StreamRole role = StreamRole::Compute;
  /// ns; at least MultiStreamOptions::minCost is counted. 0 of a transparent node.
  Ns cost = 0;
  /// The number of the only stream that can run the node; kNone: those of its role.
  int32_t fixedStream = kNone;
};

struct MultiStreamOptions {
  /// Numbers of streams in the order in which they are tried, each once; at least one of each.
  llvm::SmallVector<int32_t, 4> computeStreams = {0}, commStreams = {1};
  /// What a dependence between streams adds, ns.
  Ns syncOverhead = 0;
  /// The least that a node costs, ns; positive, so that a node's rank exceeds those of its users.
  Ns minCost = 1000;
  /// One resource per role, as MultiStreamSchedulePass has it: two compute streams never compute at the same time, and
  /// more streams only move the synchronisation. Otherwise a stream is limited by itself alone.
  bool sharesResources = true;
};

struct StreamPlacement {
  /// The stream's number; kNone of a transparent node.
  int32_t stream = kNone;
  Ns start = 0, end = 0;
};

struct MultiStreamPlan {
  /// Whether the prediction is shorter than everything in turn: otherwise the program stays as it is.
  bool applied = false;
  /// All costs added up, and the predicted end, ns.
  Ns serial = 0, predicted = 0;
  /// Indexed by node.
  std::vector<StreamPlacement> placements;
  /// Indexed by node: the nodes on other streams whose events it awaits, in the order of its dependences, each once. Of
  /// several behind one transparent node, the last of each stream.
  IndexLists tokens;
};

/// The order in which streams should be given their nodes so that they run as planned: by start, ties in the given
/// order; a transparent node directly before the first node that needs it. Respects `preds`, which lead to smaller ids
/// and may be more than the plan was made for. O(E + N log N).
Order orderByStart(const IndexLists &preds, const MultiStreamPlan &plan);

/// Plans nodes whose dependences `preds` lead to smaller ids. O((N + E) x streams + N log N).
MultiStreamPlan planStreams(const IndexLists &preds, llvm::ArrayRef<StreamNode> nodes,
                            const MultiStreamOptions &options);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_INDUCTOR_MULTISTREAM_H
