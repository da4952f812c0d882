//===- ContentionPlayer.h - Plays nodes on the clock of shared resources ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Moves the contention clock over nodes. What a node does is what it does in Timeline.cpp; only the durations differ. A
// player can stop in front of a node and go on from there with other nodes. Private to lib/Scheduling.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONPLAYER_H
#define COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONPLAYER_H

#include "ContentionClock.h"

namespace commsched {

class ContentionPlayer {
public:
  /// The state between two nodes.
  struct Stop {
    Ns time = 0;
    /// What is in flight or queued, lane by lane; the starts, or kNone of what came in, and what is left of it, in
    /// millionths of a nanosecond.
    struct Pending {
      NodeId start;
      LaneId lane;
      Wide left;
      bool operator==(const Pending &other) const {
        return start == other.start && lane == other.lane && left == other.left;
      }
    };
    std::vector<Pending> pending;
  };

  /// Keeps a reference to `problem`. O(N + lanes).
  explicit ContentionPlayer(const Problem &problem)
      : problem(problem), clock(problem), tickets(problem.size(), {0, kNone}) {
    for (size_t lane = 1; lane < problem.busyUntil.size(); ++lane)
      if (problem.busyUntil[lane] > 0)
        starts.push_back(kNone);
  }

  /// Plays a node. Fills in what a timeline says of it, except when collectives begin and end.
  void play(NodeId id, Timeline *line = nullptr);

  Ns now() const { return clock.now(); }
  /// Plays what is left in flight. Returns the makespan, ns.
  Ns finish() { return clock.drain(); }
  void record(std::vector<ResourceUse> &into) { clock.record(into); }
  /// Fills in when collectives began and ended.
  void addFlights(Timeline &line) const;

  /// O(what is in flight or queued).
  void save(Stop &stop) const;
  /// Goes on from `stop`: what had been issued and is not pending there is over. O(what was in flight since the last
  /// resume() + lanes).
  void resume(const Stop &stop);

private:
  llvm::ArrayRef<LaneId> lanesOf(const Node &node) const {
    if (node.region != kNone)
      return problem.regions[node.region].lanes;
    return node.lane == kComputeLane ? llvm::ArrayRef<LaneId>() : llvm::ArrayRef<LaneId>(node.lane);
  }
  void await(NodeId start, Ns ready);

  const Problem &problem;
  ContentionClock clock;
  /// How often resume() was called. A ticket of an earlier time is over.
  int32_t age = 0;
  /// Indexed by node, for starts: the age and the ticket.
  std::vector<std::pair<int32_t, ContentionClock::Ticket>> tickets;
  /// Indexed by ticket: the start.
  std::vector<NodeId> starts;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_TIME_CONTENTIONPLAYER_H
