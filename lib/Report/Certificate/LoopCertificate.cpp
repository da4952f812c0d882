//===- LoopCertificate.cpp - Entries of loops in a certificate --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CertificateParts.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <tuple>
#include <vector>

using namespace llvm;
using namespace commsched;

namespace {

/// What a node does to its lanes: whether it is a start, its cost, its issue cost, its lanes but the first one, and its
/// demand.
using NodeWork = std::tuple<bool, Ns, Ns, std::vector<LaneId>, Shares, Shares>;

NodeWork workOf(const Problem &problem, NodeId id) {
  const Node &node = problem.nodes[id];
  std::vector<LaneId> lanes;
  if (node.region != kNone)
    lanes.assign(problem.regions[node.region].lanes.begin(), problem.regions[node.region].lanes.end());
  else if (node.lane != kComputeLane)
    lanes.push_back(node.lane);
  Demand demand = problem.demandOf(node);
  return {node.kind == NodeKind::Start, node.cost, node.issue, std::move(lanes), demand.share, demand.weight};
}

bool doesNothing(const Node &node) { return node.cost == 0 && node.issue == 0; }

/// The starts of a body that may be merged, and the casts that a pack may do for them.
BitVector mergeableNodes(const Problem &body) {
  BitVector result(body.size());
  for (NodeId id = 0; id < body.size(); ++id) {
    if (!isMergeable(body, id))
      continue;
    result.set(id);
    if (NodeId cast = fusedCast(body, id); cast != kNone)
      result.set(cast);
  }
  return result;
}

/// The groups that share a lane, sorted. Its name has them in the order of the block.
SmallVector<StringRef> groupsOf(StringRef laneName) {
  SmallVector<StringRef> groups;
  laneName.split(groups, ", ");
  sort(groups);
  return groups;
}

/// Numbers the lanes of a proof as those of a block, whose operations may come in another order. Returns false if the
/// block has other lanes.
bool renumberLanes(IntervalProof &proof, const Problem &block) {
  Problem &work = proof.work;
  std::vector<LaneId> numberOf;
  for (const std::string &name : work.laneNames) {
    auto same = find_if(block.laneNames, [&](StringRef other) { return groupsOf(other) == groupsOf(name); });
    if (same == block.laneNames.end() || is_contained(numberOf, same - block.laneNames.begin()))
      return false;
    numberOf.push_back(same - block.laneNames.begin());
  }
  if (numberOf.size() != block.laneNames.size())
    return false;
  auto renumber = [&](LaneId &lane) { lane = lane == kNone ? kNone : numberOf[lane]; };
  for (RegionWork &region : work.regions) {
    for_each(region.lanes, renumber);
    sort(region.lanes);
  }
  for (Node &node : work.nodes)
    if (node.region != kNone && !work.regions[node.region].lanes.empty())
      node.lane = work.regions[node.region].lanes.front();
    else
      renumber(node.lane);
  for (MergeKey &key : work.mergeKeys)
    renumber(key.lane);
  renumber(proof.load.lane);
  work.laneNames = block.laneNames;
  return true;
}

} // namespace

std::optional<LoopMatch> commsched::matchLoop(const CertifiedLoop &loop, const Problem &block, Ns makespan) {
  LoopMatch match{loop.proof, {}};
  if (!renumberLanes(match.proof, block))
    return std::nullopt;
  const Problem &body = match.proof.work;
  std::map<NodeWork, int64_t> unmatched;
  for (NodeId id = 0; id < block.size(); ++id)
    if (!doesNothing(block.nodes[id]))
      ++unmatched[workOf(block, id)];
  BitVector mergeable = mergeableNodes(body);
  for (NodeId id = 0; id < body.size(); ++id) {
    if (doesNothing(body.nodes[id]))
      continue;
    auto same = unmatched.find(workOf(body, id));
    if (same != unmatched.end() && same->second > 0) {
      --same->second;
      continue;
    }
    if (!mergeable.test(id))
      return std::nullopt;
    match.merged.push_back(id);
  }
  bool hasMore = any_of(unmatched, [](const auto &entry) { return entry.second > 0; });
  if (match.merged.empty() ? hasMore : match.proof.bound() > makespan)
    return std::nullopt;
  return match;
}

/// Three numbers for each edge: from, to, and how many iterations later.
static void writeEdges(json::OStream &json, StringRef name, ArrayRef<LoopEdge> edges) {
  json.attributeArray(name, [&] {
    for (const LoopEdge &edge : edges)
      json.array([&] {
        json.value(edge.from);
        json.value(edge.to);
        json.value(edge.iterations);
      });
  });
}

void commsched::writeLoop(json::OStream &json, const LoopMatch &match) {
  const IntervalProof &proof = match.proof;
  json.attributeObject("problem", [&] { writeCertifiedProblem(json, proof.work, proof.load); });
  writeEdges(json, "edges", proof.edges);
  if (proof.load.lane != kNone)
    json.attribute("lane", proof.load.lane);
  else
    json.attribute("resource", static_cast<int64_t>(proof.load.resource));
  writeEdges(json, "cycle", proof.cycle);
  json.attributeArray("merged", [&] { for_each(match.merged, [&](NodeId node) { json.value(node); }); });
  json.attribute("load_ns", proof.load.makespan);
  json.attribute("recurrence_ns", proof.recurrence);
  json.attribute("bound_ns", proof.bound());
}
