//===- StreamTimelineTest.cpp - Tests of the time model on several streams --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Cases by hand, and random programs against an oracle that lets one nanosecond after the other pass.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Time/Timeline.h"
#include "RandomDemands.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <optional>
#include <random>

using namespace commsched;
using namespace commsched::test;

namespace {

struct StreamProgram {
  Problem problem;

  explicit StreamProgram(int streams, LaneId lanes = 3) {
    for (int stream = 0; stream < streams; ++stream)
      problem.streams.push_back(stream);
    for (LaneId lane = 0; lane < lanes; ++lane)
      problem.laneNames.push_back("lane" + std::to_string(lane));
  }

  NodeId add(int stream, Node node) {
    node.stream = stream;
    problem.nodes.push_back(node);
    if (node.start != kNone)
      problem.preds.append(node.start);
    else if (node.event != kNone)
      problem.preds.append(node.event);
    else
      problem.preds.append({});
    problem.touches.append({});
    return problem.size() - 1;
  }
  NodeId compute(int stream, Ns cost) {
    Node node;
    node.cost = cost;
    return add(stream, node);
  }
  NodeId start(int stream, LaneId lane, Ns cost, Ns issue = 0) {
    Node node;
    node.kind = NodeKind::Start;
    node.lane = lane;
    node.cost = cost;
    node.issue = issue;
    return add(stream, node);
  }
  NodeId hybrid(int stream, LaneId lane, Ns cost) {
    Node node;
    node.kind = NodeKind::Hybrid;
    node.lane = lane;
    node.cost = cost;
    return add(stream, node);
  }
  NodeId wait(int stream, NodeId start) {
    Node node;
    node.kind = NodeKind::Wait;
    node.start = start;
    return add(stream, node);
  }
  NodeId record(int stream) {
    Node node;
    node.records = true;
    return add(stream, node);
  }
  NodeId await(int stream, NodeId event, Ns delay = 0) {
    Node node;
    node.event = event;
    node.issue = delay;
    return add(stream, node);
  }

  Timeline play() {
    problem.finalize();
    EXPECT_EQ(problem.validate(), "");
    return simulate(problem, identityOrder(problem));
  }
};

// What waits for an event of another stream begins a little after it, but loses nothing if the event is long over.
TEST(StreamTimeline, AnEventTakesTimeToReachAnotherStream) {
  StreamProgram program(2);
  program.compute(0, 100);
  NodeId event = program.record(0);
  NodeId await = program.await(1, event, 7);
  NodeId start = program.start(1, 1, 30);
  program.compute(0, 50);
  NodeId late = program.await(1, event, 40);
  Timeline line = program.play();
  EXPECT_EQ(line.end[await], 107);
  EXPECT_EQ(line.start[start], 107);
  EXPECT_EQ(line.end[late], 140);
  EXPECT_EQ(line.makespan, 150);
}

// A start on a stream of its own begins at once, wherever it is in the program.
TEST(StreamTimeline, AStartDoesNotWaitForOtherStreams) {
  StreamProgram program(2);
  program.compute(0, 100);
  NodeId start = program.start(1, 1, 30);
  NodeId wait = program.wait(0, start);
  Timeline line = program.play();
  EXPECT_EQ(line.start[start], 0);
  EXPECT_EQ(line.exposed[wait], 0);
  EXPECT_EQ(line.makespan, 100);
  EXPECT_EQ(makespanOf(program.problem, identityOrder(program.problem)), 100);
}

// An event holds a stream back until the work before it has ended; it covers collectives, too.
TEST(StreamTimeline, EventsCoverWorkAndCollectives) {
  StreamProgram program(2);
  program.compute(0, 10);
  program.start(0, 1, 30);
  NodeId event = program.record(0);
  program.await(1, event);
  NodeId late = program.compute(1, 5);
  NodeId free = program.compute(0, 7);
  Timeline line = program.play();
  EXPECT_EQ(line.start[free], 10);
  EXPECT_EQ(line.start[late], 40);
  EXPECT_EQ(line.makespan, 45);
  EXPECT_EQ(line.exposedTotal, 0);
}

// One computation at a time: that of the stream that came to it first.
TEST(StreamTimeline, ComputationsShareOneResource) {
  StreamProgram program(3);
  NodeId start = program.start(1, 1, 20);
  program.wait(0, start);
  NodeId held = program.compute(0, 5), first = program.compute(2, 15), second = program.compute(2, 15);
  Timeline line = program.play();
  EXPECT_EQ(line.start[first], 0);
  EXPECT_EQ(line.start[second], 15);
  EXPECT_EQ(line.start[held], 30);
  EXPECT_EQ(line.makespan, 35);
}

// A lane serves in the order of the program, whatever the streams of its collectives. That holds up the collective, not
// its stream.
TEST(StreamTimeline, ALaneServesInTheOrderOfTheProgram) {
  StreamProgram program(3);
  program.compute(0, 50);
  NodeId first = program.start(0, 1, 10), second = program.start(1, 1, 10), after = program.compute(1, 5);
  NodeId event = program.record(1);
  NodeId last = program.await(2, event);
  Timeline line = program.play();
  EXPECT_EQ(line.start[first], 50);
  EXPECT_EQ(line.start[second], 60);
  EXPECT_EQ(line.start[after], 50);
  EXPECT_EQ(line.end[last], 70);
}

// What a stream waits for on which nothing is computed exposes nothing.
TEST(StreamTimeline, OnlyStreamsThatComputeStandStill) {
  StreamProgram program(2);
  NodeId start = program.start(1, 1, 20);
  program.wait(1, start);
  NodeId next = program.start(1, 2, 20);
  program.compute(0, 40);
  NodeId last = program.wait(0, next);
  Timeline line = program.play();
  EXPECT_EQ(line.start[next], 20);
  EXPECT_EQ(line.exposedTotal, 0);
  EXPECT_EQ(line.end[last], 40);
}

/// Lets time pass in steps of 1 ns.
struct Oracle {
  explicit Oracle(const Problem &problem)
      : problem(problem), issuedAt(problem.size(), kNone), ends(problem.size(), kNone), free(problem.streams.size(), 0),
        lanes(problem.numLanes(), 0) {}

