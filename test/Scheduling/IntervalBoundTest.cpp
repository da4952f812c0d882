//===- IntervalBoundTest.cpp - Tests that no pipeline beats the bound on its interval ---------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle of recurrences adds up every simple cycle of a small body. The oracle of the interval plays every order of
// every distribution of a small body over three stages.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Bounds/IntervalBound.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Support/Arithmetic.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <functional>

using namespace commsched;
using namespace commsched::test;

namespace {

Ns timeBetween(const Problem &body, NodeId before, NodeId after) {
  const Node &node = body.nodes[before];
  if (node.kind == NodeKind::Start)
    return body.nodes[after].start == before ? std::max(node.issue, node.cost) : node.issue;
  return node.cost;
}

Problem drawBody(Random &random, int64_t nodes) {
  RandomOptions options;
  options.nodes = static_cast<int32_t>(nodes);
  options.chanceOfArgumentFuture = options.chanceOfRegion = 0;
  return randomProblem(static_cast<uint64_t>(random.below(1 << 30)), options);
}

std::vector<LoopEdge> drawCarried(Random &random, const Problem &body) {
  std::vector<LoopEdge> carried;
  for (int64_t i = random.between(0, 3); i > 0; --i)
    carried.push_back({static_cast<NodeId>(random.between(0, body.size() - 1)),
                       static_cast<NodeId>(random.between(0, body.size() - 1))});
  return carried;
}

/// The largest time per iteration of all simple cycles, rounded up.
Ns longestCycle(const Problem &body, llvm::ArrayRef<LoopEdge> carried) {
  Ns longest = 0;
  std::vector<bool> onPath(body.size(), false);
  std::function<void(NodeId, NodeId, Ns, Ns)> follow = [&](NodeId first, NodeId node, Ns time, Ns iterations) {
    auto step = [&](NodeId next, Ns distance) {
      Ns after = time + timeBetween(body, node, next);
      if (next == first && iterations + distance > 0)
        longest = std::max(longest, (after + iterations + distance - 1) / (iterations + distance));
      else if (next > first && !onPath[next])
        follow(first, next, after, iterations + distance);
    };
    onPath[node] = true;
    for (NodeId next = 0; next < body.size(); ++next)
      for (NodeId before : body.preds[next])
        if (before == node)
          step(next, 0);
    for (const LoopEdge &edge : carried)
      if (edge.from == node)
        step(edge.to, 1);
    onPath[node] = false;
  };
  for (NodeId first = 0; first < body.size(); ++first)
    follow(first, first, 0, 0);
  return longest;
}

TEST(IntervalBound, IsTheLongestCyclePerIteration) {
  Random random(20261129);
  int64_t bound = 0;
  for (int64_t trial = 0; trial < 2000; ++trial) {
    Problem body = drawBody(random, random.between(1, 6));
    std::vector<LoopEdge> carried = drawCarried(random, body);
    Ns expected = longestCycle(body, carried);
    ASSERT_EQ(recurrenceBound(body, carried), expected) << "trial " << trial;
    bound += expected > 0;
  }
  EXPECT_GT(bound, 500) << "too few bodies have a recurrence";
}

/// The least makespan of the steady state over all stages of the nodes, up to the third, and all orders.
class LeastInterval {
public:
  LeastInterval(const Problem &body, llvm::ArrayRef<LoopEdge> carried) : body(body), carried(carried) {
    chooseStages(std::vector<int>());
  }

  Ns found = kLargestAmount;

private:
  void chooseStages(std::vector<int> stages) {
    auto node = static_cast<NodeId>(stages.size());
    if (node == body.size())
      return tryOrders(stages);
    for (int stage = 0; stage < 3; ++stage) {
      bool isLegal = body.nodes[node].start == kNone || stages[body.nodes[node].start] == stage;
      for (NodeId before : body.preds[node])
        isLegal &= stages[before] <= stage;
      if (!isLegal)
        continue;
      stages.push_back(stage);
      chooseStages(stages);
      stages.pop_back();
    }
  }

  /// A value that the next iteration reads is there if its stage is at most one later, and then before its reader.
  void tryOrders(llvm::ArrayRef<int> stages) {
    std::vector<std::vector<NodeId>> preds(body.size());
    for (NodeId node = 0; node < body.size(); ++node)
      for (NodeId before : body.preds[node])
        if (stages[before] == stages[node])
          preds[node].push_back(before);
    for (const LoopEdge &edge : carried) {
      if (stages[edge.from] > stages[edge.to] + 1)
        return;
      if (stages[edge.from] == stages[edge.to] + 1)
        preds[edge.to].push_back(edge.from);
    }
    std::vector<NodeId> order;
    extend(preds, order);
  }

