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
#include "CommSched/Support/Arithmetic.h"
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
/// Of so many tries all but one are of the kind that has shortened the order most for its steps lately. What a kind has
/// done counts half whenever it has taken so many steps.
constexpr int64_t kTriesPerAny = 2, kRememberedSteps = 20000;
/// One of so many tries of any kind lets a start for which a lane stands still come earlier.
constexpr int64_t kTriesPerAdvance = 16;
/// One of so many changes joins buckets, besides those that changes of any kind join.
constexpr int64_t kChangesPerJoin = 8;
/// Limit on the exponent of the distance, spread over the powers of two, over which such a start comes, and on the
/// number of slots that move with it.
constexpr int64_t kMaxAdvanceShift = 12;
constexpr size_t kMaxAdvanced = 256;
/// Limits on the exponent of the number of starts that come earlier with it, and on the positions looked at for these.
constexpr int64_t kMaxFollowersShift = 5;
constexpr int32_t kMaxFollowersScan = 1024;
/// Number of positions at which starved starts are looked for in the time in which a node is played.
constexpr int32_t kScannedPerPlayed = 8;
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
  neededIn.assign(order.size(), 0);
  shortest = order.makespan();
  learns = facts.hasDeferredStages && facts.problem.size() > kMostSmall;
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
  starved.clear();
  for (int32_t at = focusFirst; at < focusEnd; ++at) {
    if (order.isCritical(at))
      critical.push_back(order.order()[at]);
    if (order.isExposed(at))
      exposed.push_back(order.order()[at]);
    if (order.isStarved(at))
      starved.push_back(order.order()[at]);
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

/// Of the starts for which a lane stands still one, or one that follows it closely on the lane.
NodeId LocalMoves::chooseStarved(int64_t &work) {
  NodeId start = starved[random.below(static_cast<int64_t>(starved.size()))];
  const LaneId lane = order.laneOf(start);
  int64_t further = random.below(int64_t(1) << random.below(kMaxFollowersShift));
  const int32_t end = std::min(order.position(start) + kMaxFollowersScan, focusEnd);
  for (int32_t at = order.position(start) + 1; further > 0 && at < end; ++at, ++work)
    if (NodeId slot = order.order()[at]; order.isStart(slot) && order.laneOf(slot) == lane) {
      start = slot;
      --further;
    }
  return start;
}

/// Lets a start for which a lane stands still come earlier: takes what it does not need from a stretch before it to its
/// back, or what it needs there to the stretch's front, whichever is less.
bool LocalMoves::chooseAdvance(BucketChange &change, int64_t &work) {
  NodeId start = chooseStarved(work);
  if (order.isEmpty(start))
    return false;
  const int32_t to = order.position(start);
  const auto distance = static_cast<int32_t>(2 + random.below(int64_t(1) << random.below(kMaxAdvanceShift)));
  const int32_t from = std::max(to - distance, focusFirst);
  const bool keepsLane = random.below(2) == 0;
  const LaneId lane = order.laneOf(start);
  ++advances;
  auto need = [&](NodeId slot) { order.forEachBefore(slot, [&](NodeId other) { neededIn[other] = advances; }); };
  llvm::SmallVector<NodeId, 64> needed = {start}, others;
  need(start);
  for (int32_t at = to; at-- > from; ++work) {
    NodeId slot = order.order()[at];
    if (order.isEmpty(slot))
      continue;
    const bool isNeeded =
        neededIn[slot] == advances || (keepsLane && order.isStart(slot) && order.laneOf(slot) == lane);
    (isNeeded ? needed : others).push_back(slot);
    if (isNeeded)
      need(slot);
  }
  change.isBehind = others.size() < needed.size();
  if (others.empty() || std::min(others.size(), needed.size()) > kMaxAdvanced)
    return false;
  llvm::append_range(change.carried, llvm::reverse(change.isBehind ? others : needed));
  change.anchor = change.isBehind ? start : others.back();
  return true;
}

/// Looks again for what is starved near a position.
void LocalMoves::findStarvedNear(int32_t position) {
  starved.clear();
  for (int32_t at = std::max(position - kMaxFollowersScan, focusFirst),
               end = std::min(position + kMaxFollowersScan, focusEnd);
       at < end; ++at)
    if (order.isStarved(at))
      starved.push_back(order.order()[at]);
}

void LocalMoves::tryChange(Kind kind, int64_t &steps, Ns slack) {
  BucketChange change;
  int64_t work = 0;
  const Ns before = order.makespan();
  auto choose = [&] {
    switch (kind) {
    case PutOff:
      return choosePutOff(change, work);
    case Advance:
      return chooseAdvance(change, work);
    case Join:
      return buckets.chooseJoin(chooseStart(), change, work);
    default:
      return buckets.choose(chooseStart(), change, work);
    }
  };
  if (choose())
    order.tryChange(change, drawAllowed(slack), work);
  if (kind == PutOff)
    fruitless = order.makespan() < before ? 0 : fruitless + 1;
  if (kind == Advance && order.makespan() < before) {
    findStarvedNear(order.position(change.anchor));
    work += kMaxFollowersScan / kScannedPerPlayed;
  }
  steps -= 1 + (work + laneWork) / kPlayedPerStep;
}

/// Draws a kind of try: one that does well, or any.
LocalMoves::Kind LocalMoves::chooseKind() {
  const bool mayMerge = order.mergeableStarts().size() > 1;
  if (learns && random.below(kTriesPerAny) != 0) {
    Kind best = AnyMove;
    for (Kind kind : {AnyChange, Join, PutOff, Advance})
      if (static_cast<Wide>(success[kind].gain) * success[best].steps >
          static_cast<Wide>(success[best].gain) * success[kind].steps)
        best = kind;
    const bool isPossible = best == PutOff    ? mayMerge && !exposed.empty()
                            : best == Advance ? !starved.empty()
                            : best == Join    ? mayMerge && startsInFocus.size() > 1
                                              : best != AnyChange || startsInFocus.size() > 1;
    if (isPossible && success[best].gain > 0)
      return best;
  }
  if (learns && !starved.empty() && random.below(kTriesPerAdvance) == 0)
    return Advance;
  if (startsInFocus.size() < 2 || random.below(mayMerge ? kTriesPerChange : kTriesPerGroup) != 0)
    return AnyMove;
  const int64_t perPutOff = fruitless < kFruitless ? kChangesPerPutOff : kChangesPerRarePutOff;
  if (mayMerge && !exposed.empty() && random.below(perPutOff) == 0)
    return PutOff;
  return learns && mayMerge && random.below(kChangesPerJoin) == 0 ? Join : AnyChange;
}

void LocalMoves::tryOne(int64_t &steps, Ns slack) {
  const Kind kind = chooseKind();
  const int64_t stepsBefore = steps;
  if (kind == AnyMove)
    tryMove(steps, slack);
  else
    tryChange(kind, steps, slack);
  Success &of = success[kind];
  // What only makes up for the slack of earlier tries counts nothing.
  of.gain += std::max<Ns>(shortest - order.makespan(), 0);
  shortest = std::min(shortest, order.makespan());
  of.steps += stepsBefore - steps;
  if (of.steps > kRememberedSteps) {
    of.gain /= 2;
    of.steps /= 2;
  }
}

void LocalMoves::run(int64_t &steps, Ns target, Ns slack, const std::atomic<bool> *stop) {
  const int64_t between = std::max<int64_t>(kTriesBetween, order.size() / kNodesPerTry);
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
    tryOne(steps, slack);
  }
  if (isLong())
    order.focus(focusFirst = 0, focusEnd = order.size());
}
