//===- SecondCosts.cpp - A loaded block with somebody else's costs ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/SecondCosts.h"
#include "CommSched/Analysis/Locations.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// The time of an operation by `peer`, ns; none if it knows none of its names.
static std::optional<Ns> timeByPeer(Operation *op, const PeerCosts &peer) {
  std::optional<Ns> time;
  for (const std::string &name : describeLocation(op->getLoc()))
    if (auto known = peer.times.find(name); known != peer.times.end())
      time = std::min(time.value_or(0) + known->second, kMaxNs);
  return time;
}

/// Whether `peer` has a curve for collectives like `start`.
static bool hasCurve(CollectiveOpInterface start, ElementType element, const PeerCosts &peer) {
  return llvm::any_of(peer.curves, [&](const CollectiveTable &curve) {
    return curve.kind == start.getCollectiveKind() && curve.group == start.getGroupAttr().getValue() &&
           (!curve.element || *curve.element == element);
  });
}

Problem commsched::withPeerCosts(const LoadedBlock &loaded, const PeerCosts &peer, const CostModel &model) {
  Problem problem = loaded.problem;
  problem.variantNames.clear();
  problem.startVariants.clear();
  MachineModel machine = model.machine();
  machine.collectives = peer.curves;
  const CostModel byPeer(std::move(machine));
  const OperationCosts costs(byPeer);
  // Indexed by merge key: whether it has the other costs.
  std::vector<bool> isPriced(problem.mergeKeys.size());
  for (NodeId id = 0; id < problem.size(); ++id) {
    Node &node = problem.nodes[id];
    node.variants = kNone;
    if (node.kind == NodeKind::Wait)
      continue;
    node.cost = timeByPeer(loaded.nodes[id], peer).value_or(node.cost);
    if (node.mergeKey == kNone || isPriced[node.mergeKey])
      continue;
    isPriced[node.mergeKey] = true;
    MergeKey &key = problem.mergeKeys[node.mergeKey];
    key.variants.clear();
    auto start = cast<CollectiveOpInterface>(loaded.nodes[id]);
    if (!hasCurve(start, costs.elementOf(start), peer))
      continue;
    std::shared_ptr<const CollectiveCurve> curve = costs.curveOf(start);
    key.cost = [curve](Bytes bytes) { return (*curve)(bytes); };
    key.groupCost = [curve](Bytes bytes, int32_t members) { return (*curve)(bytes, members); };
  }
  return problem;
}

PeerAnswer commsched::peerAnswerOf(const LoadedBlock &loaded, const NamedPeerAnswer &named) {
  PeerAnswer answer{named.times, named.peak};
  llvm::StringMap<NodeId> byName;
  if (!named.names.empty())
    for (NodeId id = 0; id < loaded.problem.size(); ++id)
      for (const std::string &name : describeLocation(loaded.nodes[id]->getLoc()))
        byName.try_emplace(name, id);
  std::vector<bool> isPlaced(loaded.problem.size());
  std::map<int64_t, std::vector<NodeId>> buckets;
  for (auto [name, bucket] : llvm::zip_equal(named.names, named.buckets)) {
    auto found = byName.find(name);
    if (found == byName.end() || isPlaced[found->second])
      continue;
    isPlaced[found->second] = true;
    answer.order.push_back(found->second);
    if (bucket >= 0 && loaded.problem.nodes[found->second].kind == NodeKind::Start)
      buckets[bucket].push_back(found->second);
  }
  for (auto &[number, members] : buckets)
    answer.buckets.push_back(std::move(members));
  return answer;
}
