//===- SplitBoundTest.cpp - Tests that no split beats its bound -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Small random programs, split in every way: every number of parts, every set of nodes that are split. Some
// computations are sums over what is split: their parts are added, each addition after its part and the one before. The
// oracle plays every topological order of every split with a recursion of its own, and stops early where there are too
// many orders, which leaves the test valid. The solver answers for the splits with buckets.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/SplitBound.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// A computation, or a collective with its wait.
struct Step {
  bool communicates = false, splittable = false;
  LaneId lane = kComputeLane;
  /// Of a computation: its cost, ns, and what every part costs in addition.
  Ns cost = 0, launch = 0;
  /// Of a collective.
  Bytes bytes = 0;
  Ns issue = 0;
  bool mergeable = false;
  std::vector<size_t> operands;
  /// Indexed as `operands`: true if every part needs the whole operand.
  std::vector<bool> whole;
  /// Of a computation: parts give partial results, which are added at this cost, ns; negative if they do not.
  Ns addition = -1;
};

struct SplitProgram {
  std::vector<Step> steps;
  /// Indexed by lane: latency, ns, and bytes per ns.
  std::vector<std::pair<Ns, Bytes>> links;

  Ns timeOf(LaneId lane, Bytes bytes) const { return links[lane].first + bytes / links[lane].second; }
};

SplitProgram draw(Random &random, int64_t steps) {
  SplitProgram program;
  auto lanes = static_cast<LaneId>(random.between(1, 2));
  for (LaneId lane = 0; lane <= lanes; ++lane)
    program.links.push_back({random.between(0, 4), random.between(1, 4)});
  for (int64_t i = 0; i < steps; ++i) {
    Step step;
    step.communicates = i > 0 && i + 1 < steps && random.percent(50);
    step.splittable = random.percent(80);
    step.lane = step.communicates ? static_cast<LaneId>(random.between(1, lanes)) : kComputeLane;
    step.cost = random.percent(15) ? 0 : random.between(1, 24);
    step.launch = random.percent(50) ? 0 : random.between(0, 2);
    step.bytes = 12 * random.between(1, 8);
    step.issue = random.between(0, 2);
    step.mergeable = random.percent(50);
    for (int64_t operand = 0; operand < i; ++operand)
      if (random.percent(i - operand == 1 ? 85 : 15)) {
        step.operands.push_back(operand);
        step.whole.push_back(random.percent(20));
      }
    if (!step.communicates && random.percent(20))
      step.addition = random.between(0, 3);
    program.steps.push_back(step);
  }
  return program;
}

constexpr int64_t kMostParts = 3;

/// Makes the problem of a split.
class Splitter {
public:
  Splitter(const SplitProgram &program, int64_t parts, uint32_t chosen)
      : program(program), count(parts), chosen(chosen) {}

  Problem run() {
    problem.laneNames = {"compute"};
    for (size_t lane = 1; lane < program.links.size(); ++lane) {
      problem.laneNames.push_back("lane");
      MergeKey key;
      key.kind = CollectiveKind::AllReduce;
      key.lane = static_cast<LaneId>(lane);
      key.cost = [program = program, lane](Bytes bytes) { return program.timeOf(lane, bytes); };
      problem.mergeKeys.push_back(key);
    }
    problem.copyCost = [](Bytes read, Bytes written) { return (read + written) / 64; };
    for (size_t i = 0; i < program.steps.size(); ++i) {
      int64_t own = program.steps[i].splittable && (chosen >> i & 1) ? count : 1;
      results.emplace_back();
      for (int64_t part = 0; part < own; ++part)
        addPart(i, own, part);
      parts.push_back(results.back());
      if (own > 1 && program.steps[i].addition >= 0)
        addSum(i);
    }
    problem.finalize();
    return problem;
  }

  /// Indexed by step: the last node of each part, and the nodes that others depend on: these, or their sum.
  std::vector<std::vector<NodeId>> parts, results;

private:
  void addSum(size_t index) {
    std::vector<NodeId> &partial = results[index];
    for (size_t part = 1; part < partial.size(); ++part) {
      Node node;
      node.cost = program.steps[index].addition;
      add(node, {std::min(partial[0], partial[part]), std::max(partial[0], partial[part])}, {}, {});
      partial[0] = problem.size() - 1;
    }
    partial.resize(1);
  }

