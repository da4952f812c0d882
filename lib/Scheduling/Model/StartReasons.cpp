//===- StartReasons.cpp - Why compute waits for a collective ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/StartReasons.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include <utility>

using namespace commsched;

StartReasons::StartReasons(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown)
    : problem(problem), line(simulate(problem, order, slowDown)), live(memoryProfile(problem, order).live),
      positions(problem.size()), exposed(problem.size(), 0), previous(problem.size(), kNone) {
  std::vector<NodeId> lastOnLane(problem.numLanes(), kNone);
  Ns compute = 0;
  for (int32_t at = 0; at < static_cast<int32_t>(order.size()); ++at) {
    const Node &node = problem.nodes[order[at]];
    positions[order[at]] = at;
    arrival.push_back(compute);
    compute = node.kind == NodeKind::Start ? compute + node.issue : line.end[order[at]];
    if (NodeId start = awaitedStart(problem, line, order[at]); start != kNone)
      exposed[start] += line.exposed[order[at]];
    if (node.lane != kComputeLane)
      previous[order[at]] = std::exchange(lastOnLane[node.lane], order[at]);
  }
  // What an iteration of a loop waits for at its end is what ends last.
  if (line.exposedAtEnd > 0)
    exposed[std::max_element(line.end.begin(), line.end.end()) - line.end.begin()] += line.exposedAtEnd;
}

StartReason StartReasons::explain(NodeId start, NodeId first, Bytes limit) const {
  if (exposed[start] == 0)
    return {};
  NodeId before = previous[start];
  if (before != kNone && line.end[before] == line.start[start] && line.start[start] > arrival[positions[start]])
    return {LimitingFactor::LaneBusy, before, 0};
  NodeId last = kNone;
  for (NodeId pred : problem.preds[first])
    if (last == kNone || positions[pred] > positions[last])
      last = pred;
  int32_t earliest = last == kNone ? 0 : positions[last] + 1;
  if (arrival[earliest] >= arrival[positions[first]])
    return {last == kNone ? LimitingFactor::StartsAtOnce : LimitingFactor::DataDependence, last, 0};
  Bytes allocated = allocatedBy(start) + (first == start ? 0 : allocatedBy(first));
  Bytes reached = live.max(earliest, positions[first]) + allocated;
  return reached > limit ? StartReason{LimitingFactor::PeakMemory, kNone, reached}
                         : StartReason{LimitingFactor::Preference, kNone, 0};
}

Bytes StartReasons::allocatedBy(NodeId node) const {
  Bytes bytes = 0;
  for (BufferId buffer : problem.touches[node])
    bytes += problem.buffers[buffer].def == node ? problem.buffers[buffer].bytes : 0;
  return bytes;
}
