//===- StreamQueues.h - Queues of streams and lanes -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What the players of several streams have in common, with and without contention.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_TIME_STREAMQUEUES_H
#define COMMSCHED_LIB_SCHEDULING_TIME_STREAMQUEUES_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace commsched {

/// Nodes in the order of the program, on a stream or for a lane.
struct NodeQueue {
  std::vector<NodeId> nodes;
  /// How many of them are over.
  size_t head = 0;
  bool isEmpty() const { return head == nodes.size(); }
  NodeId first() const { return nodes[head]; }
};

struct StreamQueue : NodeQueue {
  /// When the last of its nodes that are over ended, ns.
  Ns clock = 0;
  bool computes = false;
  /// The starts that were issued so far, and the latest end of each prefix of which all ends are known.
  std::vector<NodeId> starts;
  std::vector<Ns> latestEnds = {0};
};

/// Visits the communication lanes that a node occupies.
template <class Visit> void forEachLaneOf(const Problem &problem, const Node &node, Visit visit) {
  if (node.region != kNone)
    std::for_each(problem.regions[node.region].lanes.begin(), problem.regions[node.region].lanes.end(), visit);
  else if (node.lane != kComputeLane)
    visit(node.lane);
}

/// Whether the compute lane is busy with the node for some time.
inline bool computes(const Node &node) {
  return (node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid) && node.cost > 0;
}

/// Puts the nodes of an order into the queues of their streams and lanes.
inline void enqueue(const Problem &problem, llvm::ArrayRef<NodeId> order, std::vector<StreamQueue> &streams,
                    std::vector<NodeQueue> &lanes) {
  for (NodeId id : order) {
    const Node &node = problem.nodes[id];
    streams[node.stream].nodes.push_back(id);
    streams[node.stream].computes |= computes(node);
    forEachLaneOf(problem, node, [&](LaneId lane) { lanes[lane].nodes.push_back(id); });
  }
}

/// The first node of a stream that has the earliest turn, and the turn, ns; kNone if no turn is known. Of equal turns,
/// what takes no time comes first, because it may free others; then that of the stream that came to it first, then the
/// first in the program. `turnOf` says when a node may take place, as an optional; `placeOf` its place in the order.
template <class TurnOf, class PlaceOf>
std::pair<NodeId, Ns> earliestHead(const Problem &problem, llvm::ArrayRef<StreamQueue> streams, TurnOf turnOf,
                                   PlaceOf placeOf) {
  NodeId best = kNone;
  std::tuple<Ns, bool, Ns, int32_t> earliest = {0, false, 0, 0};
  for (const StreamQueue &stream : streams) {
    if (stream.isEmpty())
      continue;
    NodeId id = stream.first();
    std::optional<Ns> turn = turnOf(id);
    if (!turn)
      continue;
    std::tuple<Ns, bool, Ns, int32_t> key = {*turn, computes(problem.nodes[id]), stream.clock, placeOf(id)};
    if (best == kNone || key < earliest) {
      best = id;
      earliest = key;
    }
  }
  return {best, std::get<0>(earliest)};
}

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_TIME_STREAMQUEUES_H
