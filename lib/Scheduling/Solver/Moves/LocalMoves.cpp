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
/// Number of positions of a long order that are worked on at a time.
constexpr int32_t kFocus = 8192;
/// Nodes that are played in the time of one step of a decode.
constexpr int64_t kPlayedPerStep = 20;
/// Number of lanes up to which their clocks cost next to nothing in a try. Beyond, each lane counts as a played node.
constexpr LaneId kFreeLanes = 32;
/// One of so many tries changes buckets, or, without any that could, moves a start together with its producers.
constexpr int64_t kTriesPerChange = 3, kTriesPerGroup = 16;
/// One of so many changes puts something off behind the start of an exposed wait; fewer after kFruitless of them have
/// not shortened the order.
constexpr int64_t kChangesPerPutOff = 4, kChangesPerRarePutOff = 16, kFruitless = 256;
/// One of so many moves of nodes is about an exposed wait.
constexpr int64_t kTriesPerExposed = 3;

} // namespace

LocalMoves::LocalMoves(const ScheduleFacts &facts, const DecodedSchedule &decoded, Bytes limit, uint64_t seed,
                       llvm::ArrayRef<TimeGuard> guards)
    : order(facts.problem, facts.bucketing, decoded, limit, guards),
      laneWork(facts.problem.numLanes() > kFreeLanes ? facts.problem.numLanes() : 0), random(kMovesSeed + seed),
      buckets(facts, order, random) {
  for (NodeId node = 0; node < facts.problem.size(); ++node)
    if (facts.problem.nodes[node].kind == NodeKind::Start)
      starts.push_back(node);
  focusEnd = order.size();
  startsInFocus = starts;
}

/// Chooses the positions for the next tries, around one on which the makespan depends, and finds what is critical
/// there.
void LocalMoves::chooseFocus() {
  if (isLong()) {
    order.focus(focusFirst = 0, focusEnd = order.size());
    findCritical();
    const int32_t at = critical.empty() ? static_cast<int32_t>(random.below(order.size()))
                                        : order.position(critical[random.below(static_cast<int64_t>(critical.size()))]);
    focusFirst = std::clamp(at - kFocus / 2, 0, order.size() - kFocus);
    focusEnd = focusFirst + kFocus;
    order.focus(focusFirst, focusEnd);
    startsInFocus.clear();
    for (NodeId start : starts)
      if (int32_t position = order.position(start); position >= focusFirst && position < focusEnd)
        startsInFocus.push_back(start);
  }
  findCritical();
}

void LocalMoves::findCritical() {
  critical.clear();
  exposed.clear();
  for (int32_t at = focusFirst; at < focusEnd; ++at) {
    if (order.isCritical(at))
      critical.push_back(order.order()[at]);
    if (order.isExposed(at))
      exposed.push_back(order.order()[at]);
  }
}

/// Chooses a move that may shorten an exposed wait: something from behind it to its front, or its start, or what stands
/// before its start, away.
bool LocalMoves::chooseForExposed(NodeMove &move) {
  NodeId wait = exposed[random.below(static_cast<int64_t>(exposed.size()))];
  const int32_t at = order.position(wait);
  auto near = [&](int32_t position, bool behind) {
    int32_t distance = drawDistance(random);
    return std::clamp(behind ? position + distance : position - distance, focusFirst, focusEnd - 1);
  };
  NodeId start = order.startOf(wait);
  switch (start == kNone ? 0 : random.below(3)) {
  case 0:
    move.from = near(at, /*behind=*/true);
    move.to = at;
    break;
  case 1:
    move.from = order.position(start);
    move.to = near(move.from, /*behind=*/false);
    break;
  default:
    move.to = order.position(start);
    move.from = near(move.to, /*behind=*/false);
  }
  NodeId slot = order.order()[move.from];
  if (order.isEmpty(slot) || std::abs(move.from - move.to) > kMaxDistance)
    return false;
  move.to = std::clamp(move.to, order.earliest(slot), order.latest(slot));
  return move.to != move.from;
}

