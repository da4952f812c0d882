//===- SplitBound.cpp - A lower bound for every split of a problem ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 19 of Bounds.md. A node that may be split becomes a first piece, a middle and a last piece. The first
// pieces depend on first pieces only, and the last pieces on last pieces. So the existing bounds hold for every split.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/SplitBound.h"
#include "Bounds/Arguments/BucketShares.h"
#include "llvm/ADT/STLExtras.h"
#include <tuple>

using namespace commsched;

namespace {

class Relaxation {
public:
  Relaxation(const Problem &problem, llvm::ArrayRef<PartCosts> costs)
      : given(problem), costs(costs.begin(), costs.end()), first(problem.size(), kNone), last(problem.size(), kNone) {}

  Problem run() {
    result.laneNames = given.laneNames;
    result.buffers = given.buffers;
    result.busyUntil = given.busyUntil;
    result.joinsAtEnd = given.joinsAtEnd;
    result.mergeKeys = given.mergeKeys;
    result.regions = given.regions;
    result.copyCost = given.copyCost;
    splitWaits();
    chargeMembers();
    for (NodeId id = 0; id < given.size(); ++id)
      costs[id].splits ? addPieces(id) : addWhole(id);
    for (Buffer &buffer : result.buffers)
      if (buffer.def != kNone)
        buffer.def = first[buffer.def];
    for (RegionWork &region : result.regions)
      for (NodeId &start : region.starts)
        start = last[start];
    for (MergeMember &member : result.members)
      if (member.wait != kNone)
        member.wait = last[member.wait];
    for (MergeMember &member : result.members)
      if (member.cast != kNone)
        member.cast = last[member.cast];
    result.finalize();
    return std::move(result);
  }

private:
  /// The parts of a wait are those of its start.
  void splitWaits() {
    for (NodeId id = 0; id < given.size(); ++id)
      if (NodeId start = given.nodes[id].start; given.nodes[id].kind == NodeKind::Wait)
        costs[id] = {start != kNone && costs[start].splits && costs[id].splits, 0, 0, 0, {}};
  }

  /// If a start of a merge key may be split, all starts of the key get charges in place of costs, because a bucket may
  /// have parts, and a pack may do the work of any of their casts.
  void chargeMembers() {
    std::vector<bool> charged(given.mergeKeys.size(), false);
    for (NodeId id = 0; id < given.size(); ++id)
      if (int32_t key = given.nodes[id].mergeKey; key != kNone && costs[id].splits)
        charged[key] = true;
    chargeOf.assign(given.size(), {kNone, kNone});
    absorbed.assign(given.size(), false);
    for (auto [index, key] : llvm::enumerate(given.mergeKeys))
      if (charged[index])
        chargeKey(static_cast<int32_t>(index), key);
  }

  void chargeKey(int32_t index, const MergeKey &key) {
    std::vector<NodeId> starts;
    std::vector<Bytes> sizes;
    Bytes total = 0;
    for (NodeId id = 0; id < given.size(); ++id) {
      if (given.nodes[id].mergeKey != index)
        continue;
      starts.push_back(id);
      sizes.push_back(costs[id].splits ? std::min(costs[id].bytes, given.nodes[id].bytes) : given.nodes[id].bytes);
      total += given.nodes[id].bytes;
      if (NodeId cast = given.members[id].cast; cast != kNone) {
        absorbed[cast] = true;
        costs[cast].total = costs[cast].part = 0;
      }
    }
    std::vector<Ns> least = leastCharges(key.cost, sizes, total);
    for (auto [id, size, charge] : llvm::zip_equal(starts, sizes, least)) {
      const Node &node = given.nodes[id];
      // The rate of the smallest part holds for every part.
      Ns whole = size == 0 ? 0 : mulDiv(charge, node.bytes, size);
      Ns alone = costs[id].splits ? costs[id].total : node.cost;
      chargeOf[id] = {std::min(alone, whole), std::min(costs[id].splits ? costs[id].part : alone, charge)};
    }
  }

  Node copyOf(NodeId id) {
    Node node = given.nodes[id];
    node.demand = node.unit = node.event = kNone;
    node.records = false;
    node.stream = 0;
    if (chargeOf[id].first != kNone) {
      node.mergeKey = kNone;
      node.cost = chargeOf[id].first;
      node.issue = 0;
    }
    return node;
  }

  NodeId add(const Node &node, llvm::SmallVectorImpl<NodeId> &preds, NodeId origin) {
    llvm::sort(preds);
    preds.erase(llvm::unique(preds), preds.end());
    result.nodes.push_back(node);
    result.preds.append(preds);
    result.touches.append(origin == kNone ? llvm::ArrayRef<BufferId>() : given.touches[origin]);
    if (!given.members.empty()) {
      bool keeps = origin != kNone && node.mergeKey != kNone;
      result.members.push_back(keeps ? given.members[origin] : MergeMember());
    }
    return result.size() - 1;
  }

  void addWhole(NodeId id) {
    Node node = copyOf(id);
    if (absorbed[id])
      node.cost = 0;
    if (node.start != kNone)
      node.start = last[node.start];
    llvm::SmallVector<NodeId> preds;
    for (NodeId pred : given.preds[id])
      preds.push_back(last[pred]);
    first[id] = last[id] = add(node, preds, id);
  }

  void addPieces(NodeId id) {
    Node node = copyOf(id);
    Ns total = costs[id].total, part = costs[id].part;
    if (chargeOf[id].first != kNone)
      std::tie(total, part) = chargeOf[id];
    Ns piece = std::min(part, total / 2), middle = total - 2 * piece;
    NodeId start = node.start;
    llvm::SmallVector<NodeId> preds;
    for (NodeId pred : given.preds[id])
      preds.push_back(llvm::is_contained(costs[id].wholePreds, pred) ? last[pred] : first[pred]);
    node.mergeKey = kNone;
    node.cost = node.kind == NodeKind::Wait ? 0 : piece;
    node.start = start == kNone ? kNone : first[start];
    first[id] = add(node, preds, id);
    NodeId before = first[id];
    node.issue = 0;
    node.workspace = 0;
    if (node.kind != NodeKind::Wait && middle > 0) {
      preds.assign(1, before);
      node.cost = middle;
      before = add(node, preds, kNone);
    }
    preds.assign(1, before);
    for (NodeId pred : given.preds[id])
      preds.push_back(last[pred]);
    node.cost = node.kind == NodeKind::Wait ? 0 : piece;
    node.start = start == kNone ? kNone : last[start];
    last[id] = add(node, preds, kNone);
  }

  const Problem &given;
  std::vector<PartCosts> costs;
  /// Indexed by given node: its first and its last piece in the result.
  std::vector<NodeId> first, last;
  /// Indexed by given node: charges of the whole and of a part, kNone if it keeps its costs.
  std::vector<std::pair<Ns, Ns>> chargeOf;
  /// Indexed by given node: a pack may do the work of this cast.
  std::vector<bool> absorbed;
  Problem result;
};

} // namespace

Problem commsched::relaxSplits(const Problem &problem, llvm::ArrayRef<PartCosts> costs) {
  return Relaxation(problem, costs).run();
}

LowerBound commsched::splitLowerBound(const Problem &problem, llvm::ArrayRef<PartCosts> costs) {
  return jointLowerBound(relaxSplits(problem, costs));
}
