//===- Clock.h - Lane times of a decode, and what is in flight --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays the timeline forward while a schedule grows, by the rules of Model/Timeline.h without slow-downs. It also
// translates due times, which are compute times of the reference, into deadlines on the clock.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_CLOCK_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_CLOCK_H

#include "Policy.h"
#include "ScheduleFacts.h"
#include <queue>

namespace commsched {

/// Something that the compute lane will be told of at a known time.
struct InFlight {
  /// When that is, ns.
  Ns end;
  /// The wait that becomes free, or the node whose regions wait; kNone for a bucket whose unpacks become ready.
  NodeId node;
  /// That bucket, or kNone.
  int32_t bucket;
  bool operator>(const InFlight &other) const {
    return std::tie(end, node, bucket) > std::tie(other.end, other.node, other.bucket);
  }
};

/// The times of all lanes. Every operation is O(1), those on what is in flight O(log N).
class Clock {
public:
  explicit Clock(const ScheduleFacts &facts) : facts(facts), problem(facts.problem) {}

  /// Sets all lanes to their beginning. O(N).
  void reset(const Reference &reference, const Policy &policy);

  /// The compute lane's time, ns.
  Ns now() const { return compute; }
  /// When a communication lane has finished what was issued on it, ns.
  Ns freeAt(LaneId lane) const { return laneFree[lane]; }
  /// When a collective issued now on a lane would begin, ns.
  Ns beginOn(LaneId lane) const { return std::max(compute, laneFree[lane]); }
  /// When the collective of an issued start ends, ns.
  Ns endOf(NodeId start) const { return ends[start]; }
  /// How long the compute lane would be busy with a compute or hybrid that is placed now, ns.
  Ns durationOf(NodeId node) const;
  /// When the communication that a node's regions wait for has ended, ns; 0 without regions.
  Ns readyTimeOf(const Node &node) const { return node.region == kNone ? 0 : problem.endOfAwaited(node, ends); }
  Ns makespan() const;
  /// The makespan is at least this, whatever comes next, ns.
  Ns lowerBound() const { return compute + remainingCompute - remainingFusable; }
  /// Compute time of what has not been placed, ns.
  Ns remaining() const { return remainingCompute; }

  /// When something that is due at `due` of the reference's compute time has to be there, ns.
  Ns deadlineOf(Ns due) const { return std::max(horizon, compute + remainingCompute + slack) - referenceCompute + due; }

  /// Moves the lanes over a compute or hybrid.
  void runCompute(NodeId node);
  /// A pack does the work of a cast, so that the cast will not be placed.
  void skipCompute(NodeId cast) { leaveRemaining(cast); }
  /// Moves the compute lane over copies or the issue of a start.
  void spend(Ns time) { compute += time; }
  /// Adds an unpack to the remaining work; moves the compute lane over it.
  void addUnpack(Ns cost) { remainingCompute += cost; }
  void runUnpack(Ns cost) {
    compute += cost;
    remainingCompute -= cost;
  }
  void waitUntil(Ns end) { compute = std::max(compute, end); }
  /// Occupies a communication lane. Returns when the collective ends.
  Ns occupy(LaneId lane, Ns cost) { return laneFree[lane] = beginOn(lane) + cost; }
  void setEnd(NodeId start, Ns end) { ends[start] = end; }

  void addInFlight(Ns end, NodeId node, int32_t bucket = kNone) { inFlight.push({end, node, bucket}); }
  bool hasInFlight() const { return !inFlight.empty(); }
  const InFlight &earliest() const { return inFlight.top(); }
  InFlight takeEarliest() {
    InFlight result = inFlight.top();
    inFlight.pop();
    return result;
  }

private:
  void leaveRemaining(NodeId node);

  const ScheduleFacts &facts;
  const Problem &problem;
  Ns compute = 0;
  /// Compute time of what has not been placed, and the part of it that packs may still absorb (casts).
  Ns remainingCompute = 0, remainingFusable = 0;
  /// The estimate of the makespan, its least distance from the remaining compute time, and the reference's compute
  /// time.
  Ns horizon = 0, slack = 0, referenceCompute = 0;
  /// Indexed by lane, and by node (for starts).
  std::vector<Ns> laneFree, ends;
  std::priority_queue<InFlight, std::vector<InFlight>, std::greater<>> inFlight;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_CLOCK_H
