//===- Explain.cpp - Why compute waits for a collective ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays both orders, finds for each collective the first constraint that keeps it from starting earlier, and names the
// node behind that constraint.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/Explain.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/MemoryTree.h"
#include "llvm/ADT/STLExtras.h"
#include <utility>

using namespace commsched;

namespace {

/// One order, played.
class PlayedOrder {
public:
  /// Keeps a reference to `problem`. O((N + touches) log N).
  PlayedOrder(const Problem &problem, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown)
      : problem(problem), line(simulate(problem, order, slowDown)), live(memoryProfile(problem, order).live),
        positions(problem.size()), exposed(exposedByCollective(problem, line)), previous(problem.size(), kNone) {
    std::vector<NodeId> lastOnLane(problem.numLanes(), kNone);
    Ns compute = 0;
    for (int32_t at = 0; at < static_cast<int32_t>(order.size()); ++at) {
      const Node &node = problem.nodes[order[at]];
      positions[order[at]] = at;
      arrival.push_back(compute);
      compute = node.kind == NodeKind::Start ? compute + node.issue : line.end[order[at]];
      if (node.lane != kComputeLane)
        previous[order[at]] = std::exchange(lastOnLane[node.lane], order[at]);
    }
  }

  int32_t position(NodeId node) const { return positions[node]; }
  Ns exposedOf(NodeId start) const { return exposed[start]; }

  /// Why compute waits for `start`. `first` is what has to be issued earlier if the start is: its pack, or the start
  /// itself. O(degree + log N).
  Explanation explain(NodeId start, NodeId first, Bytes limit) const {
    if (exposed[start] == 0)
      return {LimitingFactor::AlreadyHidden};
    NodeId before = previous[start];
    if (before != kNone && line.end[before] == line.start[start] &&
        (problem.hasStreams() || line.start[start] > arrival[positions[start]]))
      return {LimitingFactor::LaneBusy, before};
    NodeId last = kNone;
    for (NodeId pred : problem.preds[first])
      if (last == kNone || positions[pred] > positions[last])
        last = pred;
    // With several streams a start begins when its stream comes to it, wherever it is in the program.
    if (problem.hasStreams())
      return {last == kNone ? LimitingFactor::StartsAtOnce : LimitingFactor::DataDependence, last};
    int32_t earliest = last == kNone ? 0 : positions[last] + 1;
    if (arrival[earliest] >= arrival[positions[first]])
      return {last == kNone ? LimitingFactor::StartsAtOnce : LimitingFactor::DataDependence, last};
    Bytes allocated = allocatedBy(start) + (first == start ? 0 : allocatedBy(first));
    Bytes reached = live.max(earliest, positions[first]) + allocated;
    if (reached > limit)
      return {LimitingFactor::PeakMemory, kNone, reached, limit};
    return {LimitingFactor::Preference};
  }

private:
  Bytes allocatedBy(NodeId node) const {
    Bytes bytes = 0;
    for (BufferId buffer : problem.touches[node])
      bytes += problem.buffers[buffer].def == node ? problem.buffers[buffer].bytes : 0;
    return bytes;
  }

  const Problem &problem;
  Timeline line;
  MemoryTree live;
  std::vector<int32_t> positions;
  /// Indexed by position: when the compute lane comes to it, ns.
  std::vector<Ns> arrival;
  /// Indexed by node: how long compute stands still for a collective, ns.
  std::vector<Ns> exposed;
  /// Indexed by node: the collective in front of it on its lane, or kNone.
  std::vector<NodeId> previous;
};

/// Indexed by expanded node: the original that names it. A bucket's nodes are named after the first member that they
/// serve, as the locations of the operations that are made of them.
std::vector<NodeId> namesOf(const Problem &problem, const Schedule &schedule) {
  std::vector<NodeId> names = schedule.expanded.origin;
  auto name = [&](NodeId node, NodeId original) {
    if (node != kNone && names[node] == kNone)
      names[node] = original;
  };
  for (auto [bucket, nodes] : llvm::zip_equal(schedule.buckets, schedule.expanded.buckets)) {
    NodeId first = bucket.members.front(), wait = problem.members[first].wait;
    name(nodes.pack, first);
    name(nodes.start, first);
    name(nodes.wait, wait);
    name(nodes.view, wait);
    for (auto [unpack, member] : llvm::zip(nodes.unpacks, bucket.members))
      name(unpack, problem.members[member].wait);
  }
  return names;
}

} // namespace

std::vector<StartOutcome> commsched::explain(const Problem &problem, const Schedule &schedule, Bytes limit,
                                             const SlowDown &slowDown, PackOf packOf) {
  const ExpandedProblem &expanded = schedule.expanded;
  std::vector<Ns> exposedBefore = exposedByCollective(problem, simulate(problem, identityOrder(problem), slowDown));
  PlayedOrder after(schedule.carriedOut(problem), schedule.order, slowDown);
  std::vector<NodeId> names = namesOf(problem, schedule);

  std::vector<StartOutcome> outcomes;
  for (NodeId start = 0; start < problem.size(); ++start) {
    if (problem.nodes[start].kind != NodeKind::Start)
      continue;
    NodeId image = schedule.imageOf(start);
    StartOutcome outcome;
    outcome.start = start;
    outcome.bucket = schedule.isExpanded() ? expanded.bucketOf[image] : kNone;
    outcome.positionBefore = start;
    outcome.positionAfter = after.position(image);
    outcome.exposedBefore = exposedBefore[start];
    bool tells = outcome.bucket == kNone || schedule.buckets[outcome.bucket].members.front() == start;
    outcome.exposedAfter = tells ? after.exposedOf(image) : 0;
    NodeId pack = kNone;
    if (outcome.bucket != kNone)
      pack = expanded.buckets[outcome.bucket].pack;
    else if (NodeId own = packOf ? packOf(start) : kNone; own != kNone)
      pack = schedule.imageOf(own);
    outcome.reason = after.explain(image, pack == kNone ? image : pack, limit);
    if (outcome.reason.blocker != kNone && schedule.isExpanded())
      outcome.reason.blocker = names[outcome.reason.blocker];
    outcomes.push_back(outcome);
  }
  return outcomes;
}