  void extend(llvm::ArrayRef<std::vector<NodeId>> preds, std::vector<NodeId> &order) {
    if (order.size() == static_cast<size_t>(body.size())) {
      Problem steady = body;
      steady.preds = IndexLists();
      std::vector<NodeId> image(body.size());
      for (auto [place, node] : llvm::enumerate(order))
        image[node] = static_cast<NodeId>(place);
      // The nodes in this order, so that the problem has its edges from earlier to later nodes.
      for (auto [place, node] : llvm::enumerate(order)) {
        steady.nodes[place] = body.nodes[node];
        if (NodeId start = body.nodes[node].start; start != kNone)
          steady.nodes[place].start = image[start];
        llvm::SmallVector<NodeId, 4> before;
        for (NodeId pred : preds[node])
          before.push_back(image[pred]);
        llvm::sort(before);
        before.erase(llvm::unique(before), before.end());
        steady.preds.append(before);
      }
      steady.buffers.clear();
      steady.touches = IndexLists();
      for (NodeId node = 0; node < body.size(); ++node)
        steady.touches.append({});
      steady.mergeKeys.clear();
      steady.members.clear();
      for (Node &node : steady.nodes)
        node.mergeKey = kNone;
      steady.finalize();
      found = std::min(found, makespanOf(steady, identityOrder(steady)));
      return;
    }
    for (NodeId node = 0; node < body.size(); ++node) {
      if (llvm::is_contained(order, node) ||
          !llvm::all_of(preds[node], [&](NodeId before) { return llvm::is_contained(order, before); }))
        continue;
      order.push_back(node);
      extend(preds, order);
      order.pop_back();
    }
  }

  const Problem &body;
  llvm::ArrayRef<LoopEdge> carried;
};

TEST(IntervalBound, ItsWitnessIsACycleOfTheBody) {
  Random random(20261202);
  int64_t cycles = 0;
  for (int64_t trial = 0; trial < 2000; ++trial) {
    Problem body = drawBody(random, random.between(1, 12));
    std::vector<LoopEdge> carried = drawCarried(random, body);
    IntervalProof proof = proveInterval(body, carried);
    ASSERT_EQ(proof.recurrence > 0, !proof.cycle.empty()) << "trial " << trial;
    if (proof.cycle.empty())
      continue;
    ++cycles;
    NodeId at = proof.cycle.back().to;
    int64_t iterations = 0;
    for (const LoopEdge &edge : proof.cycle) {
      ASSERT_TRUE(llvm::is_contained(proof.edges, edge)) << "trial " << trial;
      ASSERT_EQ(edge.from, at) << "trial " << trial;
      at = edge.to;
      iterations += edge.iterations;
    }
    ASSERT_GT(iterations, 0) << "trial " << trial;
  }
  EXPECT_GT(cycles, 500) << "too few bodies have a recurrence";
}

/// A kernel in which each operation is of another iteration, but for a collective, its wait, and what is in front of
/// it.
Problem mostParallel(const Problem &body) {
  std::vector<bool> isKept(body.size());
  for (NodeId id = 0; id < body.size(); ++id) {
    const Node &node = body.nodes[id];
    isKept[id] = isKept[id] || node.kind == NodeKind::Start || node.start != kNone;
    if (NodeId cast = body.members.empty() ? kNone : body.members[id].cast; cast != kNone)
      isKept[cast] = true;
  }
  Problem kernel = body;
  kernel.preds = kernel.touches = IndexLists();
  for (NodeId id = 0; id < body.size(); ++id) {
    llvm::SmallVector<BufferId, 4> made;
    for (BufferId buffer : body.touches[id])
      if (body.buffers[buffer].def == id)
        made.push_back(buffer);
    kernel.preds.append(isKept[id] ? body.preds[id] : llvm::ArrayRef<NodeId>());
    kernel.touches.append(isKept[id] ? body.touches[id] : llvm::ArrayRef<BufferId>(made));
  }
  kernel.finalize();
  return kernel;
}

TEST(IntervalBound, NoMergedPipelineIsFaster) {
  Random random(20261201);
  int64_t merged = 0, trials = portion(600);
  for (int64_t trial = 0; trial < trials; ++trial) {
    RandomOptions shape;
    shape.nodes = static_cast<int32_t>(random.between(6, 16));
    shape.chanceOfStart = 50;
    shape.chanceOfMergeable = shape.chanceOfCast = 100;
    shape.mergeKinds = 1;
    shape.chanceOfArgumentFuture = shape.chanceOfRegion = 0;
    Problem body = randomProblem(static_cast<uint64_t>(trial), shape);
    ScheduleOptions options;
    options.bucketing = true;
    options.effort = 2000;
    options.memory.limit = kUnlimited;
    Problem kernel = mostParallel(body);
    Schedule answer = schedule(kernel, options);
    ASSERT_LE(intervalBound(body, {}), answer.makespan) << "trial " << trial;
    merged += !answer.buckets.empty();
  }
  EXPECT_GT(merged, trials / 4) << "too few answers merge collectives";
}

TEST(IntervalBound, NoPipelineIsFaster) {
  Random random(20261130);
  int64_t reached = 0, trials = portion(400);
  for (int64_t trial = 0; trial < trials; ++trial) {
    Problem body = drawBody(random, random.between(1, 4));
    if (body.size() > 6)
      continue;
    std::vector<LoopEdge> carried = drawCarried(random, body);
    Ns bound = intervalBound(body, carried), least = LeastInterval(body, carried).found;
    ASSERT_LE(bound, least) << "trial " << trial;
    reached += bound == least;
  }
  EXPECT_GT(reached, trials / 4) << "the bound is too low to say anything";
}

} // namespace
