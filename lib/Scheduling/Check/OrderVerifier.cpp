//===- OrderVerifier.cpp - Independent checker of orders --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Deliberately in another style than the models: places first, then intervals as differences, then one prefix sum.
// Nothing of Memory.h, Timeline.h or a solver may be used here.
//
//===------------------------------------------------------------------------------------------===//

#include "OrderVerifier.h"
#include "llvm/ADT/DenseMap.h"
#include <algorithm>

using namespace commsched;
using std::to_string;

namespace {

/// One check per member; each returns the first violation.
class Verifier {
public:
  Verifier(const Problem &problem, llvm::ArrayRef<NodeId> order) : problem(problem), order(order) {}

  std::string permutation() {
    if (order.size() != problem.nodes.size())
      return "the order has " + to_string(order.size()) + " nodes, the block " + to_string(problem.nodes.size());
    place.assign(problem.nodes.size(), kNone);
    for (size_t at = 0; at < order.size(); ++at) {
      NodeId id = order[at];
      if (id < 0 || static_cast<size_t>(id) >= place.size())
        return "position " + to_string(at) + " names node " + to_string(id) + ", which does not exist";
      if (place[id] != kNone)
        return "node " + to_string(id) + " stands at positions " + to_string(place[id]) + " and " + to_string(at);
      place[id] = static_cast<int32_t>(at);
    }
    return {};
  }

  std::string dependences() const {
    for (NodeId id = 0; id < problem.size(); ++id) {
      for (NodeId pred : problem.preds[id])
        if (place[pred] > place[id])
          return before(id, pred, "depends on it");
      if (problem.nodes[id].start != kNone && place[problem.nodes[id].start] > place[id])
        return before(id, problem.nodes[id].start, "waits for it");
      if (int32_t region = problem.nodes[id].region; region != kNone)
        for (NodeId start : problem.regions[region].starts)
          if (place[start] > place[id])
            return before(id, start, "waits for it in a region");
      for (BufferId buffer : problem.touches[id])
        if (NodeId def = problem.buffers[buffer].def; def != kNone && place[def] > place[id])
          return before(id, def, "uses buffer " + to_string(buffer) + ", which that node defines");
    }
    return {};
  }

  std::string peak(Bytes limit) const {
    if (limit >= kUnlimited || order.empty())
      return {};
    const int32_t beyond = static_cast<int32_t>(order.size());
    std::vector<int32_t> first(problem.buffers.size(), beyond), last(problem.buffers.size(), kNone);
    for (NodeId id = 0; id < problem.size(); ++id)
      for (BufferId buffer : problem.touches[id]) {
        first[buffer] = std::min(first[buffer], place[id]);
        last[buffer] = std::max(last[buffer], place[id]);
      }
    std::vector<Bytes> change(order.size() + 1, 0);
    for (size_t index = 0; index < problem.buffers.size(); ++index) {
      const Buffer &buffer = problem.buffers[index];
      if (last[index] == kNone)
        continue;
      change[buffer.def == kNone ? 0 : first[index]] += buffer.bytes;
      change[buffer.liveOut ? beyond : last[index] + 1] -= buffer.bytes;
    }
    Bytes live = 0;
    for (int32_t at = 0; at < beyond; ++at) {
      live += change[at];
      Bytes here = live + problem.nodes[order[at]].workspace;
      if (here > limit)
        return "peak memory: " + to_string(here) + " bytes are live at position " + to_string(at) + " (node " +
               to_string(order[at]) + "), the limit is " + to_string(limit);
    }
    return {};
  }

  std::string collectives(CollectiveOrder mode) const {
    if (mode == CollectiveOrder::Free)
      return {};
    // The last collective of each class in the order; classes are groups, or one for all.
    llvm::DenseMap<int64_t, NodeId> latest;
    std::string wrong;
    auto follows = [&](int64_t group, NodeId id) {
      auto [entry, isFirst] = latest.try_emplace(group, id);
      if (!isFirst && entry->second > id && wrong.empty())
        wrong = before(entry->second, id, "both are collectives and the order mode is " + stringify(mode).str());
      entry->second = id;
    };
    for (NodeId id : order) {
      const Node &node = problem.nodes[id];
      if (node.kind != NodeKind::Start && node.kind != NodeKind::Hybrid)
        continue;
      if (mode == CollectiveOrder::Program)
        follows(0, id);
      else if (node.region != kNone)
        for (int32_t group : problem.regions[node.region].groups)
          follows(2 * int64_t(group) + 1, id);
      else
        follows(node.group != kNone ? 2 * int64_t(node.group) + 1 : 2 * int64_t(node.lane), id);
    }
    return wrong;
  }

  /// Sends and receives of one peer are told apart by their order alone, whatever the mode is.
  std::string messages() const {
    NodeId latest = kNone;
    for (NodeId id : order) {
      const Node &node = problem.nodes[id];
      bool sends = node.kind == NodeKind::Start && isPointToPoint(node.collective);
      if (!sends && (node.region == kNone || !problem.regions[node.region].pointToPoint))
        continue;
      if (id < latest)
        return before(latest, id, "both send or receive");
      latest = id;
    }
    return {};
  }

  std::string pinned() const {
    NodeId latest = kNone;
    for (NodeId id : order)
      if (problem.nodes[id].pinned) {
        if (id < latest)
          return before(latest, id, "both are pinned");
        latest = id;
      }
    return {};
  }

  std::string units() const {
    for (NodeId id = 0; id + 1 < problem.size(); ++id)
      if (int32_t unit = problem.nodes[id].unit;
          unit != kNone && problem.nodes[id + 1].unit == unit && place[id + 1] != place[id] + 1)
        return "nodes " + to_string(id) + " and " + to_string(id + 1) + " of unit " + to_string(unit) +
               " stand at positions " + to_string(place[id]) + " and " + to_string(place[id + 1]) +
               ", not next to each other";
    return {};
  }

private:
  std::string before(NodeId early, NodeId late, const std::string &why) const {
    return "node " + to_string(early) + " at position " + to_string(place[early]) + " comes before node " +
           to_string(late) + " at position " + to_string(place[late]) + ": " + why;
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> order;
  /// By node.
  std::vector<int32_t> place;
};

} // namespace

std::string commsched::verifyOrder(const Problem &problem, llvm::ArrayRef<NodeId> order,
                                   const ScheduleRequirements &requirements) {
  Verifier verifier(problem, order);
  if (std::string wrong = verifier.permutation(); !wrong.empty())
    return wrong;
  if (std::string wrong = verifier.dependences(); !wrong.empty())
    return wrong;
  if (std::string wrong = verifier.pinned(); !wrong.empty())
    return wrong;
  if (std::string wrong = verifier.units(); !wrong.empty())
    return wrong;
  if (std::string wrong = verifier.messages(); !wrong.empty())
    return wrong;
  if (std::string wrong = verifier.collectives(requirements.collectiveOrder); !wrong.empty())
    return wrong;
  return verifier.peak(requirements.peakLimit);
}