/// A position on the critical path, a neighbour of one, or any position.
int32_t LocalMoves::choosePosition() {
  int64_t kind = random.below(10);
  if (critical.empty() || kind == 9)
    return static_cast<int32_t>(focusFirst + random.below(focusEnd - focusFirst));
  int32_t at = order.position(critical[random.below(static_cast<int64_t>(critical.size()))]);
  if (kind < 7)
    return at;
  int64_t width = int64_t(1) << random.below(kMaxShift);
  return static_cast<int32_t>(std::clamp<int64_t>(at + random.below(2 * width + 1) - width, focusFirst, focusEnd - 1));
}

/// Chooses a node and another place for it within the range that its dependences allow: an end of that range, or a
/// distance spread over the powers of two. Returns false if the node cannot move.
bool LocalMoves::chooseMove(NodeMove &move) {
  if (!exposed.empty() && random.below(kTriesPerExposed) == 0)
    return chooseForExposed(move);
  move.from = choosePosition();
  NodeId slot = order.order()[move.from];
  if (order.isEmpty(slot))
    return false;
  move.to = drawPlace(random, move.from, std::max(order.earliest(slot), focusFirst),
                      std::min(order.latest(slot), focusEnd - 1));
  return move.to != move.from;
}

/// What an order may take after the next move, ns.
Ns LocalMoves::drawAllowed(Ns slack) { return order.makespan() + (slack > 0 ? random.below(slack + 1) : 0); }

void LocalMoves::tryMove(int64_t &steps, Ns slack) {
  --steps;
  NodeMove move;
  if (!chooseMove(move))
    return;
  steps -= (std::abs(move.to - move.from) + 1 + laneWork) / kPlayedPerStep;
  order.tryMove(move.from, move.to, drawAllowed(slack));
}

/// The start, or the leader of the bucket, that a position stands for. A position that stands for none makes way for
/// any start.
NodeId LocalMoves::chooseStart() {
  NodeId start = order.startAt(choosePosition());
  if (start != kNone)
    return start;
  start = startsInFocus[random.below(static_cast<int64_t>(startsInFocus.size()))];
  int32_t bucket = order.bucketOf(start);
  return bucket == kNone ? start : order.leaderOf(bucket);
}

/// Chooses something that can run beside the collective of an exposed wait instead of before it.
bool LocalMoves::choosePutOff(BucketChange &change, int64_t &work) {
  NodeId start = order.startOf(exposed[random.below(static_cast<int64_t>(exposed.size()))]);
  return start != kNone && buckets.choosePutOff(start, change, work);
}

void LocalMoves::tryChange(int64_t &steps, Ns slack) {
  BucketChange change;
  int64_t work = 0;
  const Ns before = order.makespan();
  const int64_t perPutOff = fruitless < kFruitless ? kChangesPerPutOff : kChangesPerRarePutOff;
  const bool mayMerge = order.mergeableStarts().size() > 1;
  bool putsOff = mayMerge && !exposed.empty() && random.below(perPutOff) == 0;
  if (putsOff ? choosePutOff(change, work) : buckets.choose(chooseStart(), change, work))
    order.tryChange(change, drawAllowed(slack), work);
  if (putsOff)
    fruitless = order.makespan() < before ? 0 : fruitless + 1;
  steps -= 1 + (work + laneWork) / kPlayedPerStep;
}

void LocalMoves::run(int64_t &steps, Ns target, Ns slack, const std::atomic<bool> *stop) {
  const int64_t between = std::max<int64_t>(kTriesBetween, order.size() / kNodesPerTry);
  const int64_t perChange = order.mergeableStarts().size() > 1 ? kTriesPerChange : kTriesPerGroup;
  for (int64_t tries = 0; steps > 0 && order.makespan() > target && order.size() > 1; ++tries) {
    if (tries % kTriesBetween == 0 && stop && *stop)
      break;
    if (tries % between == 0) {
      chooseFocus();
      steps -= order.size() / kPlayedPerStep;
    } else if (isLong() && tries % kTriesBetween == 0) {
      findCritical();
      steps -= (focusEnd - focusFirst) / kPlayedPerStep;
    }
    if (startsInFocus.size() > 1 && random.below(perChange) == 0)
      tryChange(steps, slack);
    else
      tryMove(steps, slack);
  }
  if (isLong())
    order.focus(focusFirst = 0, focusEnd = order.size());
}