  void addPart(size_t index, int64_t own, int64_t part) {
    const Step &step = program.steps[index];
    std::vector<NodeId> preds;
    for (auto [operand, whole] : llvm::zip_equal(step.operands, step.whole))
      if (own > 1 && results[operand].size() > 1 && !whole)
        preds.push_back(results[operand][part]);
      else
        preds.insert(preds.end(), results[operand].begin(), results[operand].end());
    std::sort(preds.begin(), preds.end());
    Node node;
    if (!step.communicates) {
      node.cost = step.cost == 0 ? 0 : (step.cost + own - 1) / own + (own > 1 ? step.launch : 0);
      add(node, preds, {}, {});
      results[index].push_back(problem.size() - 1);
      return;
    }
    node.kind = NodeKind::Start;
    node.lane = step.lane;
    node.collective = CollectiveKind::AllReduce;
    node.bytes = step.bytes / own;
    node.cost = program.timeOf(step.lane, node.bytes);
    node.issue = step.issue;
    MergeMember member;
    if (step.mergeable) {
      node.mergeKey = step.lane - 1;
      member.wait = problem.size() + 1;
      member.output = static_cast<BufferId>(problem.buffers.size());
      member.inputBytes = member.outputBytes = node.bytes;
    }
    auto output = static_cast<BufferId>(problem.buffers.size());
    problem.buffers.push_back({node.bytes, problem.size(), false});
    add(node, preds, {output}, member);
    Node wait;
    wait.kind = NodeKind::Wait;
    wait.start = problem.size() - 1;
    add(wait, {wait.start}, {output}, {});
    results[index].push_back(problem.size() - 1);
  }

  void add(const Node &node, llvm::ArrayRef<NodeId> preds, llvm::ArrayRef<BufferId> touches, MergeMember member) {
    problem.nodes.push_back(node);
    problem.preds.append(preds);
    problem.touches.append(touches);
    problem.members.push_back(member);
  }

  const SplitProgram &program;
  int64_t count;
  uint32_t chosen;
  Problem problem;
};

/// What the parts of the nodes of the whole problem cost.
std::vector<PartCosts> partCosts(const SplitProgram &program, const Problem &whole, const Splitter &made) {
  std::vector<PartCosts> costs(whole.size());
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (!program.steps[i].splittable)
      continue;
    NodeId last = made.results[i].front();
    NodeId node = program.steps[i].communicates ? last - 1 : last;
    costs[last].splits = true;
    costs[node] = {true, whole.nodes[node].cost, whole.nodes[node].cost, whole.nodes[node].bytes};
    for (auto [operand, isWhole] : llvm::zip_equal(program.steps[i].operands, program.steps[i].whole))
      if (isWhole || program.steps[operand].addition >= 0)
        costs[node].wholePreds.push_back(made.results[operand].front());
    for (int64_t parts = 2; parts <= kMostParts; ++parts) {
      Splitter splitter(program, parts, UINT32_MAX);
      Problem split = splitter.run();
      Ns sum = 0;
      for (NodeId end : splitter.parts[i]) {
        const Node &part = split.nodes[program.steps[i].communicates ? end - 1 : end];
        sum += part.cost;
        costs[node].part = std::min(costs[node].part, part.cost);
        costs[node].bytes = std::min(costs[node].bytes, part.bytes);
      }
      costs[node].total = std::min(costs[node].total, sum);
    }
  }
  return costs;
}

/// The best makespan over the topological orders, as far as `budget` reaches.
class EveryOrder {
public:
  EveryOrder(const Problem &problem, int64_t budget) : problem(problem), budget(budget) {
    for (NodeId id = 0; id < problem.size(); ++id)
      waiting.push_back(static_cast<int64_t>(problem.preds[id].size()));
    ends.assign(problem.size(), 0);
    step(0, std::vector<Ns>(problem.numLanes(), 0));
  }

  Ns best = INT64_MAX;
  bool complete() const { return budget > 0; }

private:
  void step(NodeId done, const std::vector<Ns> &clocks) {
    if (done == problem.size()) {
      best = std::min(best, *std::max_element(clocks.begin(), clocks.end()));
      --budget;
      return;
    }
    for (NodeId id = 0; id < problem.size() && budget > 0; ++id) {
      if (waiting[id] != 0)
        continue;
      const Node &node = problem.nodes[id];
      std::vector<Ns> next = clocks;
      if (node.kind == NodeKind::Start) {
        next[node.lane] = std::max(clocks[0], clocks[node.lane]) + node.cost;
        ends[id] = next[node.lane];
        next[0] += node.issue;
      } else if (node.kind == NodeKind::Wait) {
        next[0] = std::max(clocks[0], ends[node.start]);
      } else {
        next[0] += node.cost;
      }
      waiting[id] = -1;
      for (NodeId succ : problem.succs[id])
        --waiting[succ];
      step(done + 1, next);
      for (NodeId succ : problem.succs[id])
        ++waiting[succ];
      waiting[id] = 0;
    }
  }

