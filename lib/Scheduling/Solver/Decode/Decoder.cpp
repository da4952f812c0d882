//===- Decoder.cpp - From a policy to a schedule ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The loop of a decode: what is free first, then the best candidate that memory admits, and as the last resort the next
// node of the reference.
//
//===------------------------------------------------------------------------------------------===//

#include "Decoder.h"

using namespace commsched;

bool Decoder::run(const Reference &reference, const Policy &policy, Bytes limit, Ns cutoff, DecodedSchedule &result) {
  if (!schedule.reset(reference, policy, limit, result))
    return false;
  issuer.reset();
  while (!schedule.isComplete()) {
    if (schedule.clock.lowerBound() >= cutoff)
      return false;
    placeWhatIsFree();
    if (!placeBestCandidate() && !schedule.isComplete())
      placeNextOfReference();
  }
  schedule.finish();
  return result.makespan < cutoff;
}

/// Places what costs nothing and can only help: views, and waits whose data is there.
void Decoder::placeWhatIsFree() {
  schedule.placeFreeNodes();
  while (schedule.clock.hasEnded()) {
    schedule.completeEarliest();
    schedule.placeFreeNodes();
  }
}

/// Serves the communication lanes for the duration of the best compute, then places the first candidate that memory
/// admits. Returns whether anything was placed.
/// Of the first candidates, the one with which everything together goes on fastest; of equal ones the first.
int32_t Decoder::leastDisturbing(int32_t first) const {
  const ComputeQueue &computes = schedule.computes;
  const Policy &policy = schedule.policy();
  if (policy.compared <= 1 || !schedule.clock.sharesResources())
    return first;
  int32_t best = first, candidate = first;
  int64_t most = schedule.clock.progressWith(computes.nodeAt(first));
  for (int32_t compared = 1; compared < policy.compared; ++compared) {
    candidate = computes.next(candidate);
    if (candidate < 0 || computes.ahead(candidate) > policy.window)
      break;
    int64_t progress = schedule.clock.progressWith(computes.nodeAt(candidate));
    if (progress > most) {
      most = progress;
      best = candidate;
    }
  }
  return best;
}

bool Decoder::placeBestCandidate() {
  const ComputeQueue &computes = schedule.computes;
  const Policy &policy = schedule.policy();
  int32_t first = computes.first();
  bool inWindow = first >= 0 && computes.ahead(first) <= policy.window;
  Ns duration = inWindow ? schedule.durationOf(computes.nodeAt(first)) : 1;
  if (issuer.issueReadyCollectives(schedule.clock.now() + duration, inWindow ? computes.nodeAt(first) : kNone))
    return true;
  if (int32_t best = inWindow ? leastDisturbing(first) : first; best != first) {
    schedule.countWork(1);
    if (schedule.tryPlace(computes.nodeAt(best)))
      return true;
  }
  int32_t candidate = first;
  for (int32_t tried = 0; tried < kMaxTries && candidate >= 0; ++tried) {
    if (computes.ahead(candidate) > policy.window)
      return false;
    schedule.countWork(1);
    if (schedule.tryPlace(computes.nodeAt(candidate)))
      return true;
    candidate = computes.next(candidate);
  }
  return false;
}

/// No preferred candidate is admitted: completes what is in flight, or places the next node of the reference, which
/// always fits.
void Decoder::placeNextOfReference() {
  const Problem &problem = schedule.problem;
  NodeId node = schedule.nextOfReference();
  const Node &info = problem.nodes[node];
  bool computes = info.kind == NodeKind::Compute || info.kind == NodeKind::Hybrid;
  bool isFeeder = schedule.facts.leader[node] != node;
  if (schedule.clock.hasInFlight() && (!computes || isFeeder)) {
    if (!issuer.issuePacksAhead(schedule.clock.earliest().end))
      schedule.completeEarliest();
    return;
  }
  if (info.kind != NodeKind::Start)
    return schedule.place(node);
  if (!issuer.issueOnLane(info.lane, /*urgent=*/true))
    schedule.issueNextOfReference();
}
