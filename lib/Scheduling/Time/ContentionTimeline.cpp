//===- ContentionTimeline.cpp - The timeline of activities that share resources ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Moves the contention clock over an order.
//
//===------------------------------------------------------------------------------------------===//

#include "ContentionTimeline.h"
#include "ContentionPlayer.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

void ContentionPlayer::await(NodeId start, Ns ready) {
  if (start == kNone)
    return clock.advanceTo(ready);
  if (auto [when, ticket] = tickets[start]; when == age && ticket != kNone)
    clock.finish(ticket);
}

void ContentionPlayer::play(NodeId id, Timeline *line) {
  const Node &node = problem.nodes[id];
  Ns came = clock.now(), free = came, begin = came;
  auto expose = [&](Ns exposed) {
    line->exposed[id] = exposed;
    line->exposedTotal += exposed;
  };
  if (node.kind == NodeKind::Start) {
    tickets[id] = {age, clock.issue(node.lane, node.cost, problem.demandOf(node))};
    starts.push_back(id);
    clock.advanceTo(came + node.issue);
    if (line)
      line->load[kComputeLane] += node.issue;
    return;
  }
  if (node.kind == NodeKind::Wait) {
    await(node.start, node.ready);
    if (line)
      expose(clock.now() - came);
  } else {
    for (LaneId lane : lanesOf(node))
      clock.clear(lane);
    free = clock.now();
    if (node.region != kNone) {
      clock.advanceTo(node.ready);
      for (NodeId start : problem.regions[node.region].starts)
        await(start, 0);
    }
    begin = clock.now();
    clock.run(node.cost, problem.demandOf(node));
    if (line) {
      expose(begin - free);
      for (LaneId lane : lanesOf(node))
        line->load[lane] += clock.now() - begin;
      line->load[kComputeLane] += clock.now() - begin;
    }
  }
  if (line) {
    line->start[id] = begin;
    line->end[id] = clock.now();
  }
}

void ContentionPlayer::addFlights(Timeline &line) const {
  for (auto [ticket, id] : llvm::enumerate(starts)) {
    if (id == kNone)
      continue;
    line.start[id] = clock.beginOf(static_cast<ContentionClock::Ticket>(ticket));
    line.end[id] = clock.endOf(static_cast<ContentionClock::Ticket>(ticket));
    line.load[problem.nodes[id].lane] += line.end[id] - line.start[id];
  }
}

void ContentionPlayer::save(Stop &stop) const {
  stop.time = clock.now();
  stop.pending.clear();
  clock.forEachLeft([&](ContentionClock::Ticket ticket, LaneId lane, Wide left) {
    stop.pending.push_back({starts[ticket], lane, left});
  });
}

void ContentionPlayer::resume(const Stop &stop) {
  ++age;
  starts.clear();
  clock.resetTo(stop.time);
  for (const Stop::Pending &pending : stop.pending) {
    Demand demand = pending.start == kNone ? Demand() : problem.demandOf(problem.nodes[pending.start]);
    ContentionClock::Ticket ticket = clock.issueLeft(pending.lane, pending.left, demand);
    starts.push_back(pending.start);
    if (pending.start != kNone)
      tickets[pending.start] = {age, ticket};
  }
}

Timeline commsched::simulateContention(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  Timeline line;
  line.start.assign(problem.size(), 0);
  line.end.assign(problem.size(), 0);
  line.exposed.assign(problem.size(), 0);
  line.load.assign(problem.numLanes(), 0);
  ContentionPlayer player(problem);
  player.record(line.uses);
  for (NodeId id : order)
    player.play(id, &line);
  Ns compute = player.now();
  line.makespan = player.finish();
  player.addFlights(line);
  if (problem.joinsAtEnd)
    line.exposedAtEnd = line.makespan - compute;
  line.exposedTotal += line.exposedAtEnd;
  return line;
}

Ns commsched::contendedMakespanOf(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  ContentionPlayer player(problem);
  for (NodeId id : order)
    player.play(id);
  return player.finish();
}
