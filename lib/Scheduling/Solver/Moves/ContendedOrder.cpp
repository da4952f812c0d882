//===- ContendedOrder.cpp - An order of activities that share resources ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Places the stops.
//
//===------------------------------------------------------------------------------------------===//

#include "ContendedOrder.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Number of stops of an order, and the least distance between two.
static constexpr int32_t kStops = 64, kLeastSpacing = 8;

/// What a node takes of the compute lane at least, ns.
static Ns computeTimeOf(const Node &node) { return node.kind == NodeKind::Start ? node.issue : node.cost; }

ContendedOrder::ContendedOrder(const Problem &problem)
    : problem(problem), player(problem), stops(1), spacing(std::max(problem.size() / kStops, kLeastSpacing)),
      left(problem.size() + 1, 0),
      shifts(llvm::all_of(problem.nodes, [](const Node &node) { return node.ready == 0; }) &&
             llvm::all_of(problem.busyUntil, [](Ns busy) { return busy == 0; })) {
  stops.resize(problem.size() / spacing + 1);
  player.save(stops.front());
}

void ContendedOrder::place(llvm::ArrayRef<NodeId> order, int32_t first) {
  int32_t stop = first / spacing;
  player.resume(stops[stop]);
  for (int32_t at = stop * spacing; at < problem.size(); ++at) {
    if (at % spacing == 0)
      player.save(stops[at / spacing]);
    player.play(order[at]);
  }
  best = player.finish();
  for (int32_t at = problem.size() - 1; at >= 0; --at)
    left[at] = left[at + 1] + computeTimeOf(problem.nodes[order[at]]);
}

bool ContendedOrder::isPending(const ContentionPlayer::Stop &stop, NodeId start) {
  return start != kNone && llvm::any_of(stop.pending, [&](const auto &pending) { return pending.start == start; });
}
