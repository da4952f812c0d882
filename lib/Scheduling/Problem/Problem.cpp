//===- Problem.cpp - One block as dense integer arrays ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Derives the transposed relations, and validates the arrays that the loader, tests or an embedder have filled.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include <cassert>
#include <numeric>

using namespace commsched;

IndexLists IndexLists::transposed(int32_t columns) const {
  IndexLists result;
  result.offsets.assign(columns + 1, 0);
  for (int32_t value : values)
    ++result.offsets[value + 1];
  std::partial_sum(result.offsets.begin(), result.offsets.end(), result.offsets.begin());
  result.values.resize(values.size());
  std::vector<int32_t> cursor(result.offsets.begin(), result.offsets.end() - 1);
  for (int32_t row = 0; row < size(); ++row)
    for (int32_t value : (*this)[row])
      result.values[cursor[value]++] = row;
  return result;
}

void Problem::setDemand(Node &node, const Demand &demand) {
  node.demand = kNone;
  if (!demand.any())
    return;
  if (demands.empty() || demands.back() != demand)
    demands.push_back(demand);
  node.demand = static_cast<int32_t>(demands.size()) - 1;
}

void Problem::dropIdleDemands() {
  // By resource: the only lane that uses it so far; kNone if there is none.
  std::array<LaneId, kNumResources> users;
  users.fill(kNone);
  for (const Node &node : nodes) {
    const Demand &demand = demandOf(node);
    const LaneId lane = node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid ? node.lane : kComputeLane;
    for (unsigned resource = 0; resource < kNumResources; ++resource) {
      if (demand.share[resource] == 0)
        continue;
      if (users[resource] != kNone && users[resource] != lane)
        return;
      users[resource] = lane;
    }
  }
  demands.clear();
  copyDemand = {};
  for (Node &node : nodes)
    node.demand = kNone;
}

void Problem::finalize() {
  succs = preds.transposed(size());
  users = touches.transposed(static_cast<int32_t>(buffers.size()));
}

