//===- StreamTimeline.cpp - What an order costs on several streams ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every stream is a queue in the order of the program. The next step is the one that can happen first: of an anchor or
// a start, when its stream comes to it; of a computation, when it begins. So steps happen in the order of time.
//
//===------------------------------------------------------------------------------------------===//

#include "StreamTimeline.h"
#include "StreamQueues.h"
#include <optional>

using namespace commsched;

namespace {

class StreamPlayer {
public:
  StreamPlayer(const Problem &problem, llvm::ArrayRef<NodeId> order)
      : problem(problem), streams(problem.streams.size()), queues(problem.numLanes()), states(problem.size()) {
    problem.beginLanes(lanes);
    line.start.assign(problem.size(), 0);
    line.end.assign(problem.size(), 0);
    line.exposed.assign(problem.size(), 0);
    line.load.assign(problem.numLanes(), 0);
    enqueue(problem, order, streams, queues);
    for (NodeId id : order) {
      states[id].place = left++;
      states[id].isOver = false;
    }
  }

  Timeline run() {
    for (; left > 0; --left) {
      auto [id, turn] = next();
      play(id, turn);
    }
    Ns compute = 0;
    for (const Stream &stream : streams)
      compute = std::max(compute, stream.clock);
    line.makespan = std::max(compute, *std::max_element(lanes.begin(), lanes.end()));
    if (problem.joinsAtEnd)
      line.exposedAtEnd = line.makespan - compute;
    line.exposedTotal += line.exposedAtEnd;
    return std::move(line);
  }

private:
  using Queue = NodeQueue;
  using Stream = StreamQueue;
  struct State {
    int32_t place = kNone;
    /// Whether start and end are known. An event is over when its stream has come to it; see endOfEvent().
    bool isOver = true;
    /// Of a start, when its stream came to it. Of an event, how many starts it covers.
    Ns issued = kNone;
    size_t covered = 0;
  };

  template <class Visit> void forEachLane(const Node &node, Visit visit) const { forEachLaneOf(problem, node, visit); }

  /// When an event happens; none if that is not known yet.
  std::optional<Ns> endOfEvent(NodeId id) const {
    const Stream &stream = streams[problem.nodes[id].stream];
    if (!states[id].isOver || states[id].covered >= stream.latestEnds.size())
      return std::nullopt;
    return std::max(line.end[id], stream.latestEnds[states[id].covered]);
  }

  /// When what a node waits for has ended; none if that is not known yet.
  std::optional<Ns> awaitedEnd(NodeId id) const {
    const Node &node = problem.nodes[id];
    if (node.event != kNone) {
      std::optional<Ns> end = endOfEvent(node.event);
      return end ? std::optional<Ns>(*end + node.issue) : std::nullopt;
    }
    if (node.region != kNone) {
      for (NodeId start : problem.regions[node.region].starts)
        if (!states[start].isOver)
          return std::nullopt;
      return problem.endOfAwaited(node, line.end);
    }
    if (node.start == kNone)
      return node.ready;
    return states[node.start].isOver ? std::optional<Ns>(line.end[node.start]) : std::nullopt;
  }

  /// When the node at the head of a stream takes place. A start is issued at its turn, whenever its lane is free.
  std::optional<Ns> turnOf(NodeId id) const {
    const Node &node = problem.nodes[id];
    std::optional<Ns> awaited = awaitedEnd(id);
    if (!awaited)
      return std::nullopt;
    Ns turn = std::max(streams[node.stream].clock, *awaited);
    if (node.kind == NodeKind::Start)
      return turn;
    if (computes(node))
      turn = std::max(turn, computeFree);
    // A lane serves in the order of the program.
    bool isFirst = true;
    forEachLane(node, [&](LaneId lane) {
      isFirst &= queues[lane].first() == id;
      turn = std::max(turn, lanes[lane]);
    });
    return isFirst ? std::optional<Ns>(turn) : std::nullopt;
  }

  /// Of all that is left, the first in the program has a known turn, so there is one.
  std::pair<NodeId, Ns> next() const {
    return earliestHead(
        problem, streams, [&](NodeId id) { return turnOf(id); }, [&](NodeId id) { return states[id].place; });
  }

  void play(NodeId id, Ns turn) {
    const Node &node = problem.nodes[id];
    Stream &stream = streams[node.stream];
    Ns came = stream.clock;
    ++stream.head;
    if (node.kind == NodeKind::Start) {
      states[id].issued = turn;
      stream.clock = turn + node.issue;
      stream.starts.push_back(id);
      line.load[kComputeLane] += node.issue;
      serve(node.lane);
      return;
    }
    states[id].isOver = true;
    if (computes(node))
      return playWork(id, node, came, turn);
    line.start[id] = came;
    line.end[id] = stream.clock = turn;
    states[id].covered = stream.starts.size();
    // On a stream that computes nothing, nothing stands still.
    if (node.kind == NodeKind::Wait && stream.computes)
      line.exposedTotal += line.exposed[id] = turn - came;
    leaveLanes(node, turn);
  }

  void playWork(NodeId id, const Node &node, Ns came, Ns begin) {
    const Ns duration = node.cost;
    if (node.region != kNone) {
      // As on one stream: only what is waited for counts, not the time for which compute or a lane is not free.
      Ns free = std::max(came, computeFree);
      forEachLane(node, [&](LaneId lane) { free = std::max(free, lanes[lane]); });
      line.exposedTotal += line.exposed[id] = begin - free;
    }
    line.start[id] = begin;
    line.end[id] = streams[node.stream].clock = computeFree = begin + duration;
    line.load[kComputeLane] += duration;
    forEachLane(node, [&](LaneId lane) { line.load[lane] += duration; });
    leaveLanes(node, begin + duration);
  }

  /// A hybrid has been at the head of its lanes.
  void leaveLanes(const Node &node, Ns end) {
    forEachLane(node, [&](LaneId lane) {
      ++queues[lane].head;
      lanes[lane] = std::max(lanes[lane], end);
    });
    forEachLane(node, [&](LaneId lane) { serve(lane); });
  }

  /// Gives the lane to the starts at its head that have been issued.
  void serve(LaneId lane) {
    for (Queue &queue = queues[lane]; !queue.isEmpty() && states[queue.first()].issued != kNone; ++queue.head) {
      NodeId id = queue.first();
      const Node &node = problem.nodes[id];
      Ns begin = std::max(states[id].issued, lanes[lane]);
      line.start[id] = begin;
      line.end[id] = lanes[lane] = begin + node.cost;
      line.load[lane] += node.cost;
      states[id].isOver = true;
      Stream &stream = streams[node.stream];
      while (stream.latestEnds.size() <= stream.starts.size()) {
        NodeId next = stream.starts[stream.latestEnds.size() - 1];
        if (!states[next].isOver)
          break;
        stream.latestEnds.push_back(std::max(stream.latestEnds.back(), line.end[next]));
      }
    }
  }

  const Problem &problem;
  std::vector<Stream> streams;
  /// By lane: what occupies it, in the order of the program.
  std::vector<Queue> queues;
  /// By lane: when it is free.
  std::vector<Ns> lanes;
  /// By node.
  std::vector<State> states;
  int32_t left = 0;
  /// When the last computation ends: one runs at a time, whatever its stream.
  Ns computeFree = 0;
  Timeline line;
};

} // namespace

Timeline commsched::simulateStreams(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  return StreamPlayer(problem, order).run();
}