  NodeId head(int stream) const {
    for (NodeId id = 0; id < problem.size(); ++id)
      if (problem.nodes[id].stream == stream && issuedAt[id] == kNone)
        return id;
    return kNone;
  }
  bool isFirstOnLane(NodeId id) const {
    for (NodeId other = 0; other < id; ++other)
      if (ends[other] == kNone && problem.nodes[other].lane == problem.nodes[id].lane)
        return false;
    return true;
  }
  bool isOver(NodeId id) const { return ends[id] != kNone && ends[id] <= now; }
  bool hasHappened(NodeId record) const {
    for (NodeId id = 0; id < record; ++id)
      if (problem.nodes[id].kind == NodeKind::Start && problem.nodes[id].stream == problem.nodes[record].stream &&
          !isOver(id))
        return false;
    return isOver(record);
  }
  /// When an event that has happened did so.
  Ns timeOf(NodeId record) const {
    Ns time = ends[record];
    for (NodeId id = 0; id < record; ++id)
      if (problem.nodes[id].kind == NodeKind::Start && problem.nodes[id].stream == problem.nodes[record].stream)
        time = std::max(time, ends[id]);
    return time;
  }
  bool mayPass(const Node &await) const { return hasHappened(await.event) && timeOf(await.event) + await.issue <= now; }
  static bool computes(const Node &node) {
    return node.cost > 0 && (node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid);
  }

