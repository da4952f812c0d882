//===- Envelope.cpp - Bounds on the makespan of one order ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Model/Envelope.h"

using namespace commsched;

/// The slow-downs without that of links.
static SlowDown withoutLinks(const SlowDown &slowDown) {
  SlowDown result;
  result.computePermille = slowDown.computePermille;
  return result;
}

/// Whether any two lanes share a link that slows down.
static bool slowsLinks(const SlowDown &slowDown) { return slowDown.linkPermille > 0 && !slowDown.linkOfLane.empty(); }

Ns commsched::leastMakespan(const Problem &shortest, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown) {
  return makespanOf(shortest, order, withoutLinks(slowDown));
}

Ns commsched::largestMakespan(const Problem &longest, llvm::ArrayRef<NodeId> order, const SlowDown &slowDown) {
  if (!slowsLinks(slowDown))
    return makespanOf(longest, order, slowDown);
  Problem slowed = longest;
  for (Node &node : slowed.nodes)
    if (node.kind == NodeKind::Start || node.kind == NodeKind::Hybrid)
      node.cost = mulDivUp(node.cost, kPermille + slowDown.linkPermille, kPermille);
  return makespanOf(slowed, order, withoutLinks(slowDown));
}
