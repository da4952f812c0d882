//===- ContentionClock.h - The clock of activities that share resources -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays computations and collectives that share the resources of a device, by the rules of Models.md,
// "Contention". A caller moves the clock along the compute lane: it issues collectives, runs computations, and waits.
// Nothing that is issued later begins before the clock, so what has been played never changes. The timeline and the
// decoder both use this clock; the verifier has one of its own. Private to lib/Scheduling.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONCLOCK_H
#define COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONCLOCK_H

#include "CommSched/Scheduling/Time/Timeline.h"
#include <deque>

namespace commsched {

/// The rate of each activity of a set that runs together, in millionths of the undisturbed rate, rounded down; at least
/// 1. Of each resource that they need more of than there is, those that need no more than their weighted share of it
/// are satisfied, and the others share the rest in the ratio of their weights (weighted max-min fairness); the rate is
/// the smallest share of what is needed. O(activities^2 x resources) at worst, O(activities x resources) if there is
/// enough of everything.
void shareResources(llvm::ArrayRef<const Demand *> demands, llvm::MutableArrayRef<int64_t> rates);

/// The rate of one more activity beside others, as in shareResources(). O(activities^2 x resources).
int64_t rateBeside(llvm::ArrayRef<const Demand *> others, const Demand &demand);

/// What runs, what is queued, and what time it is. Times saturate at kMaxTotalNs. Every activity costs one event when
/// it begins and one when it ends, and an event O(activities in flight x resources).
class ContentionClock {
public:
  /// The number of a collective, in the order of issue() calls.
  using Ticket = int32_t;

  /// Keeps a reference to `problem`.
  explicit ContentionClock(const Problem &problem) : problem(problem) { reset(); }
  /// What runs points to its demand.
  ContentionClock(const ContentionClock &) = delete;
  ContentionClock &operator=(const ContentionClock &) = delete;

  /// Begins at time 0 with nothing in flight but what came in (Problem::busyUntil). O(lanes).
  void reset();

  /// The compute lane's time, ns.
  Ns now() const { return state.time; }

  /// Puts a collective on a lane, behind what was issued on it before.
  Ticket issue(LaneId lane, Ns cost, const Demand &demand);
  bool isOver(Ticket ticket) const { return flights[ticket].end >= 0; }
  /// When a collective that is over began and ended, ns.
  Ns beginOf(Ticket ticket) const { return flights[ticket].begin; }
  Ns endOf(Ticket ticket) const { return flights[ticket].end; }
  /// A lower bound on the end of a collective, ns; its end if it is over. O(1).
  Ns leastEndOf(Ticket ticket) const;
  /// When a collective ends if nothing is issued or computed before, ns. O(events until then x activities in flight).
  Ns endIfIdle(Ticket ticket) const;
  /// A lower bound on the time at which a lane has nothing left, or the time at which it had, ns. O(1).
  Ns freeAt(LaneId lane) const;

  /// Lets time pass until `until`, ns; does nothing if that is over.
  void advanceTo(Ns until);
  /// Runs a computation. Returns when it ends, ns.
  Ns run(Ns cost, const Demand &demand);
  /// Begins a computation, which has not ended before computes() is false; one at a time. `demand` is kept as a
  /// reference until then.
  void begin(Ns cost, const Demand &demand);
  bool computes() const;
  /// Lets time pass until something ends, or until `until`, ns, if that comes first.
  void advanceToEnd(Ns until) { step(until); }
  /// Whether nothing is in flight or queued on a lane.
  bool isIdle(LaneId lane) const { return state.over[lane] == lanes[lane].queue.size(); }
  /// Lets time pass until a collective is over.
  void finish(Ticket ticket);
  /// Lets time pass until nothing of a lane is left.
  void clear(LaneId lane);
  /// Lets time pass until nothing is left at all. Returns the time, ns.
  Ns drain();

  /// Whether any collective is in flight.
  bool anyInFlight() const { return !state.running.empty(); }
  /// The sum of all rates if activities with these demands began now, in millionths. As shareResources().
  int64_t progressWith(llvm::ArrayRef<const Demand *> more) const;

  /// Calls `visit` with the ticket, the lane and what is left, in millionths of a nanosecond, of all collectives that
  /// are not over, lane by lane in the order of issue. O(lanes + collectives that are not over).
  template <class Visit> void forEachLeft(Visit visit) const {
    for (LaneId lane = 1; lane < static_cast<LaneId>(lanes.size()); ++lane) {
      const Activity *front = frontOf(lane);
      for (size_t at = state.over[lane]; at < lanes[lane].queue.size(); ++at) {
        Ticket ticket = lanes[lane].queue[at];
        bool runs = front && front->ticket == ticket;
        visit(ticket, lane, runs ? front->left : flights[ticket].work);
      }
    }
  }
  /// Begins at time `begin`, ns, with nothing in flight. O(collectives since the last reset + lanes).
  void resetTo(Ns begin);
  /// As issue(), of a collective of which this much is left, in millionths of a nanosecond.
  Ticket issueLeft(LaneId lane, Wide left, const Demand &demand);

  /// Begins to write down how much of each resource is in use.
  void record(std::vector<ResourceUse> &into) { uses = &into; }

private:
  /// A collective, by ticket; `end` is negative while it is not over.
  struct Flight {
    LaneId lane;
    Ns begin, end;
    Ns cost;
    /// In millionths of a nanosecond.
    Wide work;
    /// The cost of all that was issued on the lane up to it, itself included, ns.
    Ns issuedUpTo;
    Demand demand;
  };
  struct Lane {
    std::vector<Ticket> queue;
    /// When the last collective ended, ns.
    Ns lastEnd = 0;
  };
  /// What runs; `ticket` is kNone for the computation.
  struct Activity {
    Ticket ticket;
    const Demand *demand;
    /// In units of ns / kWhole.
    Wide left;
    int64_t rate;
  };
  /// The part of the clock that changes while time passes.
  struct State {
    Ns time = 0;
    llvm::SmallVector<Activity, 4> running;
    /// Indexed by lane: how many of its collectives are over.
    llvm::SmallVector<size_t, 4> over;
    /// Whether the rates are those of `running`.
    bool shared = true;
  };

  /// The activity of a lane in front; null if nothing is left there.
  const Activity *frontOf(LaneId lane) const;
  void share(State &current) const;
  template <class OnEnd> void step(State &current, Ns until, OnEnd onEnd) const;
  void step(Ns until);
  void start(LaneId lane);
  void writeDown();

  const Problem &problem;
  /// Indexed by ticket. A deque, because activities point to its demands.
  std::deque<Flight> flights;
  std::vector<Lane> lanes;
  State state;
  std::vector<ResourceUse> *uses = nullptr;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONCLOCK_H
