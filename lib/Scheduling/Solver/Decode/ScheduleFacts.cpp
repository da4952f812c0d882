//===- ScheduleFacts.cpp - Facts of a problem that no decode changes --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each member function computes one group of facts in one or two sweeps over the nodes.
//
//===------------------------------------------------------------------------------------------===//

#include "ScheduleFacts.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// A feeder takes at most 1/kLightFeeder of the time of its start: casts do, products do not.
static constexpr int64_t kLightFeeder = 4;

ScheduleFacts::ScheduleFacts(const Problem &problem, bool bucketing)
    : problem(problem), bucketing(bucketing && !problem.mergeKeys.empty()) {
  mergeable.assign(problem.size(), false);
  fused.assign(problem.size(), kNone);
  ownUnpack.assign(problem.size(), 0);
  freeToRun.assign(problem.size(), false);
  keyBytes.assign(problem.mergeKeys.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node) {
    const Node &info = problem.nodes[node];
    if (info.kind == NodeKind::Start && this->bucketing && isMergeable(problem, node)) {
      mergeable[node] = true;
      fused[node] = fusedCast(problem, node);
      keyBytes[info.mergeKey] += info.bytes;
      Bytes gathered = problem.members[node].outputBytes;
      if (info.collective == CollectiveKind::AllGather && problem.copyCost)
        ownUnpack[node] = problem.copyCost(gathered, gathered);
    }
    freeToRun[node] =
        info.kind == NodeKind::Compute && info.cost == 0 && info.workspace == 0 && info.region == kNone &&
        llvm::none_of(problem.touches[node], [&](BufferId buffer) { return problem.buffers[buffer].def == node; });
  }
  findIssueOrder();
  findFeeders();
  findExclusiveProducers();
  findStages();
  findPaths();
  measureLanes();
}

void ScheduleFacts::findFeeders() {
  NodeId size = problem.size();
  // Indexed by node: whether it depends on arguments alone, directly or through other such computes.
  std::vector<bool> argumentFed(size, false);
  for (NodeId node = 0; node < size; ++node)
    argumentFed[node] = problem.nodes[node].kind == NodeKind::Compute && problem.nodes[node].region == kNone &&
                        llvm::all_of(problem.preds[node], [&](NodeId pred) { return argumentFed[pred]; });

  leader = identityOrder(problem);
  for (NodeId node = size - 1; node >= 0; --node) {
    llvm::ArrayRef<NodeId> users = problem.succs[node];
    if (users.empty() || problem.nodes[node].kind != NodeKind::Compute || problem.nodes[node].pinned ||
        problem.nodes[node].region != kNone)
      continue;
    NodeId start = leader[users.front()];
    bool feedsOnlyIt = problem.nodes[start].kind == NodeKind::Start &&
                       llvm::all_of(users, [&](NodeId user) { return leader[user] == start; });
    // A weight gradient of the last layer is fed by arguments too, but it is work to be placed on its own.
    bool isLight = problem.nodes[node].cost <= problem.nodes[start].cost / kLightFeeder;
    if (feedsOnlyIt && isLight && (argumentFed[node] || fused[start] == node))
      leader[node] = start;
  }

  enteringEdges.assign(size, 0);
  std::vector<std::vector<NodeId>> lists(size);
  for (NodeId node = 0; node < size; ++node) {
    if (leader[node] != node)
      lists[leader[node]].push_back(node);
    enteringEdges[leader[node]] += static_cast<int32_t>(
        llvm::count_if(problem.preds[node], [&](NodeId pred) { return leader[pred] != leader[node]; }));
  }
  feeders.reserve(size, 0);
  for (const std::vector<NodeId> &list : lists)
    feeders.append(list);
}

void ScheduleFacts::findIssueOrder() {
  nextIssue.assign(problem.size(), kNone);
  issuesBefore.assign(problem.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node)
    if (problem.nodes[node].kind == NodeKind::Start)
      for (NodeId pred : problem.preds[node])
        if (problem.nodes[pred].kind == NodeKind::Start) {
          ++issuesBefore[node];
          nextIssue[pred] = nextIssue[pred] == kNone ? node : nextIssue[pred];
        }
}

void ScheduleFacts::findExclusiveProducers() {
  exclusiveStart.assign(problem.size(), kNone);
  for (NodeId node = problem.size() - 1; node >= 0; --node) {
    llvm::ArrayRef<NodeId> users = problem.succs[node];
    if (users.empty() || problem.nodes[node].kind != NodeKind::Compute)
      continue;
    auto startOf = [&](NodeId user) {
      return problem.nodes[user].kind == NodeKind::Start ? user : exclusiveStart[user];
    };
    NodeId first = startOf(users.front());
    if (llvm::all_of(users, [&](NodeId user) { return startOf(user) == first; }))
      exclusiveStart[node] = first;
  }
  std::vector<Ns> work(problem.size(), 0);
  gainOfDeferral.assign(problem.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node)
    if (exclusiveStart[node] != kNone)
      work[exclusiveStart[node]] += problem.nodes[node].cost;
  std::vector<Ns> costOfAll;
  for (auto [key, bytes] : llvm::zip_equal(problem.mergeKeys, keyBytes))
    costOfAll.push_back(bytes > 0 ? key.cost(bytes) : 0);
  for (NodeId node = 0; node < problem.size(); ++node) {
    const Node &info = problem.nodes[node];
    Ns cost = info.cost;
    if (mergeable[node] && keyBytes[info.mergeKey] > 0)
      cost = std::min(cost, mulDiv(costOfAll[info.mergeKey], info.bytes, keyBytes[info.mergeKey]));
    if (info.kind == NodeKind::Start && work[node] > 0)
      gainOfDeferral[node] = cost > 0 ? mulDivUp(work[node], kPermille, cost) : kLargestAmount;
  }
}

