//===- MultiStream.cpp - Nodes on several streams ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upward ranks, then placement in their order at the earliest end. A transparent node hands on, for each stream, the
// latest end and the last node of what it depends on.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/MultiStream.h"
#include "llvm/ADT/STLExtras.h"
#include <array>
#include <numeric>

using namespace commsched;

namespace {

/// What a node contributes to one that depends on it, by stream index.
struct Arrival {
  Ns end = 0;
  NodeId last = kNone;
};

class StreamPlanner {
public:
  StreamPlanner(const IndexLists &preds, llvm::ArrayRef<StreamNode> nodes, const MultiStreamOptions &options)
      : preds(preds), succs(preds.transposed(preds.size())), nodes(nodes), options(options) {
    for (llvm::ArrayRef<int32_t> list :
         {llvm::ArrayRef<int32_t>(options.computeStreams), llvm::ArrayRef<int32_t>(options.commStreams)})
      for (int32_t stream : list)
        addStream(stream);
    for (const StreamNode &node : nodes)
      if (node.fixedStream != kNone)
        addStream(node.fixedStream);
    streamReady.assign(streams.size(), 0);
  }

  MultiStreamPlan run() {
    plan.placements.resize(nodes.size());
    rankNodes();
    std::vector<NodeId> order;
    for (NodeId id = 0; id < preds.size(); ++id)
      if (nodes[id].role != StreamRole::Transparent)
        order.push_back(id);
    llvm::stable_sort(order, [&](NodeId a, NodeId b) { return ranks[a] > ranks[b]; });
    waiting.resize(nodes.size());
    for (NodeId id = 0; id < preds.size(); ++id)
      waiting[id] = static_cast<int32_t>(preds[id].size());
    // Nothing has to be placed before these.
    for (NodeId id = 0; id < preds.size(); ++id)
      if (nodes[id].role == StreamRole::Transparent && preds[id].empty())
        handOn(id);
    for (NodeId id : order) {
      place(id);
      plan.serial += costOf(id);
      plan.predicted = std::max(plan.predicted, plan.placements[id].end);
    }
    collectTokens();
    plan.applied = plan.predicted < plan.serial;
    return std::move(plan);
  }

private:
  Ns costOf(NodeId id) const {
    return nodes[id].role == StreamRole::Transparent ? 0 : std::max(options.minCost, nodes[id].cost);
  }
  void addStream(int32_t stream) {
    if (!llvm::is_contained(streams, stream))
      streams.push_back(stream);
  }
  llvm::ArrayRef<int32_t> streamsOf(NodeId id) const {
    if (nodes[id].fixedStream != kNone)
      return nodes[id].fixedStream;
    return nodes[id].role == StreamRole::Comm ? options.commStreams : options.computeStreams;
  }
  size_t indexOf(int32_t stream) const { return llvm::find(streams, stream) - streams.begin(); }

  void rankNodes();
  Ns readyOn(NodeId id, int32_t stream) const;
  void place(NodeId id);
  void arrive(NodeId id);
  void handOn(NodeId id);
  void collectTokens();

  const IndexLists &preds;
  IndexLists succs;
  llvm::ArrayRef<StreamNode> nodes;
  const MultiStreamOptions &options;
  /// All streams, each once.
  llvm::SmallVector<int32_t, 8> streams;
  /// Indexed by node: the longest way to the end, with a synchronisation on every edge.
  std::vector<Ns> ranks;
  /// Indexed by stream, and by resource (compute, communication): when it is free.
  std::vector<Ns> streamReady;
  std::array<Ns, 2> resourceReady = {0, 0};
  /// Indexed by node: dependences that are not placed yet.
  std::vector<int32_t> waiting;
  /// Indexed by node, of transparent nodes only: by stream.
  std::vector<std::vector<Arrival>> arrivals;
  MultiStreamPlan plan;
};

} // namespace

void StreamPlanner::rankNodes() {
  ranks.assign(nodes.size(), 0);
  arrivals.resize(nodes.size());
  for (NodeId id = preds.size() - 1; id >= 0; --id) {
    Ns behind = 0;
    for (NodeId user : succs[id])
      behind = std::max(behind, ranks[user] + (nodes[user].role == StreamRole::Transparent ? 0 : options.syncOverhead));
    ranks[id] = costOf(id) + behind;
  }
}

