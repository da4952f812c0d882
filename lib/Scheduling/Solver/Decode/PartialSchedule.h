//===- PartialSchedule.h - State of a decode --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The partial schedule of the serial schedule generation scheme, and the moves that extend it: place a compute, a wait,
// an unpack, a start with its feeders, or a bucket. A move asks MemoryAdmission first. If it is admitted, it advances
// the clock, records its steps, and releases what depends on it. Which move is best is not decided here.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_PARTIALSCHEDULE_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_PARTIALSCHEDULE_H

#include "BucketCandidates.h"
#include "Clock.h"
#include "ComputeQueue.h"
#include "DecodedSchedule.h"
#include "DryLanes.h"
#include "MemoryAdmission.h"

namespace commsched {

/// Up to this number of lanes they are served in the order of their numbers; with more of them the order of need
/// counts.
inline constexpr LaneId kManyLanes = 32;

/// The state of one decode. Its arrays are kept from one decode to the next.
class PartialSchedule {
public:
  explicit PartialSchedule(const ScheduleFacts &facts);

  /// Begins a new schedule in `result`. Returns false if the reference exceeds `limit`. The three references have to
  /// outlive the decode. O((N + touches) log N).
  bool reset(const Reference &reference, const Policy &policy, Bytes limit, DecodedSchedule &result);
  /// Writes makespan and peak into the result.
  void finish();

  const ScheduleFacts &facts;
  const Problem &problem;
  Clock clock;
  ComputeQueue computes;
  LaneQueues starts;

  const Reference &reference() const { return *theReference; }
  const Policy &policy() const { return thePolicy; }
  bool isComplete() const { return front == problem.size(); }
  /// The first node of the reference that has not been placed: it always fits.
  NodeId nextOfReference() const { return theReference->order[front]; }
  bool isPlaced(NodeId node) const { return placed[node]; }
  /// By how much a lane is served earlier, so that a pack like its last one fits before its start, ns; 0 if the lane
  /// had none.
  Ns packLead(LaneId lane) const { return packTime[lane]; }
  /// The first lane from `lane` on that has a ready start and is served before `until`, ns, the lead of its packs
  /// included; or kNone. O(log lanes).
  LaneId nextDryLane(LaneId lane, Ns until) const { return dry.next(lane, until); }
  /// The same among the lanes with a lead.
  LaneId nextDryPackingLane(LaneId lane, Ns until) const { return dryPacking.next(lane, until); }
  /// With more than kManyLanes lanes: the lane whose most urgent ready start is due first, or kNone. O(log lanes).
  LaneId neediestLane() const { return needs.earliestLane(); }
  /// Takes a lane out of those that neediestLane() knows, until noteNeed() or until one of its starts becomes ready or
  /// is issued. O(log lanes).
  void hideNeed(LaneId lane) { needs.set(lane, DryLanes::kNever); }
  void noteNeed(LaneId lane);
  bool hasManyLanes() const { return problem.numLanes() > kManyLanes; }
  /// How long the compute lane would be busy with a candidate of `computes`, ns.
  Ns durationOf(NodeId node) const {
    return problem.nodes[node].kind == NodeKind::Wait ? unpackCost[node] : clock.durationOf(node);
  }
  MergeContext mergeContext() const { return {facts, *theReference, thePolicy, starts, pendingEdges}; }
  /// Adds to the measure of effort.
  void countWork(int64_t steps) { result->work += steps; }

  // Moves. Those named try... return false, and change nothing, if memory refuses.

  /// Places a compute, an unpack, or a wait whose data is there.
  bool tryPlace(NodeId node);
  /// The same for a node that always fits: the next one of the reference.
  void place(NodeId node);
  /// Places all ready nodes that take no time and no memory.
  void placeFreeNodes();
  /// Completes what ends first: places its wait, or makes it a candidate of `computes` if memory refuses the wait or if
  /// it is a bucket to be unpacked or a node whose regions waited.
  void completeEarliest();
  /// Issues a start, its feeders first.
  bool tryIssue(NodeId start);
  /// Issues the next start of the reference, which has no feeders left.
  void issueNextOfReference();
  /// Issues the members as one bucket. The casts that a pack would do the work of have not been placed.
  bool tryIssue(const Bucket &bucket);

private:
  /// A bucket that has been issued.
  struct IssuedBucket {
    /// A packed all-gather: there are unpacks.
    bool unpacks = false;
    /// See BucketMove::joined; one element if there are no unpacks.
    std::vector<JoinedWaits> joined;
  };

  void makeReady(NodeId node);
  void updateDryness(LaneId lane);
  void release(NodeId node);
  void markPlaced(NodeId node);
  void emit(DecodeStep::What what, int32_t id) { result->steps.push_back({what, id}); }
  bool isUnpack(NodeId wait) const { return bucketOf[wait] != kNone && issued[bucketOf[wait]].unpacks; }
  void placeAdmitted(NodeId node);
  void placeCompute(NodeId node);
  void placeUnpack(NodeId wait);
  void placeWait(NodeId wait);
  void leaveQueue(NodeId start, Ns end);
  IssuedBucket joinWaits(const Bucket &bucket, const BucketShape &shape) const;
  void pack(const BucketShape &shape, const IssuedBucket &waits);
  void issue(const Bucket &bucket, const BucketShape &shape, IssuedBucket waits);

  MemoryAdmission memory;
  const Reference *theReference = nullptr;
  Policy thePolicy;
  DecodedSchedule *result = nullptr;

  /// Indexed by node: whether it has been placed, or absorbed by a bucket.
  std::vector<char> placed;
  /// Indexed by leader: edges into its launch unit whose source has not been placed.
  std::vector<int32_t> pendingEdges;
  /// The first position of the reference that has not been placed.
  int32_t front = 0;
  /// Ready nodes that take no time and no memory, as a stack.
  std::vector<NodeId> freeReady;

  /// Indexed by lane, see packLead().
  std::vector<Ns> packTime;
  /// The lanes with ready starts, and those of them with a lead.
  DryLanes dry, dryPacking;
  /// With many lanes: when each lane's most urgent ready start is due, ns.
  DryLanes needs;
  /// Indexed by node, for starts and waits: the bucket, or kNone.
  std::vector<int32_t> bucketOf;
  /// Indexed by node: the duration of the unpack that the wait has become, ns.
  std::vector<Ns> unpackCost;
  /// Indexed by bucket.
  std::vector<IssuedBucket> issued;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_PARTIALSCHEDULE_H
