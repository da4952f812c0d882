//===- PruneLevels.cpp - The levels that an argument needs ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "PruneLevels.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

bool isTail(const LevelReason &level) { return level.of == LevelReason::Tail || level.of == LevelReason::LaneTail; }

/// Removes the levels of heads (or of tails) of nodes that are not in `kept`, which has an entry per node. What a level
/// rests on is ordered before (after) its node, so levels of a closed set rest on levels of that set.
void keepOf(BoundWitness &witness, bool tails, const std::vector<char> &kept) {
  llvm::erase_if(witness.levels, [&](const LevelReason &level) { return isTail(level) == tails && !kept[level.node]; });
}

/// Removes the levels of heads (or of tails) without which all of them are still at least `threshold` where they were.
///
/// A level is not needed where the time is large enough without it. `enough` exceeds the threshold by the longest
/// issue: the time of an issue is that of its start's turn less the issue. A level that is kept may rest on times up to
/// its `from`, so all of these have to stay: `enough` exceeds them by as much, too. Then by induction over the sweep no
/// time falls below the smaller one of `enough`, less the issue for the moment of an issue, and what it was.
void keepUpTo(BoundWitness &witness, bool tails, Ns threshold, Ns longestIssue) {
  if (threshold <= 0) {
    llvm::erase_if(witness.levels, [&](const LevelReason &level) { return isTail(level) == tails; });
    return;
  }
  Ns least = threshold;
  for (bool isRaised = true; isRaised;) {
    isRaised = false;
    for (const LevelReason &level : witness.levels)
      if (isTail(level) == tails && level.base < least + longestIssue && level.from > least) {
        least = level.from;
        isRaised = true;
      }
  }
  llvm::erase_if(witness.levels, [&](const LevelReason &level) {
    return isTail(level) == tails && level.base >= least + longestIssue;
  });
}

/// The node and all that it depends on, directly or not (with `forward`: all that depends on it). Indexed by node.
std::vector<char> closureOf(const Problem &problem, NodeId node, bool forward) {
  std::vector<char> reached(problem.size(), 0);
  std::vector<NodeId> stack = {node};
  reached[node] = 1;
  while (!stack.empty()) {
    NodeId id = stack.back();
    stack.pop_back();
    for (NodeId next : (forward ? problem.succs : problem.preds)[id])
      if (!std::exchange(reached[next], 1))
        stack.push_back(next);
  }
  return reached;
}

/// The smallest tail of a collective of the lane that need not come before the node, as Lemmas 10 and 11 use it.
Ns smallestTail(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times, LaneId lane,
                const std::vector<char> &before) {
  Ns smallest = INT64_MAX / 2;
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].kind == NodeKind::Start && problem.nodes[id].lane == lane && !before[id] &&
        costs.lane[id] > 0)
      smallest = std::min(smallest, times.laneTail[id]);
  return smallest;
}

} // namespace

void commsched::pruneLevels(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                            BoundWitness &witness) {
  Ns longestIssue = 0;
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].kind == NodeKind::Start)
      longestIssue = std::max(longestIssue, costs.compute[id]);
  for (LevelReason &level : witness.levels)
    if (level.of == LevelReason::LaneTail)
      level.base = times.endTail[level.node];
  switch (witness.argument) {
  case BoundWitness::Deferral:
    witness.levels.clear();
    break;
  case BoundWitness::OneMachine:
    keepUpTo(witness, /*tails=*/false, witness.head, longestIssue);
    keepUpTo(witness, /*tails=*/true, witness.tail, longestIssue);
    break;
  case BoundWitness::ThroughNode:
    keepOf(witness, /*tails=*/false, closureOf(problem, witness.node, /*forward=*/false));
    keepOf(witness, /*tails=*/true, closureOf(problem, witness.node, /*forward=*/true));
    break;
  case BoundWitness::MemoryLimit: {
    std::vector<char> before = closureOf(problem, witness.node, /*forward=*/false);
    keepOf(witness, /*tails=*/false, before);
    keepUpTo(witness, /*tails=*/true, smallestTail(problem, costs, times, witness.lane, before), longestIssue);
    break;
  }
  }
}
