//===- StreamTimeline.cpp - Makespan of an order on several streams ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every stream is a queue in the order of the program. The next step is the one that can happen first: of an anchor or
// a start, when its stream comes to it; of a computation, when it begins. So steps happen in the order of time. When
// something ends depends on what begins meanwhile if resources are shared, so the clock is moved from one end to the
// next, and everything is done that can be done by then.
//
//===------------------------------------------------------------------------------------------===//

#include "StreamTimeline.h"
#include "ContentionClock.h"
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

using namespace commsched;

namespace {

/// Nodes in the order of the program, on a stream or for a lane.
struct NodeQueue {
  std::vector<NodeId> nodes;
  /// How many of them are over.
  size_t head = 0;
  bool isEmpty() const { return head == nodes.size(); }
  NodeId first() const { return nodes[head]; }
};

struct StreamQueue : NodeQueue {
  /// When the last of its nodes that are over ended, ns.
  Ns clock = 0;
  bool computes = false;
  /// The starts that were issued so far, and the latest end of each prefix of which all ends are known.
  std::vector<NodeId> starts;
  std::vector<Ns> latestEnds = {0};
};

/// Visits the communication lanes that a node occupies.
template <class Visit> void forEachLaneOf(const Problem &problem, const Node &node, Visit visit) {
  if (node.region != kNone)
    std::for_each(problem.regions[node.region].lanes.begin(), problem.regions[node.region].lanes.end(), visit);
  else if (node.lane != kComputeLane)
    visit(node.lane);
}

/// Whether the compute lane is busy with the node for some time.
bool computes(const Node &node) {
  return (node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid) && node.cost > 0;
}

/// Puts the nodes of an order into the queues of their streams and lanes.
void enqueue(const Problem &problem, llvm::ArrayRef<NodeId> order, std::vector<StreamQueue> &streams,
             std::vector<NodeQueue> &lanes) {
  for (NodeId id : order) {
    const Node &node = problem.nodes[id];
    streams[node.stream].nodes.push_back(id);
    streams[node.stream].computes |= computes(node);
    forEachLaneOf(problem, node, [&](LaneId lane) { lanes[lane].nodes.push_back(id); });
  }
}

/// The first node of a stream that has the earliest turn, and the turn, ns; kNone if no turn is known. Of equal turns,
/// what takes no time comes first, because it may free others; then that of the stream that came to it first, then the
/// first in the program. `turnOf` says when a node may take place, as an optional; `placeOf` its place in the order.
template <class TurnOf, class PlaceOf>
std::pair<NodeId, Ns> earliestHead(const Problem &problem, llvm::ArrayRef<StreamQueue> streams, TurnOf turnOf,
                                   PlaceOf placeOf) {
  NodeId best = kNone;
  std::tuple<Ns, bool, Ns, int32_t> earliest = {0, false, 0, 0};
  for (const StreamQueue &stream : streams) {
    if (stream.isEmpty())
      continue;
    NodeId id = stream.first();
    std::optional<Ns> turn = turnOf(id);
    if (!turn)
      continue;
    std::tuple<Ns, bool, Ns, int32_t> key = {*turn, computes(problem.nodes[id]), stream.clock, placeOf(id)};
    if (best == kNone || key < earliest) {
      best = id;
      earliest = key;
    }
  }
  return {best, std::get<0>(earliest)};
}

class StreamPlayer {
public:
  StreamPlayer(const Problem &problem, llvm::ArrayRef<NodeId> order, bool sharesResources)
      : problem(problem), sharesResources(sharesResources), clock(problem), streams(problem.streams.size()),
        queues(problem.numLanes()), hybridEnds(problem.numLanes(), 0), states(problem.size()) {
    line.start.assign(problem.size(), 0);
    line.end.assign(problem.size(), 0);
    line.exposed.assign(problem.size(), 0);
    line.load.assign(problem.numLanes(), 0);
    clock.record(line.uses);
    enqueue(problem, order, streams, queues);
    for (NodeId id : order) {
      states[id].place = left++;
      states[id].isOver = false;
    }
  }

