//===- StartOutcomes.cpp - What became of every start -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "StartOutcomes.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// Of each expanded node: the original that names it. A bucket's nodes are named after the first member that they
/// serve, as the locations of the operations that are made of them.
static std::vector<NodeId> namesOf(const Problem &problem, const ScheduleResult &result) {
  std::vector<NodeId> names = result.expanded.origin;
  auto name = [&](NodeId node, NodeId original) {
    if (node != kNone && names[node] == kNone)
      names[node] = original;
  };
  for (auto [bucket, nodes] : llvm::zip_equal(result.buckets, result.expanded.buckets)) {
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

std::vector<StartOutcome> commsched::outcomesOfStarts(const Problem &problem, const ScheduleResult &result,
                                                      const SlowDown &slowDown) {
  const ExpandedProblem &expanded = result.expanded;
  Order given = identityOrder(problem);
  StartReasons before(problem, given, slowDown), after(expanded.problem, result.order, slowDown);
  std::vector<NodeId> names = namesOf(problem, result);

  std::vector<StartOutcome> outcomes;
  for (NodeId start = 0; start < problem.size(); ++start) {
    if (problem.nodes[start].kind != NodeKind::Start)
      continue;
    NodeId image = expanded.image[start];
    StartOutcome outcome;
    outcome.start = start;
    outcome.bucket = expanded.bucketOf[image];
    outcome.positionBefore = start;
    outcome.positionAfter = after.position(image);
    outcome.exposedBefore = before.exposedOf(start);
    bool tells = outcome.bucket == kNone || result.buckets[outcome.bucket].members.front() == start;
    outcome.exposedAfter = tells ? after.exposedOf(image) : 0;
    NodeId pack = outcome.bucket == kNone ? kNone : expanded.buckets[outcome.bucket].pack;
    outcome.reason = after.explain(image, pack == kNone ? image : pack, result.limit);
    if (outcome.reason.blocker != kNone)
      outcome.reason.blocker = names[outcome.reason.blocker];
    outcomes.push_back(outcome);
  }
  return outcomes;
}
