//===- CollectiveIssuer.h - Issue of collectives in a decode ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides which ready starts a communication lane runs next, alone or as a bucket, by earliest due date. Its policy is
// to keep a lane busy, and to decide as late as possible: a start that is ready later may be a better one.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_COLLECTIVEISSUER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_COLLECTIVEISSUER_H

#include "PartialSchedule.h"

namespace commsched {

/// Extends a partial schedule by starts and buckets. Every function returns whether it issued anything.
class CollectiveIssuer {
public:
  explicit CollectiveIssuer(PartialSchedule &schedule) : schedule(schedule), problem(schedule.problem) {}

  /// Begins a new decode.
  void reset() { firstLane = kComputeLane + 1; }
  /// Keeps every lane busy until `until`, and for as long as the next pack is likely to take. `nextCompute` is what
  /// runs until then, or kNone: with contention, a start may wait for a better one (Policy::patience).
  bool issueReadyCollectives(Ns until, NodeId nextCompute);
  /// The compute lane is about to stand still until `until`: issues on lanes that would run dry by then if the next
  /// pack had to come after that. Other lanes can wait.
  bool issuePacksAhead(Ns until);
  /// Issues one start or bucket on a lane. If `urgent`, nothing is held back.
  bool issueOnLane(LaneId lane, bool urgent);

private:
  bool issueByNeed(Ns until, int32_t &refused);
  bool issueOnLanes(LaneId first, LaneId last, Ns until, int32_t &refused);
  bool isDry(LaneId lane, Ns until) const;
  bool fill(LaneId lane, Ns until, int32_t &refused);
  void collectCandidates(LaneId lane, bool urgent);
  bool waitsForCompany(const BucketCandidate &candidate) const;
  Ns laxity(const BucketCandidate &candidate) const;
  bool issue(BucketCandidate &candidate);
  bool issueBucket(BucketCandidate &candidate);
  bool issueAlone(NodeId start);
  bool issueFurtherSingles(LaneId lane);

  PartialSchedule &schedule;
  const Problem &problem;
  /// The lane to begin with before the next compute.
  LaneId firstLane = kComputeLane + 1;
  /// When a collective issued now would begin on the lane under consideration, ns.
  Ns begin = 0;
  /// The compute that runs next, or kNone.
  NodeId upcoming = kNone;
  /// Lanes that have had their turn before the next compute.
  std::vector<LaneId> served;
  /// The best candidate of each queue of that lane.
  std::vector<BucketCandidate> candidates;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_COLLECTIVEISSUER_H
