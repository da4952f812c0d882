//===- GuardedMoves.cpp - Shorter answers that stay short with other costs --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Slices of moves, at first with a slack that is halved from slice to slice, then without.
//
//===------------------------------------------------------------------------------------------===//

#include "GuardedMoves.h"

using namespace commsched;

/// The slices of one call, and the slack of the first one, as a share of the makespan in millionths. The last slices
/// have none.
static constexpr int64_t kSlices = 12, kSlicesWithSlack = 9, kGuardedSlackPpm = 100;

static DecodedSchedule decodedFrom(const Problem &problem, const Schedule &answer) {
  DecodedSchedule result;
  result.buckets = answer.buckets;
  if (answer.isExpanded()) {
    result.steps = stepsOf(problem, answer.buckets, answer.expanded, answer.order);
    return result;
  }
  for (NodeId node : answer.order)
    result.steps.push_back({DecodeStep::Run, node});
  return result;
}

std::optional<Schedule> commsched::moveWithGuards(const ScheduleFacts &facts, const Schedule &answer, Bytes limit,
                                                  llvm::ArrayRef<TimeGuard> guards, Ns target, uint64_t seed,
                                                  int64_t &steps, const std::atomic<bool> *stop) {
  LocalMoves moves(facts, decodedFrom(facts.problem, answer), limit, seed, guards);
  const Ns before = moves.makespan();
  const int64_t slice = steps / kSlices;
  std::optional<DecodedSchedule> best;
  Ns shortest = before;
  for (int64_t index = 0; index < kSlices && shortest > target; ++index) {
    int64_t left = slice;
    moves.run(left, target, index < kSlicesWithSlack ? mulDiv(before, kGuardedSlackPpm, kMillion) >> index : 0, stop);
    steps -= slice - left;
    if (moves.makespan() < shortest) {
      shortest = moves.makespan();
      best = moves.decoded();
    }
  }
  if (!best)
    return std::nullopt;
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(facts.problem, best->buckets);
  if (!expanded) {
    llvm::consumeError(expanded.takeError());
    return std::nullopt;
  }
  Schedule result;
  result.buckets = best->buckets;
  result.order = orderOf(*best, *expanded);
  result.expanded = std::move(*expanded);
  return result;
}