Order commsched::identityOrder(const Problem &problem) {
  Order order(problem.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Problem commsched::inOrder(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  Problem result = problem;
  // Indexed by node: its place.
  std::vector<NodeId> place(problem.size());
  for (auto [at, node] : llvm::enumerate(order))
    place[node] = static_cast<NodeId>(at);
  auto move = [&](NodeId &node) { node = node == kNone ? kNone : place[node]; };
  result.preds = result.touches = IndexLists();
  result.preds.reserve(problem.size(), problem.preds.numValues());
  result.touches.reserve(problem.size(), problem.touches.numValues());
  llvm::SmallVector<NodeId> preds;
  for (auto [at, node] : llvm::enumerate(order)) {
    Node &moved = result.nodes[at] = problem.nodes[node];
    move(moved.start);
    move(moved.event);
    preds.assign(problem.preds[node].begin(), problem.preds[node].end());
    llvm::for_each(preds, move);
    llvm::sort(preds);
    result.preds.append(preds);
    result.touches.append(problem.touches[node]);
    if (!problem.members.empty()) {
      MergeMember &member = result.members[at] = problem.members[node];
      move(member.wait);
      move(member.cast);
    }
  }
  for (Buffer &buffer : result.buffers)
    move(buffer.def);
  for (RegionWork &region : result.regions) {
    llvm::for_each(region.starts, move);
    llvm::sort(region.starts);
  }
  result.finalize();
  return result;
}

namespace {

/// Checks what a node does because of its regions.
std::string checkRegion(const Problem &problem, NodeId id) {
  const Node &node = problem.nodes[id];
  if (node.region == kNone)
    return {};
  if (node.region < 0 || node.region >= static_cast<int32_t>(problem.regions.size()))
    return "region out of range";
  if (node.kind != NodeKind::Compute && node.kind != NodeKind::Hybrid)
    return "a start or wait has a region";
  const RegionWork &work = problem.regions[node.region];
  if (work.lanes.empty() != (node.kind == NodeKind::Compute) || (!work.lanes.empty() && work.lanes[0] != node.lane))
    return "the lanes of its region do not begin with its lane";
  if (llvm::any_of(work.lanes, [&](LaneId lane) { return lane <= kComputeLane || lane >= problem.numLanes(); }))
    return "a lane of its region is out of range";
  if (llvm::any_of(work.starts, [&](NodeId start) {
        return start < 0 || start >= id || problem.nodes[start].kind != NodeKind::Start;
      }))
    return "waits for no earlier start in its region";
  return {};
}

/// Whether the variants of starts and buckets name variants, demands and times.
std::string checkVariants(const Problem &problem) {
  auto isNamed = [&](int32_t name) { return name >= 0 && name < static_cast<int32_t>(problem.variantNames.size()); };
  for (const std::vector<StartVariant> &list : problem.startVariants)
    for (const StartVariant &variant : list)
      if (!isNamed(variant.name) || variant.cost < 0 || variant.demand < kNone ||
          variant.demand >= static_cast<int32_t>(problem.demands.size()))
        return "a variant is out of range";
  for (const MergeKey &key : problem.mergeKeys)
    for (const KeyVariant &variant : key.variants)
      if (!isNamed(variant.name) || !variant.cost)
        return "a variant of a merge key is out of range";
  return {};
}

/// Whether solvers can add up all times and all sizes.
std::string checkSums(const Problem &problem) {
  Wide time = 0, bytes = 0, traffic = 0;
  Ns ready = 0;
  for (const Node &node : problem.nodes) {
    Ns cost = node.cost;
    if (node.variants != kNone)
      for (const StartVariant &variant : problem.startVariants[node.variants])
        cost = std::max(cost, variant.cost);
    time += static_cast<Wide>(cost) + node.issue;
    ready = std::max(ready, node.ready);
    bytes += node.workspace;
    traffic += node.bytes;
  }
  for (const Buffer &buffer : problem.buffers)
    bytes += buffer.bytes;
  for (Ns busy : problem.busyUntil)
    ready = std::max(ready, busy);
  if (time + ready > kMaxTotalNs)
    return "the sum of all times is too large";
  if (bytes > kMaxTotalBytes || traffic > kMaxTotalBytes)
    return "the sum of all sizes is too large";
  return {};
}

/// Checks one node; the caller checks what concerns several.
std::string checkNode(const Problem &problem, NodeId id) {
  const Node &node = problem.nodes[id];
  std::string where = "node " + std::to_string(id) + ": ";
  if (node.cost < 0 || node.issue < 0 || node.ready < 0 || node.workspace < 0 || node.bytes < 0)
    return where + "negative cost or size";
  if (node.lane < 0 || node.lane >= problem.numLanes())
    return where + "lane out of range";
  if (node.kind == NodeKind::Wait && node.cost != 0)
    return where + "a wait has no cost of its own";
  bool communicates = node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid;
  if (communicates != (node.lane != kComputeLane))
    return where + "a start or hybrid has a communication lane, any other node the compute lane";
  if (node.start != kNone && (node.kind != NodeKind::Wait || node.start < 0 || node.start >= id ||
                              problem.nodes[node.start].kind != NodeKind::Start))
    return where + "waits for no earlier start";
  if (node.mergeKey != kNone && (node.kind != NodeKind::Start || node.mergeKey < 0 ||
                                 node.mergeKey >= static_cast<int32_t>(problem.mergeKeys.size())))
    return where + "merge key out of range";
  if (node.stream < 0 || node.stream >= std::max<int32_t>(static_cast<int32_t>(problem.streams.size()), 1))
    return where + "stream out of range";
  if (node.event != kNone && (node.event < 0 || node.event >= id || !problem.nodes[node.event].records))
    return where + "waits for no earlier event";
  if (node.demand != kNone && (node.demand < 0 || node.demand >= static_cast<int32_t>(problem.demands.size())))
    return where + "demand out of range";
  if (node.variants != kNone && (node.kind != NodeKind::Start || node.variants < 0 ||
                                 node.variants >= static_cast<int32_t>(problem.startVariants.size())))
    return where + "variants out of range";
  if (std::string wrong = checkRegion(problem, id); !wrong.empty())
    return where + wrong;
  for (NodeId pred : problem.preds[id])
    if (pred < 0 || pred >= id)
      return where + "an edge points backward";
  if (node.start != kNone && !llvm::is_contained(problem.preds[id], node.start))
    return where + "no edge from the start to its wait";
  for (BufferId buffer : problem.touches[id])
    if (buffer < 0 || buffer >= static_cast<BufferId>(problem.buffers.size()))
      return where + "touches a buffer out of range";
  llvm::SmallVector<int32_t, 16> touched(problem.touches[id].begin(), problem.touches[id].end());
  llvm::sort(touched);
  if (std::adjacent_find(touched.begin(), touched.end()) != touched.end())
    return where + "touches a buffer twice";
  return {};
}

} // namespace

std::string Problem::validate() const {
  if (laneNames.empty())
    return "no compute lane";
  if (preds.size() != size() || touches.size() != size() || succs.size() != size() ||
      users.size() != static_cast<int32_t>(buffers.size()))
    return "edge or touch lists of the wrong size; finalize() not called?";
  for (NodeId id = 0; id < size(); ++id)
    if (std::string problem = checkNode(*this, id); !problem.empty())
      return problem;
  for (auto [index, buffer] : llvm::enumerate(buffers)) {
    std::string where = "buffer " + std::to_string(index) + ": ";
    if (buffer.bytes < 0)
      return where + "negative size";
    llvm::ArrayRef<int32_t> touching = users[static_cast<int32_t>(index)];
    if (buffer.def != kNone && (touching.empty() || touching.front() != buffer.def))
      return where + "touched before its definition, or not by it";
  }
  llvm::DenseSet<int32_t> ended;
  for (NodeId id = 1; id < size(); ++id) {
    if (nodes[id].unit == nodes[id - 1].unit)
      continue;
    ended.insert(nodes[id - 1].unit);
    if (nodes[id].unit != kNone && ended.contains(nodes[id].unit))
      return "node " + std::to_string(id) + ": the nodes of its unit are not consecutive";
  }
  if (busyUntil.size() > laneNames.size() || llvm::any_of(busyUntil, [](Ns busy) { return busy < 0; }))
    return "lanes that are busy from the beginning are out of range";
  if (std::string wrong = checkSums(*this); !wrong.empty())
    return wrong;
  auto isValid = [](const Demand &demand) {
    return llvm::all_of(demand.share, [](int32_t part) { return part >= 0 && part <= kWhole; }) &&
           llvm::all_of(demand.weight, [](int32_t weight) { return weight >= 1 && weight <= kMaxWeight; });
  };
  if (!llvm::all_of(demands, isValid) || !isValid(copyDemand))
    return "a demand is out of range";
  if (std::string wrong = checkVariants(*this); !wrong.empty())
    return wrong;
  if (!mergeKeys.empty() && members.size() != nodes.size())
    return "merge keys without members";
  return {};
}
