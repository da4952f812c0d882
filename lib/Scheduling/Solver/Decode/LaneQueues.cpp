//===- LaneQueues.cpp - Ready starts of the communication lanes -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Sets due times. A start is due when the first compute that needs its result begins in the reference, or earlier if a
// long path depends on it. A terminal start is due at its own position, plus the delay with which it yields to others.
//
//===------------------------------------------------------------------------------------------===//

#include "LaneQueues.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

void LaneQueues::reset(const Reference &reference, const Policy &policy) {
  const Problem &problem = facts.problem;
  Ns total = reference.computeBefore.back();
  Ns yielding = mulDiv(policy.terminalDelay, facts.medianCollective, kPermille);
  due.assign(problem.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node) {
    if (problem.nodes[node].kind != NodeKind::Start)
      continue;
    due[node] = reference.terminal[node]
                    ? reference.computeBefore[reference.position[node]] + yielding
                    : std::min(total - facts.tail[node],
                               reference.computeBefore[std::min(reference.need[node], problem.size())]);
  }
  assignQueues();
  rank.assign(problem.size(), kNone);
  for (LaneQueue &queue : queues) {
    llvm::sort(queue.byRank, [&](NodeId a, NodeId b) { return due[a] != due[b] ? due[a] < due[b] : a < b; });
    queue.ready.reset(static_cast<int32_t>(queue.byRank.size()));
    for (auto [index, node] : llvm::enumerate(queue.byRank))
      rank[node] = static_cast<int32_t>(index);
  }
}

void LaneQueues::assignQueues() {
  const Problem &problem = facts.problem;
  int32_t numKeys = static_cast<int32_t>(problem.mergeKeys.size());
  queues.resize(numKeys + problem.numLanes());
  queuesOfLane.assign(problem.numLanes(), {});
  readyStarts.assign(problem.numLanes(), 0);
  for (int32_t index = 0; index < static_cast<int32_t>(queues.size()); ++index) {
    LaneQueue &queue = queues[index];
    queue.merges = index < numKeys;
    queue.lane = queue.merges ? problem.mergeKeys[index].lane : index - numKeys;
    queue.byRank.clear();
    queuesOfLane[queue.lane].push_back(index);
  }
  queueOf.assign(problem.size(), kNone);
  for (NodeId node = 0; node < problem.size(); ++node) {
    const Node &info = problem.nodes[node];
    if (info.kind != NodeKind::Start)
      continue;
    queueOf[node] = facts.mergeable[node] ? info.mergeKey : numKeys + info.lane;
    queues[queueOf[node]].byRank.push_back(node);
  }
}