/// When everything that `id` depends on is there for `stream`.
Ns StreamPlanner::readyOn(NodeId id, int32_t stream) const {
  Ns ready = 0;
  for (NodeId pred : preds[id]) {
    if (nodes[pred].role != StreamRole::Transparent) {
      const StreamPlacement &placed = plan.placements[pred];
      ready = std::max(ready, placed.end + (placed.stream == stream ? 0 : options.syncOverhead));
      continue;
    }
    for (auto [arrival, other] : llvm::zip_equal(arrivals[pred], streams))
      if (arrival.last != kNone)
        ready = std::max(ready, arrival.end + (other == stream ? 0 : options.syncOverhead));
  }
  return ready;
}

void StreamPlanner::place(NodeId id) {
  StreamRole role = nodes[id].role;
  Ns resources = 0;
  if (options.sharesResources && role != StreamRole::Comm)
    resources = std::max(resources, resourceReady[0]);
  if (options.sharesResources && role != StreamRole::Compute)
    resources = std::max(resources, resourceReady[1]);
  StreamPlacement best;
  for (int32_t stream : streamsOf(id)) {
    Ns start = std::max({streamReady[indexOf(stream)], resources, readyOn(id, stream)});
    if (best.stream == kNone || start + costOf(id) < best.end)
      best = {stream, start, start + costOf(id)};
  }
  plan.placements[id] = best;
  streamReady[indexOf(best.stream)] = best.end;
  if (role != StreamRole::Comm)
    resourceReady[0] = best.end;
  if (role != StreamRole::Compute)
    resourceReady[1] = best.end;
  arrive(id);
}

/// Tells the transparent users of a node that it is placed.
void StreamPlanner::arrive(NodeId id) {
  llvm::SmallVector<NodeId, 16> complete;
  for (NodeId user : succs[id])
    if (--waiting[user] == 0 && nodes[user].role == StreamRole::Transparent)
      complete.push_back(user);
  for (NodeId user : complete)
    handOn(user);
}

/// A transparent node whose dependences are all placed, and those of its users that thereby are as well.
void StreamPlanner::handOn(NodeId first) {
  llvm::SmallVector<NodeId, 16> complete = {first};
  while (!complete.empty()) {
    NodeId id = complete.pop_back_val();
    std::vector<Arrival> &own = arrivals[id];
    own.resize(streams.size());
    for (NodeId pred : preds[id]) {
      if (nodes[pred].role != StreamRole::Transparent) {
        const StreamPlacement &placed = plan.placements[pred];
        Arrival &arrival = own[indexOf(placed.stream)];
        arrival = {std::max(arrival.end, placed.end), std::max(arrival.last, pred)};
        continue;
      }
      for (auto [arrival, other] : llvm::zip_equal(own, arrivals[pred]))
        arrival = {std::max(arrival.end, other.end), std::max(arrival.last, other.last)};
    }
    for (NodeId user : succs[id])
      if (--waiting[user] == 0 && nodes[user].role == StreamRole::Transparent)
        complete.push_back(user);
  }
}

void StreamPlanner::collectTokens() {
  llvm::SmallVector<int32_t> row;
  for (NodeId id = 0; id < preds.size(); ++id) {
    row.clear();
    auto add = [&](NodeId other) {
      if (other != kNone && plan.placements[other].stream != plan.placements[id].stream &&
          !llvm::is_contained(row, other))
        row.push_back(other);
    };
    if (nodes[id].role != StreamRole::Transparent)
      for (NodeId pred : preds[id]) {
        if (nodes[pred].role != StreamRole::Transparent)
          add(pred);
        else
          for (const Arrival &arrival : arrivals[pred])
            add(arrival.last);
      }
    plan.tokens.append(row);
  }
}

MultiStreamPlan commsched::planStreams(const IndexLists &preds, llvm::ArrayRef<StreamNode> nodes,
                                       const MultiStreamOptions &options) {
  return StreamPlanner(preds, nodes, options).run();
}

Order commsched::orderByStart(const IndexLists &preds, const MultiStreamPlan &plan) {
  // Indexed by node: when it is to be issued. What nothing needs and no stream runs comes last.
  std::vector<Ns> turns(preds.size(), plan.predicted);
  for (NodeId id = preds.size() - 1; id >= 0; --id) {
    if (plan.placements[id].stream != kNone)
      turns[id] = plan.placements[id].start;
    for (NodeId pred : preds[id])
      if (plan.placements[pred].stream == kNone)
        turns[pred] = std::min(turns[pred], turns[id]);
  }
  Order order(preds.size());
  for (NodeId id = 0; id < preds.size(); ++id) {
    order[id] = id;
    for (NodeId pred : preds[id])
      turns[id] = std::max(turns[id], turns[pred]);
  }
  llvm::stable_sort(order, [&](NodeId a, NodeId b) { return turns[a] < turns[b]; });
  return order;
}