  /// Takes what needs no compute, as long as something moves.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stream = 0; stream < static_cast<int>(free.size()); ++stream) {
        NodeId id = head(stream);
        if (id == kNone || free[stream] > now || computes(problem.nodes[id]))
          continue;
        const Node &node = problem.nodes[id];
        if ((node.kind == NodeKind::Wait && !isOver(node.start)) || (node.event != kNone && !mayPass(node)))
          continue;
        issuedAt[id] = now;
        moved = true;
        free[stream] = now + (node.kind == NodeKind::Start ? node.issue : 0);
        if (node.kind != NodeKind::Start)
          ends[id] = now;
      }
      for (NodeId id = 0; id < problem.size(); ++id) {
        const Node &node = problem.nodes[id];
        if (node.kind != NodeKind::Start || issuedAt[id] == kNone || ends[id] != kNone || !isFirstOnLane(id))
          continue;
        ends[id] = lanes[node.lane] = std::max(issuedAt[id], lanes[node.lane]) + node.cost;
        moved = true;
      }
    }
  }

  void run() {
    while (llvm::is_contained(ends, kNone)) {
      settle();
      NodeId best = kNone;
      for (int stream = 0; computeFree <= now && stream < static_cast<int>(free.size()); ++stream) {
        NodeId id = head(stream);
        if (id == kNone || free[stream] > now || !computes(problem.nodes[id]))
          continue;
        if (problem.nodes[id].kind == NodeKind::Hybrid && (!isFirstOnLane(id) || lanes[problem.nodes[id].lane] > now))
          continue;
        auto key = [&](NodeId node) { return std::make_pair(free[problem.nodes[node].stream], node); };
        if (best == kNone || key(id) < key(best))
          best = id;
      }
      if (best == kNone) {
        ++now;
        continue;
      }
      const Node &node = problem.nodes[best];
      issuedAt[best] = now;
      ends[best] = computeFree = free[node.stream] = now + node.cost;
      if (node.kind == NodeKind::Hybrid)
        lanes[node.lane] = ends[best];
    }
  }

  const Problem &problem;
  Ns now = 0, computeFree = 0;
  std::vector<Ns> issuedAt, ends;
  /// By stream: since when it has been at its head.
  std::vector<Ns> free;
  std::vector<Ns> lanes;
};

/// A program on two to four streams, with all that streams may do.
StreamProgram randomProgram(unsigned seed) {
  std::mt19937 random(seed);
  auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  int streams = 2 + below(3);
  StreamProgram program(streams);
  std::vector<NodeId> starts, records;
  for (int left = 3 + below(20); left > 0; --left) {
    int stream = below(streams), what = below(10);
    if (what < 2)
      starts.push_back(program.start(stream, 1 + below(2), below(9), below(4) == 0));
    else if (what < 4 && !starts.empty())
      program.wait(stream, starts[below(static_cast<int>(starts.size()))]);
    else if (what == 4)
      records.push_back(program.record(stream));
    else if (what < 7 && !records.empty())
      program.await(stream, records[below(static_cast<int>(records.size()))], below(3) == 0 ? below(5) : 0);
    else if (what == 7)
      program.hybrid(stream, 1 + below(2), 1 + below(5));
    else
      program.compute(stream, below(6));
  }
  return program;
}

TEST(StreamTimeline, AgreesWithTheOracleOnRandomPrograms) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    StreamProgram program = randomProgram(seed);
    Timeline line = program.play();
    Oracle oracle(program.problem);
    oracle.run();
    for (NodeId id = 0; id < program.problem.size(); ++id)
      if (!program.problem.nodes[id].records)
        ASSERT_EQ(line.end[id], oracle.ends[id]) << "seed " << seed << ", node " << id;
    Ns load = 0;
    for (const Node &node : program.problem.nodes)
      load += node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid ? node.cost : 0;
    ASSERT_GE(line.makespan, load) << seed;
  }
}

/// The same with contention: in each nanosecond, everything that runs does as much as its rate allows.
struct ContendedOracle {
  explicit ContendedOracle(const Problem &problem)
      : problem(problem), issuedAt(problem.size(), kNone), ends(problem.size(), kNone),
        free(problem.streams.size(), 0) {
    for (const Node &node : problem.nodes)
      left.push_back(static_cast<Wide>(node.cost) * kWhole);
  }