  Timeline run() {
    while (left > 0 || working != kNone) {
      auto [id, turn] = next();
      if (id != kNone && (turn <= clock.now() || clock.now() >= kMaxTotalNs)) {
        play(id);
        --left;
        continue;
      }
      clock.advanceToEnd(id == kNone ? kMaxTotalNs : turn);
      if (working != kNone && !clock.computes())
        endWork();
      for (StreamQueue &stream : streams)
        learnEnds(stream);
    }
    Ns compute = 0;
    for (const StreamQueue &stream : streams)
      compute = std::max(compute, stream.clock);
    line.makespan = std::max(compute, clock.drain());
    for (NodeId id = 0; id < problem.size(); ++id)
      if (problem.nodes[id].kind == NodeKind::Start && states[id].ticket != kNone) {
        line.start[id] = clock.beginOf(states[id].ticket);
        line.end[id] = clock.endOf(states[id].ticket);
        line.load[problem.nodes[id].lane] += line.end[id] - line.start[id];
      }
    if (problem.joinsAtEnd)
      line.exposedAtEnd = line.makespan - compute;
    line.exposedTotal += line.exposedAtEnd;
    return std::move(line);
  }

private:
  struct State {
    int32_t place = kNone;
    /// Of all but starts: whether it is over. An event is over when its stream has come to it; see endOfEvent().
    bool isOver = true;
    /// Of a start: whether its stream has come to it, and its collective once the lane has.
    bool isIssued = false;
    ContentionClock::Ticket ticket = kNone;
    /// Of an event, how many starts it covers.
    size_t covered = 0;
  };

  const Demand &demandOf(const Node &node) const {
    static const Demand none;
    return sharesResources ? problem.demandOf(node) : none;
  }

  template <class Visit> void forEachLane(const Node &node, Visit visit) const { forEachLaneOf(problem, node, visit); }

  /// When a collective ended; none if it has not.
  std::optional<Ns> endOfStart(NodeId id) const {
    // A start outside of the order never runs, and is not waited for.
    if (states[id].place == kNone)
      return 0;
    if (states[id].ticket == kNone || !clock.isOver(states[id].ticket))
      return std::nullopt;
    return clock.endOf(states[id].ticket);
  }

  void learnEnds(StreamQueue &stream) {
    while (stream.latestEnds.size() <= stream.starts.size()) {
      std::optional<Ns> end = endOfStart(stream.starts[stream.latestEnds.size() - 1]);
      if (!end)
        break;
      stream.latestEnds.push_back(std::max(stream.latestEnds.back(), *end));
    }
  }

  /// When an event happened; none if it has not.
  std::optional<Ns> endOfEvent(NodeId id) const {
    const StreamQueue &stream = streams[problem.nodes[id].stream];
    if (!states[id].isOver || states[id].covered >= stream.latestEnds.size())
      return std::nullopt;
    return std::max(line.end[id], stream.latestEnds[states[id].covered]);
  }

  /// When what a node waits for has ended; none if it has not.
  std::optional<Ns> awaitedEnd(NodeId id) const {
    const Node &node = problem.nodes[id];
    if (node.event != kNone) {
      std::optional<Ns> end = endOfEvent(node.event);
      return end ? std::optional<Ns>(*end + node.issue) : std::nullopt;
    }
    if (node.region == kNone)
      return node.start == kNone ? std::optional<Ns>(node.ready) : endOfStart(node.start);
    Ns latest = node.ready;
    for (NodeId start : problem.regions[node.region].starts) {
      std::optional<Ns> end = endOfStart(start);
      if (!end)
        return std::nullopt;
      latest = std::max(latest, *end);
    }
    return latest;
  }

  Ns freeSince(LaneId lane) const { return std::max(clock.freeAt(lane), hybridEnds[lane]); }