void ScheduleFacts::findStages() {
  const NodeId size = problem.size();
  std::vector<bool> isResult(size, false);
  for (NodeId node = 0; node < size; ++node) {
    const NodeKind kind = problem.nodes[node].kind;
    llvm::ArrayRef<NodeId> inputs = problem.preds[node];
    isResult[node] = kind == NodeKind::Wait || (kind == NodeKind::Compute && !inputs.empty() &&
                                                llvm::all_of(inputs, [&](NodeId input) { return isResult[input]; }));
  }
  isStage.assign(size, false);
  isNeeded.assign(size, false);
  for (NodeId node = size - 1; node >= 0; --node) {
    llvm::ArrayRef<NodeId> users = problem.succs[node];
    const bool isBetween = isResult[node] && !users.empty() && llvm::all_of(users, [&](NodeId user) {
                             return problem.nodes[user].kind == NodeKind::Start || isStage[user];
                           });
    isStage[node] = isBetween && problem.nodes[node].kind == NodeKind::Compute;
    isNeeded[node] = llvm::any_of(users, [&](NodeId user) {
      const Node &info = problem.nodes[user];
      const bool computes = info.kind == NodeKind::Compute || info.kind == NodeKind::Hybrid;
      return isNeeded[user] || (computes && info.cost > 0 && !isStage[user]);
    });
    hasDeferredStages = hasDeferredStages || (isBetween && !isNeeded[node]);
  }
}

void ScheduleFacts::findPaths() {
  tail.assign(problem.size(), 0);
  for (NodeId node = problem.size() - 1; node >= 0; --node) {
    for (NodeId user : problem.succs[node])
      tail[node] = std::max(tail[node], tail[user] + problem.nodes[user].cost);
    criticalPath = std::max(criticalPath, tail[node] + problem.nodes[node].cost);
  }
}

void ScheduleFacts::measureLanes() {
  load.assign(problem.numLanes(), 0);
  for (const Node &node : problem.nodes) {
    load[node.lane] += node.cost;
    if (node.kind == NodeKind::Start)
      load[kComputeLane] += node.issue;
    if (node.kind == NodeKind::Hybrid)
      load[kComputeLane] += node.cost;
    if (node.kind == NodeKind::Hybrid && node.region != kNone)
      for (LaneId lane : llvm::ArrayRef<LaneId>(problem.regions[node.region].lanes).drop_front())
        load[lane] += node.cost;
  }
  auto busiest = std::max_element(load.begin() + 1, load.end());
  if (load.size() < 2 || *busiest == 0)
    return;
  busiestLoad = *busiest;
  std::vector<Ns> costs;
  for (const Node &node : problem.nodes)
    if (node.kind == NodeKind::Start && node.lane == busiest - load.begin())
      costs.push_back(node.cost);
  llvm::sort(costs);
  Ns sum = 0;
  for (Ns cost : costs) {
    medianCollective = cost;
    sum += cost;
    if (sum * 2 >= busiestLoad)
      return;
  }
}

Reference::Reference(const ScheduleFacts &facts, Order given) : order(std::move(given)) {
  const Problem &problem = facts.problem;
  NodeId size = problem.size();
  position.resize(size);
  computeBefore.assign(size + 1, 0);
  for (int32_t at = 0; at < size; ++at) {
    const Node &node = problem.nodes[order[at]];
    bool computes = node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid;
    position[order[at]] = at;
    computeBefore[at + 1] = computeBefore[at] + (computes ? node.cost : 0);
  }
  need.assign(size, kNever);
  terminal.assign(size, false);
  // The first user of a gather counts even if nothing follows it: the block's last matmul has no user.
  std::vector<int32_t> firstUser(size, kNever);
  for (NodeId node : llvm::reverse(order)) {
    for (NodeId user : problem.succs[node]) {
      const Node &info = problem.nodes[user];
      bool passesOn = info.kind == NodeKind::Wait || info.kind == NodeKind::Start ||
                      (info.kind == NodeKind::Compute && (info.cost == 0 || facts.isStage[user]));
      bool isLast = need[user] == kNever && problem.succs[user].empty();
      need[node] = std::min(need[node], passesOn ? need[user] : isLast ? kNever : position[user]);
      firstUser[node] = std::min(firstUser[node], passesOn ? firstUser[user] : position[user]);
    }
    const Node &info = problem.nodes[node];
    if (info.kind != NodeKind::Start || need[node] != kNever)
      continue;
    if (info.collective == CollectiveKind::AllGather)
      need[node] = firstUser[node];
    terminal[node] = need[node] == kNever;
  }
  peak = peakOf(problem, order);
  makespan = makespanOf(problem, order);
}