  NodeId head(int stream) const {
    for (NodeId id = 0; id < problem.size(); ++id)
      if (problem.nodes[id].stream == stream && issuedAt[id] == kNone)
        return id;
    return kNone;
  }
  bool isFirstOnLane(NodeId id) const {
    for (NodeId other = 0; other < id; ++other)
      if (ends[other] == kNone && problem.nodes[other].lane == problem.nodes[id].lane)
        return false;
    return true;
  }
  /// When an event happened; a time to come while it has not.
  Ns timeOf(NodeId record) const {
    Ns time = ends[record] == kNone ? kMaxTotalNs : ends[record];
    for (NodeId id = 0; id < record; ++id)
      if (problem.nodes[id].kind == NodeKind::Start && problem.nodes[id].stream == problem.nodes[record].stream)
        time = std::max(time, ends[id] == kNone ? kMaxTotalNs : ends[id]);
    return time;
  }
  bool runsOnItsLane(NodeId id) const {
    return problem.nodes[id].kind == NodeKind::Start && issuedAt[id] != kNone && ends[id] == kNone && isFirstOnLane(id);
  }

  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stream = 0; stream < static_cast<int>(free.size()); ++stream) {
        NodeId id = head(stream);
        if (id == kNone || free[stream] > now || Oracle::computes(problem.nodes[id]))
          continue;
        const Node &node = problem.nodes[id];
        if ((node.kind == NodeKind::Wait && ends[node.start] == kNone) ||
            (node.event != kNone && timeOf(node.event) + node.issue > now))
          continue;
        issuedAt[id] = now;
        moved = true;
        free[stream] = now + (node.kind == NodeKind::Start ? node.issue : 0);
        if (node.kind != NodeKind::Start)
          ends[id] = now;
      }
      for (NodeId id = 0; id < problem.size(); ++id)
        if (runsOnItsLane(id) && left[id] <= 0) {
          ends[id] = now;
          moved = true;
        }
    }
  }

  /// Begins the computation of the stream that came to it first.
  void beginWork() {
    for (int stream = 0; stream < static_cast<int>(free.size()); ++stream) {
      NodeId id = head(stream);
      if (id == kNone || free[stream] > now || !Oracle::computes(problem.nodes[id]))
        continue;
      if (problem.nodes[id].kind == NodeKind::Hybrid && !isFirstOnLane(id))
        continue;
      auto key = [&](NodeId node) { return std::make_pair(free[problem.nodes[node].stream], node); };
      if (working == kNone || key(id) < key(working))
        working = id;
    }
    if (working == kNone)
      return;
    issuedAt[working] = now;
    free[problem.nodes[working].stream] = kMaxTotalNs;
  }

  void tick() {
    std::vector<NodeId> running;
    std::vector<Demand> demands;
    for (NodeId id = 0; id < problem.size(); ++id)
      if (id == working || runsOnItsLane(id)) {
        running.push_back(id);
        demands.push_back(problem.demandOf(problem.nodes[id]));
      }
    std::vector<int64_t> rates = ratesByLevel(demands);
    ++now;
    for (size_t at = 0; at < running.size(); ++at)
      left[running[at]] -= rates[at];
    if (working == kNone || left[working] > 0)
      return;
    ends[working] = free[problem.nodes[working].stream] = now;
    working = kNone;
  }

  void run() {
    while (llvm::is_contained(ends, kNone)) {
      settle();
      if (working == kNone)
        beginWork();
      if (llvm::is_contained(ends, kNone))
        tick();
    }
  }

  const Problem &problem;
  Ns now = 0;
  std::vector<Ns> issuedAt, ends;
  /// By stream: since when it has been at its head.
  std::vector<Ns> free;
  std::vector<Wide> left;
  NodeId working = kNone;
};

TEST(StreamTimeline, ContentionAgreesWithTheOracleOnRandomPrograms) {
  int32_t slower = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    StreamProgram program = randomProgram(seed);
    Ns undisturbed = program.play().makespan;
    addRandomDemands(program.problem, seed);
    if (!program.problem.hasContention())
      continue;
    Timeline line = program.play();
    ContendedOracle oracle(program.problem);
    oracle.run();
    for (NodeId id = 0; id < program.problem.size(); ++id)
      if (!program.problem.nodes[id].records)
        ASSERT_EQ(line.end[id], oracle.ends[id]) << "seed " << seed << ", node " << id;
    EXPECT_EQ(undisturbedMakespanOf(program.problem, identityOrder(program.problem)), undisturbed);
    EXPECT_EQ(makespanOf(program.problem, identityOrder(program.problem)), line.makespan);
    slower += line.makespan > undisturbed;
  }
  EXPECT_GE(slower, 300);
}

// Tests that demands that are never exceeded change nothing.
TEST(StreamTimeline, EnoughOfEverythingChangesNothing) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    StreamProgram program = randomProgram(seed);
    Timeline without = program.play();
    for (Node &node : program.problem.nodes) {
      Demand demand;
      demand.set(Resource::Memory, kWhole / 4);
      program.problem.setDemand(node, demand);
    }
    Timeline with = program.play();
    ASSERT_EQ(with.start, without.start) << "seed " << seed;
    ASSERT_EQ(with.end, without.end) << "seed " << seed;
    ASSERT_EQ(with.exposed, without.exposed) << "seed " << seed;
    ASSERT_EQ(with.load, without.load);
    ASSERT_EQ(with.makespan, without.makespan);
    ASSERT_EQ(with.exposedTotal, without.exposedTotal);
  }
}

} // namespace
