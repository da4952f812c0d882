//===- ContendedMoves.cpp - Moves of single nodes, timed with contention ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chooses moves at random, more often of starts and waits than of computations, and keeps those that neither lengthen
// the order nor exceed the limit.
//
//===------------------------------------------------------------------------------------------===//

#include "ContendedMoves.h"
#include <algorithm>

using namespace commsched;

/// Seed of the choices: "share" in ASCII. Any constant would do.
static constexpr uint64_t kSeed = 0x7368617265ull;

ContendedMoves::ContendedMoves(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit)
    : problem(problem), limit(limit), moves(problem, order), played(problem), random(kSeed) {
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].kind == NodeKind::Start || problem.nodes[id].kind == NodeKind::Wait)
      communicating.push_back(id);
  played.place(moves.order(), 0);
}

NodeId ContendedMoves::nodeAt(int32_t position, const NodeMove &move) const {
  if (position == move.to)
    return moves.order()[move.from];
  if (move.from < move.to && position >= move.from && position < move.to)
    return moves.order()[position + 1];
  if (move.to < move.from && position > move.to && position <= move.from)
    return moves.order()[position - 1];
  return moves.order()[position];
}

/// Chooses a node and another place for it within the range that its dependences allow. Returns false if it cannot
/// move.
bool ContendedMoves::choose(NodeMove &move) {
  move.from = !communicating.empty() && random.below(2) == 0
                  ? moves.position(communicating[random.below(static_cast<int64_t>(communicating.size()))])
                  : static_cast<int32_t>(random.below(problem.size()));
  move.to =
      drawPlace(random, move.from, moves.earliest(move.from, move.from + 1), moves.latest(move.from, move.from + 1));
  return move.to != move.from;
}

void ContendedMoves::run(int64_t &steps, Ns target, const std::atomic<bool> *stop) {
  while (steps > 0 && makespan() > target && problem.size() > 1 && !(stop && *stop)) {
    --steps;
    NodeMove move;
    if (!choose(move))
      continue;
    int64_t nodes = 0;
    int32_t first = std::min(move.from, move.to), last = std::max(move.from, move.to) + 1;
    Ns found = played.play(first, last, [&](int32_t at) { return nodeAt(at, move); }, makespan() + 1, nodes);
    if (found <= makespan() && moves.peakIfMoved(move.from, move.from + 1, move.to) <= limit) {
      moves.move(move.from, move.from + 1, move.to);
      played.place(moves.order(), first);
      nodes += problem.size() - first;
    }
    steps -= nodes / kContendedPerStep;
  }
}
