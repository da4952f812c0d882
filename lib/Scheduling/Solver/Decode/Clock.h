//===- Clock.h - Lane times of a decode, and what is in flight --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays the timeline forward while a schedule grows, by the rules of Time/Timeline.h. Activities that share resources
// are played by the timeline's own clock (Time/ContentionClock.h); the ends of what is in flight are then lower bounds
// until they have come. The clock also translates due times, which are compute times of the reference, into deadlines.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_CLOCK_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_CLOCK_H

#include "Policy.h"
#include "ScheduleFacts.h"
#include "Time/ContentionClock.h"
#include <memory>
#include <queue>

namespace commsched {

/// Something that the compute lane will be told of at a known time.
struct Ending {
  /// When that is, ns.
  Ns end;
  /// The wait that becomes free, or the node whose regions wait; kNone for a bucket whose unpacks become ready.
  NodeId node;
  /// That bucket, or kNone.
  int32_t bucket;
  /// With contention, the bucket's collective.
  ContentionClock::Ticket ticket;
  bool operator>(const Ending &other) const {
    return std::tie(end, node, bucket) > std::tie(other.end, other.node, other.bucket);
  }
};

/// The times of all lanes. Every operation is O(1), those on what is in flight O(log N).
class Clock {
public:
  explicit Clock(const ScheduleFacts &facts) : facts(facts), problem(facts.problem) {
    if (problem.hasContention())
      shared = std::make_unique<ContentionClock>(problem);
  }

  /// Sets all lanes to their beginning. O(N).
  void reset(const Reference &reference, const Policy &policy);

  /// The compute lane's time, ns.
  Ns now() const { return compute; }
  /// When a communication lane has finished what was issued on it, ns. With contention, a lower bound.
  Ns freeAt(LaneId lane) const { return shared ? shared->freeAt(lane) : laneFree[lane]; }
  /// When a collective issued now on a lane would begin, ns.
  Ns beginOn(LaneId lane) const { return std::max(compute, freeAt(lane)); }
  /// When the collective of an issued start ends, ns. With contention, a lower bound until it has ended.
  Ns endOf(NodeId start) const { return shared ? shared->leastEndOf(tickets[start]) : ends[start]; }
  /// How long the compute lane would be busy with a compute or hybrid that is placed now, ns.
  Ns durationOf(NodeId node) const;
  /// When the communication that a node's regions wait for has ended, ns; 0 without regions.
  Ns readyTimeOf(const Node &node) const;
  /// Whether a computation that is placed now runs beside a collective with which it may share resources.
  bool sharesResources() const { return shared && shared->anyInFlight(); }
  /// How fast everything together goes on if a computation is placed now: the sum of all rates, in millionths.
  int64_t progressWith(NodeId node) const { return shared->progressWith(&demandOf(node)); }
  /// By how much more, if a collective with this demand begins together with the computation.
  int64_t gainOf(const Demand &collective, NodeId node) const {
    return shared->progressWith({&demandOf(node), &collective}) - progressWith(node);
  }
  bool hasContention() const { return shared != nullptr; }
  /// By how much the work of a communication lane that is left is shorter than the estimate of the time that is left,
  /// ns.
  Ns slackOf(LaneId lane) const {
    return std::max(horizon, compute + remainingCompute) - beginOn(lane) - laneLeft[lane];
  }
  /// The makespan of what has been placed; nothing may follow.
  Ns makespan();
  /// The makespan is at least this, whatever comes next, ns.
  Ns lowerBound() const { return compute + remainingCompute - remainingFusable; }

  /// When something that is due at `due` of the reference's compute time has to be there, ns.
  Ns deadlineOf(Ns due) const { return std::max(horizon, compute + remainingCompute) - referenceCompute + due; }

  /// Moves the lanes over a compute or hybrid.
  void runCompute(NodeId node);
  /// A pack does the work of a cast, so that the cast will not be placed.
  void skipCompute(NodeId cast) { leaveRemaining(cast); }
  /// Moves the compute lane over the issue of a start.
  void spend(Ns time) { advanceTo(compute + time); }
  /// Moves the compute lane over a kernel that packs.
  void runCopy(Ns cost) { compute = shared ? shared->run(cost, problem.copyDemand) : compute + cost; }
  /// Adds an unpack to the remaining work; moves the compute lane over it.
  void addUnpack(Ns cost) { remainingCompute += cost; }
  void runUnpack(Ns cost) {
    runCopy(cost);
    remainingCompute -= cost;
  }
  void waitUntil(Ns end) { advanceTo(std::max(compute, end)); }
  /// Moves the compute lane to the end of an issued start's collective.
  void waitFor(NodeId start);
  /// Occupies a communication lane. Returns when the collective ends; with contention, a lower bound.
  Ns occupy(LaneId lane, Ns cost, const Demand &demand);
  /// Says that the collective that occupied its lane last is that of a start.
  void setEnd(NodeId start, Ns end) {
    laneLeft[problem.nodes[start].lane] -= problem.nodes[start].cost;
    ends[start] = end;
    tickets[start] = lastTicket;
  }

  void addInFlight(Ns end, NodeId node, int32_t bucket = kNone) { inFlight.push({end, node, bucket, lastTicket}); }
  bool hasInFlight() const { return !inFlight.empty(); }
  /// Whether something in flight has ended by now.
  bool hasEnded();
  /// What ends first if nothing is placed before. With contention, O(activities in flight) for each that ends earlier.
  const Ending &earliest();
  Ending takeEarliest() {
    Ending result = earliest();
    inFlight.pop();
    return result;
  }

private:
  /// A wait that is a candidate is an unpack.
  const Demand &demandOf(NodeId node) const {
    const Node &info = problem.nodes[node];
    return info.kind == NodeKind::Wait ? problem.copyDemand : problem.demandOf(info);
  }
  void leaveRemaining(NodeId node);
  void advanceTo(Ns time);
  template <class EndOf> Ns endOf(const Ending &what, EndOf endOf) const;
  void defer(Ns end);

  const ScheduleFacts &facts;
  const Problem &problem;
  Ns compute = 0;
  /// Compute time of what has not been placed, and the part of it that packs may still absorb (casts).
  Ns remainingCompute = 0, remainingFusable = 0;
  /// The estimate of the makespan, its least distance from the remaining compute time, and the reference's compute
  /// time.
  Ns horizon = 0, referenceCompute = 0;
  /// Indexed by lane: when it is free, and the work that has not been issued; and by node (for starts).
  std::vector<Ns> laneFree, laneLeft, ends;
  /// The clock of shared resources, or null without contention; by start, its collective there; and the last one.
  std::unique_ptr<ContentionClock> shared;
  std::vector<ContentionClock::Ticket> tickets;
  ContentionClock::Ticket lastTicket = kNone;
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> inFlight;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_CLOCK_H