  const Problem &problem;
  int64_t budget;
  std::vector<int64_t> waiting;
  std::vector<Ns> ends;
};

/// Visits every set of splittable steps with every number of parts.
template <typename Visit> void forEachSplit(const SplitProgram &program, Visit visit) {
  uint32_t splittable = 0;
  for (size_t i = 0; i < program.steps.size(); ++i)
    splittable |= static_cast<uint32_t>(program.steps[i].splittable) << i;
  for (uint32_t chosen = splittable;; chosen = (chosen - 1) & splittable) {
    for (int64_t parts = chosen ? 2 : 1; parts <= (chosen ? kMostParts : 1); ++parts)
      visit(parts, chosen);
    if (chosen == 0)
      return;
  }
}

// Tests that no order of any split of a small program is below the bound, and that the bound is often reached.
TEST(SplitBound, NoSplitIsBelow) {
  int32_t complete = 0, tight = 0, lowered = 0;
  for (uint64_t seed = 0; seed < portion(2500u); ++seed) {
    Random random(seed);
    SplitProgram program = draw(random, random.between(2, 4));
    for (Step &step : program.steps)
      step.mergeable = false;
    Splitter whole(program, 1, 0);
    Problem given = whole.run();
    ASSERT_EQ(given.validate(), "");
    Ns bound = splitLowerBound(given, partCosts(program, given, whole)).makespan;
    Ns best = INT64_MAX;
    bool all = true;
    forEachSplit(program, [&](int64_t parts, uint32_t chosen) {
      Problem split = Splitter(program, parts, chosen).run();
      EveryOrder orders(split, 2000);
      all &= orders.complete();
      best = std::min(best, orders.best);
      ASSERT_LE(bound, orders.best) << "seed " << seed << ", " << parts << " parts of " << chosen;
    });
    if (!all)
      continue;
    ++complete;
    tight += bound == best;
    lowered += bound < lowerBound(given).makespan;
  }
  RecordProperty("complete", complete);
  RecordProperty("tight", tight);
  // Below these numbers, which are a little less than what was measured, the bound has lost an argument, or the
  // programs are such that a split changes nothing.
  EXPECT_GE(complete, leastOf(900));
  EXPECT_GE(tight * 100, complete * 60) << tight << " of " << complete;
  EXPECT_GE(lowered, leastOf(40)) << lowered;
}

// Tests that no answer of the solver, with buckets that hold parts, is below the bound.
TEST(SplitBound, NoBucketedSplitIsBelow) {
  int32_t merged = 0;
  for (uint64_t seed = 0; seed < portion(30u); ++seed) {
    Random random(seed ^ 0x5117);
    SplitProgram program = draw(random, random.between(4, 8));
    Splitter whole(program, 1, 0);
    Problem given = whole.run();
    Ns bound = splitLowerBound(given, partCosts(program, given, whole)).makespan;
    forEachSplit(program, [&](int64_t parts, uint32_t chosen) {
      if (chosen != 0 && !random.percent(6))
        return;
      Problem split = Splitter(program, parts, chosen).run();
      ASSERT_EQ(split.validate(), "");
      ScheduleOptions options;
      options.memory.limit = kUnlimited;
      Schedule answer = schedule(split, options);
      merged += !answer.buckets.empty();
      ASSERT_LE(bound, answer.makespan) << "seed " << seed << ", " << parts << " parts of " << chosen;
    });
  }
  EXPECT_GE(merged, leastOf(20));
}

// Tests that a collective whose parts hide each other's computation lowers the bound, and by how much: two parts of a
// computation of 10 ns and a reduction of 10 ns between two of them.
TEST(SplitBound, IsTightForAChain) {
  SplitProgram program;
  program.links = {{0, 1}, {0, 1}};
  for (bool communicates : {false, true, false}) {
    Step step;
    step.communicates = communicates;
    step.lane = communicates ? 1 : kComputeLane;
    step.splittable = true;
    step.cost = 12;
    step.bytes = 12;
    if (!program.steps.empty()) {
      step.operands = {program.steps.size() - 1};
      step.whole = {false};
    }
    program.steps.push_back(step);
  }
  Splitter whole(program, 1, 0);
  Problem given = whole.run();
  EXPECT_EQ(lowerBound(given).makespan, 36);
  // Three parts: 4 ns before the first reduction, 24 ns of computation, and while the last part's reduction ends ...
  EXPECT_EQ(splitLowerBound(given, partCosts(program, given, whole)).makespan, 24);
  EXPECT_EQ(EveryOrder(Splitter(program, 3, 7).run(), 100000).best, 24);
}

} // namespace
