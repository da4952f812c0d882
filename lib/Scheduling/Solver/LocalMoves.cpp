//===- LocalMoves.cpp - Shorter orders by moves of single nodes -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chooses moves at random, with a bias to the critical path, and keeps those that neither lengthen the order nor exceed
// the limit.
//
//===------------------------------------------------------------------------------------------===//

#include "LocalMoves.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Seed of the choices: "moves" in ASCII. Any constant would do.
constexpr uint64_t kMovesSeed = 0x6d6f766573ull;
/// The critical nodes are found again after so many tries, or after a share 1 / kNodesPerTry of the nodes in tries if
/// that is more: looking at a node takes far less time than a try.
constexpr int64_t kTriesBetween = 512, kNodesPerTry = 8;
/// Limit on the distance of a move. Its cost is linear in the distance.
constexpr int32_t kMaxDistance = 4096;
/// Nodes that are played in the time of one step of a decode.
constexpr int64_t kPlayedPerStep = 16;
/// Limit on the exponents of distances that are spread over the powers of two.
constexpr int64_t kMaxShift = 11;

} // namespace

LocalMoves::LocalMoves(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit)
    : problem(problem), limit(limit), memory(problem, order), timeline(problem, order), random(kMovesSeed) {}

void LocalMoves::findCritical() {
  critical.clear();
  for (int32_t at = 0; at < problem.size(); ++at)
    if (timeline.isCritical(at))
      critical.push_back(timeline.order()[at]);
}

/// A position on the critical path, a neighbour of one, or any position.
int32_t LocalMoves::choosePosition() {
  int64_t kind = random.below(10);
  if (critical.empty() || kind == 9)
    return static_cast<int32_t>(random.below(problem.size()));
  int32_t at = memory.position(critical[random.below(static_cast<int64_t>(critical.size()))]);
  if (kind < 7)
    return at;
  int64_t width = int64_t(1) << random.below(kMaxShift);
  return static_cast<int32_t>(std::clamp<int64_t>(at + random.below(2 * width + 1) - width, 0, problem.size() - 1));
}

/// Chooses a node and a place for it. Returns whether there is another legal place.
bool LocalMoves::chooseMove(Move &move) {
  move.from = choosePosition();
  int32_t earliest = std::max(memory.earliest(move.from, move.from + 1), move.from - kMaxDistance);
  int32_t latest = std::min(memory.latest(move.from, move.from + 1), move.from + kMaxDistance);
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

bool LocalMoves::tryMove(const Move &move, int64_t &steps) {
  int32_t first = std::min(move.from, move.to), last = std::max(move.from, move.to) + 1;
  steps -= 1 + (last - first) / kPlayedPerStep;
  llvm::ArrayRef<NodeId> order = timeline.order();
  window.assign(order.begin() + first, order.begin() + last);
  if (move.to < move.from)
    std::rotate(window.begin(), window.end() - 1, window.end());
  else
    std::rotate(window.begin(), window.begin() + 1, window.end());
  if (timeline.makespanIfReplaced(first, window, timeline.makespan()) > timeline.makespan() ||
      memory.peakIfMoved(move.from, move.from + 1, move.to) > limit)
    return false;
  timeline.replace(first, window);
  memory.move(move.from, move.from + 1, move.to);
  return true;
}

void LocalMoves::run(int64_t &steps, Ns target) {
  const int64_t between = std::max<int64_t>(kTriesBetween, problem.size() / kNodesPerTry);
  for (int64_t tries = 0; steps > 0 && timeline.makespan() > target && problem.size() > 1; ++tries) {
    if (tries % between == 0) {
      findCritical();
      steps -= problem.size() / kPlayedPerStep;
    }
    Move move;
    if (chooseMove(move))
      tryMove(move, steps);
    else
      --steps;
  }
}