  /// When the node at the head of a stream takes place; none if that depends on what has not ended.
  std::optional<Ns> turnOf(NodeId id) const {
    const Node &node = problem.nodes[id];
    bool isBusy = working != kNone && (computes(node) || problem.nodes[working].stream == node.stream);
    std::optional<Ns> awaited = awaitedEnd(id);
    if (!awaited || isBusy)
      return std::nullopt;
    Ns turn = std::max({clock.now(), streams[node.stream].clock, *awaited});
    if (node.kind == NodeKind::Start)
      return turn;
    // A lane serves in the order of the program.
    bool isFree = true;
    forEachLane(node, [&](LaneId lane) { isFree &= queues[lane].first() == id && clock.isIdle(lane); });
    return isFree ? std::optional<Ns>(turn) : std::nullopt;
  }

  /// kNone if nothing can take place before something ends.
  std::pair<NodeId, Ns> next() const {
    return earliestHead(
        problem, streams, [&](NodeId id) { return turnOf(id); }, [&](NodeId id) { return states[id].place; });
  }

  /// Plays a node now.
  void play(NodeId id) {
    const Node &node = problem.nodes[id];
    StreamQueue &stream = streams[node.stream];
    Ns came = stream.clock, now = clock.now();
    ++stream.head;
    if (node.kind == NodeKind::Start) {
      states[id].isIssued = true;
      stream.clock = now + node.issue;
      stream.starts.push_back(id);
      line.load[kComputeLane] += node.issue;
      serve(node.lane);
      learnEnds(stream);
      return;
    }
    line.start[id] = computes(node) ? now : came;
    if (node.region != kNone && computes(node)) {
      // As on one stream: only what is waited for counts, not the time for which compute or a lane is not free.
      Ns free = std::max(came, computeFree);
      forEachLane(node, [&](LaneId lane) { free = std::max(free, freeSince(lane)); });
      line.exposedTotal += line.exposed[id] = now - free;
    }
    if (computes(node)) {
      working = id;
      clock.begin(node.cost, demandOf(node));
      return;
    }
    states[id].isOver = true;
    states[id].covered = stream.starts.size();
    line.end[id] = stream.clock = now;
    // On a stream that computes nothing, nothing stands still.
    if (node.kind == NodeKind::Wait && stream.computes)
      line.exposedTotal += line.exposed[id] = now - came;
    leaveLanes(node);
  }

  /// The computation that runs has ended.
  void endWork() {
    NodeId id = std::exchange(working, kNone);
    const Node &node = problem.nodes[id];
    states[id].isOver = true;
    line.end[id] = streams[node.stream].clock = computeFree = clock.now();
    Ns duration = line.end[id] - line.start[id];
    line.load[kComputeLane] += duration;
    forEachLane(node, [&](LaneId lane) {
      line.load[lane] += duration;
      hybridEnds[lane] = clock.now();
    });
    leaveLanes(node);
  }

  /// A hybrid has been at the head of its lanes.
  void leaveLanes(const Node &node) {
    forEachLane(node, [&](LaneId lane) { ++queues[lane].head; });
    forEachLane(node, [&](LaneId lane) { serve(lane); });
  }

  /// Puts the starts at the head of a lane that have been issued behind what is in flight there.
  void serve(LaneId lane) {
    for (NodeQueue &queue = queues[lane]; !queue.isEmpty() && states[queue.first()].isIssued; ++queue.head) {
      const Node &node = problem.nodes[queue.first()];
      states[queue.first()].ticket = clock.issue(lane, node.cost, demandOf(node));
    }
  }

  const Problem &problem;
  const bool sharesResources;
  ContentionClock clock;
  std::vector<StreamQueue> streams;
  /// By lane: what occupies it, in the order of the program.
  std::vector<NodeQueue> queues;
  /// By lane: when the last hybrid left it, ns.
  std::vector<Ns> hybridEnds;
  /// By node.
  std::vector<State> states;
  int32_t left = 0;
  /// The computation that runs: one at a time, whatever its stream. And when the last one ended, ns.
  NodeId working = kNone;
  Ns computeFree = 0;
  Timeline line;
};

} // namespace

Timeline commsched::simulateStreams(const Problem &problem, llvm::ArrayRef<NodeId> order, bool sharesResources) {
  return StreamPlayer(problem, order, sharesResources).run();
}
