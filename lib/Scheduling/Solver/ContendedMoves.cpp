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
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Seed of the choices: "share" in ASCII. Any constant would do.
constexpr uint64_t kSeed = 0x7368617265ull;
/// Number of stops of an order, and the least distance between two.
constexpr int32_t kStops = 64, kLeastSpacing = 8;
/// Limit on the exponents of distances that are spread over the powers of two, and on distances.
constexpr int64_t kMaxShift = 11;
constexpr int32_t kMaxDistance = 4096;
/// Nodes that are played with contention in the time of one step of a decode.
constexpr int64_t kPlayedPerStep = 4;

/// What a node takes of the compute lane at least, ns.
Ns computeTimeOf(const Node &node) { return node.kind == NodeKind::Start ? node.issue : node.cost; }

} // namespace

ContendedMoves::ContendedMoves(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit)
    : problem(problem), limit(limit), moves(problem, order), player(problem), random(kSeed),
      spacing(std::max(problem.size() / kStops, kLeastSpacing)), left(problem.size() + 1, 0) {
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    if (node.kind == NodeKind::Start || node.kind == NodeKind::Wait)
      communicating.push_back(id);
    shifts &= node.ready == 0;
  }
  shifts &= llvm::all_of(problem.busyUntil, [](Ns busy) { return busy == 0; });
  stops.resize(problem.size() / spacing + 1);
  player.save(stops.front());
  placeStops(0);
}

NodeId ContendedMoves::nodeAt(int32_t position, const Move &move) const {
  if (position == move.to)
    return moves.order()[move.from];
  if (move.from < move.to && position >= move.from && position < move.to)
    return moves.order()[position + 1];
  if (move.to < move.from && position > move.to && position <= move.from)
    return moves.order()[position - 1];
  return moves.order()[position];
}

/// Plays the order as it is from the stop at or before `first`.
void ContendedMoves::placeStops(int32_t first) {
  int32_t stop = first / spacing;
  player.resume(stops[stop]);
  for (int32_t at = stop * spacing; at < problem.size(); ++at) {
    if (at % spacing == 0)
      player.save(stops[at / spacing]);
    player.play(moves.order()[at]);
  }
  best = player.finish();
  for (int32_t at = problem.size() - 1; at >= 0; --at)
    left[at] = left[at + 1] + computeTimeOf(problem.nodes[moves.order()[at]]);
}

/// The makespan after a move, ns, or a number that is at least `cutoff`.
Ns ContendedMoves::play(const Move &move, Ns cutoff, int64_t &played) {
  int32_t first = std::min(move.from, move.to), last = std::max(move.from, move.to) + 1;
  ContentionPlayer::Stop now;
  player.resume(stops[first / spacing]);
  for (int32_t at = first / spacing * spacing; at < problem.size(); ++at) {
    if (at % spacing == 0 && at >= last) {
      const ContentionPlayer::Stop &before = stops[at / spacing];
      if (player.now() + left[at] >= cutoff)
        return cutoff;
      if (shifts) {
        player.save(now);
        if (now.pending == before.pending)
          return best + now.time - before.time;
      }
    }
    player.play(nodeAt(at, move));
    ++played;
  }
  return player.finish();
}

/// Chooses a node and another place for it within the range that its dependences allow. Returns false if it cannot
/// move.
bool ContendedMoves::choose(Move &move) {
  move.from = !communicating.empty() && random.below(2) == 0
                  ? moves.position(communicating[random.below(static_cast<int64_t>(communicating.size()))])
                  : static_cast<int32_t>(random.below(problem.size()));
  int32_t earliest = std::max(moves.earliest(move.from, move.from + 1), move.from - kMaxDistance);
  int32_t latest = std::min(moves.latest(move.from, move.from + 1), move.from + kMaxDistance);
  switch (random.below(8)) {
  case 0:
    move.to = earliest;
    break;
  case 1:
    move.to = latest;
    break;
  default: {
    auto distance = static_cast<int32_t>(1 + random.below(int64_t(1) << random.below(kMaxShift)));
    move.to = std::clamp(move.from + (random.below(2) == 0 ? -distance : distance), earliest, latest);
  }
  }
  return move.to != move.from;
}

void ContendedMoves::run(int64_t &steps, Ns target) {
  while (steps > 0 && best > target && problem.size() > 1) {
    --steps;
    Move move;
    if (!choose(move))
      continue;
    int64_t played = 0;
    Ns makespan = play(move, best + 1, played);
    if (makespan <= best && moves.peakIfMoved(move.from, move.from + 1, move.to) <= limit) {
      moves.move(move.from, move.from + 1, move.to);
      placeStops(std::min(move.from, move.to));
      played += problem.size() - std::min(move.from, move.to);
    }
    steps -= played / kPlayedPerStep;
  }
}
