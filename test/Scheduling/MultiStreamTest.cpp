//===- MultiStreamTest.cpp - Several streams against MultiStreamSchedulePass --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Worked examples, and a literal form of the rule on random graphs.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Inductor/MultiStream.h"
#include "llvm/ADT/STLExtras.h"
#include "gtest/gtest.h"
#include <map>
#include <random>
#include <set>

using namespace commsched;

namespace {

constexpr Ns kUs = 1000;

struct Example {
  std::vector<StreamNode> nodes;
  std::vector<std::vector<int32_t>> preds;
  MultiStreamOptions options;

  NodeId add(StreamRole role, Ns us, std::vector<int32_t> inputs = {}) {
    nodes.push_back({role, us * kUs});
    preds.push_back(std::move(inputs));
    return static_cast<NodeId>(nodes.size()) - 1;
  }
  MultiStreamPlan plan() const {
    IndexLists lists;
    for (const std::vector<int32_t> &row : preds)
      lists.append(row);
    return planStreams(lists, nodes, options);
  }
};

/// "stream:start-end" in us, and the tokens.
std::string textOf(const MultiStreamPlan &plan, NodeId id) {
  const StreamPlacement &at = plan.placements[id];
  std::string text =
      std::to_string(at.stream) + ":" + std::to_string(at.start / kUs) + "-" + std::to_string(at.end / kUs);
  for (int32_t token : plan.tokens[id])
    text += " after " + std::to_string(token);
  return text;
}

constexpr StreamRole kCompute = StreamRole::Compute, kComm = StreamRole::Comm, kHybrid = StreamRole::Hybrid;

TEST(MultiStreamTest, OverlapsAGatherWithItsNeighbours) {
  Example example;
  example.options.syncOverhead = 2 * kUs;
  NodeId a = example.add(kCompute, 10), g = example.add(kComm, 8), b = example.add(kCompute, 12, {a});
  NodeId c = example.add(kCompute, 5, {b, g});
  MultiStreamPlan plan = example.plan();
  EXPECT_EQ(textOf(plan, a), "0:0-10");
  EXPECT_EQ(textOf(plan, b), "0:10-22");
  EXPECT_EQ(textOf(plan, g), "1:0-8");
  EXPECT_EQ(textOf(plan, c), "0:22-27 after 1");
  EXPECT_EQ(plan.serial, 35 * kUs);
  EXPECT_EQ(plan.predicted, 27 * kUs);
  EXPECT_TRUE(plan.applied);
}

TEST(MultiStreamTest, LeavesAChainAlone) {
  Example example;
  example.options.syncOverhead = 2 * kUs;
  NodeId a = example.add(kCompute, 10), g = example.add(kComm, 8, {a}), c = example.add(kCompute, 5, {g});
  MultiStreamPlan plan = example.plan();
  EXPECT_EQ(textOf(plan, g), "1:12-20 after 0");
  EXPECT_EQ(textOf(plan, c), "0:22-27 after 1");
  EXPECT_EQ(plan.serial, 23 * kUs);
  EXPECT_EQ(plan.predicted, 27 * kUs);
  EXPECT_FALSE(plan.applied);
}

TEST(MultiStreamTest, AHybridWaitsForBothResources) {
  Example example;
  example.options.syncOverhead = 2 * kUs;
  example.add(kCompute, 10);
  NodeId h = example.add(kHybrid, 6);
  example.add(kComm, 8);
  MultiStreamPlan plan = example.plan();
  EXPECT_EQ(textOf(plan, h), "0:10-16");
  EXPECT_EQ(plan.serial, 24 * kUs);
  EXPECT_EQ(plan.predicted, 16 * kUs);
  EXPECT_TRUE(plan.applied);
}

TEST(MultiStreamTest, MoreComputeStreamsDoNotComputeMore) {
  Example example;
  example.options.computeStreams = {0, 2};
  example.options.syncOverhead = kUs;
  example.add(kCompute, 10);
  NodeId b = example.add(kCompute, 10);
  MultiStreamPlan plan = example.plan();
  EXPECT_EQ(textOf(plan, b), "0:10-20");
  EXPECT_FALSE(plan.applied) << "it is not shorter, only as short";
  example.options.sharesResources = false;
  plan = example.plan();
  EXPECT_EQ(textOf(plan, b), "2:0-10");
  EXPECT_TRUE(plan.applied);
}

TEST(MultiStreamTest, SeveralStreamsOfBothRoles) {
  Example example;
  example.options.computeStreams = {0, 2};
  example.options.commStreams = {1, 3};
  example.options.syncOverhead = kUs;
  NodeId a = example.add(kCompute, 10), g = example.add(kComm, 8, {a}), b = example.add(kCompute, 9, {a});
  NodeId h = example.add(kComm, 8, {b}), c = example.add(kCompute, 7, {g}), d = example.add(kCompute, 3, {c, h});
  MultiStreamPlan plan = example.plan();
  EXPECT_EQ(textOf(plan, a), "0:0-10");
  EXPECT_EQ(textOf(plan, b), "0:10-19");
  EXPECT_EQ(textOf(plan, g), "1:11-19 after 0");
  EXPECT_EQ(textOf(plan, h), "1:20-28 after 2");
  EXPECT_EQ(textOf(plan, c), "0:20-27 after 1");
  EXPECT_EQ(textOf(plan, d), "0:29-32 after 3");
  EXPECT_EQ(plan.serial, 45 * kUs);
  EXPECT_EQ(plan.predicted, 32 * kUs);
}

TEST(MultiStreamTest, NothingToPlan) {
  MultiStreamPlan plan = Example().plan();
  EXPECT_FALSE(plan.applied);
  EXPECT_EQ(plan.tokens.size(), 0);
  Example views;
  views.add(StreamRole::Transparent, 0);
  EXPECT_FALSE(views.plan().applied);
  EXPECT_EQ(views.plan().placements[0].stream, kNone);
}

/// The rule word for word, with dependences through transparent nodes written out.
struct Oracle {
  explicit Oracle(const Example &example) : example(example) {
    for (NodeId id = 0; id < size(); ++id)
      collect(id, inputs[id]);
  }

  void collect(NodeId id, std::vector<NodeId> &found) {
    for (NodeId pred : example.preds[id])
      if (example.nodes[pred].role == StreamRole::Transparent)
        collect(pred, found);
      else if (!llvm::is_contained(found, pred))
        found.push_back(pred);
  }
  NodeId size() const { return static_cast<NodeId>(example.nodes.size()); }
  Ns cost(NodeId id) const { return std::max<Ns>(kUs, example.nodes[id].cost); }

  Ns rank(NodeId id) {
    auto [known, isNew] = ranks.try_emplace(id, 0);
    if (!isNew)
      return known->second;
    Ns behind = 0;
    for (NodeId user = 0; user < size(); ++user)
      if (example.nodes[user].role != StreamRole::Transparent && llvm::is_contained(inputs[user], id))
        behind = std::max(behind, rank(user) + example.options.syncOverhead);
    return ranks[id] = cost(id) + behind;
  }

  void run() {
    std::vector<NodeId> order;
    for (NodeId id = 0; id < size(); ++id)
      if (example.nodes[id].role != StreamRole::Transparent)
        order.push_back(id);
    llvm::stable_sort(order, [&](NodeId a, NodeId b) { return rank(a) > rank(b); });
    std::map<int32_t, Ns> streams;
    std::map<char, Ns> resources;
    for (NodeId id : order) {
      StreamRole role = example.nodes[id].role;
      std::string needs = role == kComm ? "m" : role == kCompute ? "c" : "cm";
      Ns bestEnd = 0;
      int32_t best = kNone;
      for (int32_t stream : role == kComm ? example.options.commStreams : example.options.computeStreams) {
        Ns start = streams[stream];
        for (char need : needs)
          start = std::max(start, resources[need]);
        for (NodeId input : inputs[id])
          start = std::max(start, ends[input] + (placed[input] == stream ? 0 : example.options.syncOverhead));
        if (best == kNone || start + cost(id) < bestEnd) {
          best = stream;
          bestEnd = start + cost(id);
        }
      }
      placed[id] = best;
      ends[id] = streams[best] = bestEnd;
      for (char need : needs)
        resources[need] = bestEnd;
      serial += cost(id);
      predicted = std::max(predicted, bestEnd);
    }
  }

  const Example &example;
  std::map<NodeId, std::vector<NodeId>> inputs;
  std::map<NodeId, Ns> ranks, ends;
  std::map<NodeId, int32_t> placed;
  Ns serial = 0, predicted = 0;
};

Example randomExample(unsigned seed) {
  std::mt19937 random(seed);
  auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  Example example;
  example.options.syncOverhead = below(4) * kUs;
  if (below(2))
    example.options.computeStreams = {0, 2};
  if (below(2))
    example.options.commStreams = {1, 3, 5};
  int size = 1 + below(24);
  for (int id = 0; id < size; ++id) {
    std::vector<int32_t> inputs;
    for (int pred = 0; pred < id; ++pred)
      if (below(5) == 0)
        inputs.push_back(pred);
    StreamRole role = std::array{kCompute, kCompute, kComm, kHybrid, StreamRole::Transparent}[below(5)];
    example.add(role, role == StreamRole::Transparent ? 0 : below(12), std::move(inputs));
  }
  return example;
}

TEST(MultiStreamTest, AgreesWithTheRuleOnRandomGraphs) {
  int applied = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Example example = randomExample(seed);
    MultiStreamPlan plan = example.plan();
    Oracle oracle(example);
    oracle.run();
    ASSERT_EQ(plan.serial, oracle.serial) << seed;
    ASSERT_EQ(plan.predicted, oracle.predicted) << seed;
    ASSERT_EQ(plan.applied, oracle.predicted < oracle.serial) << seed;
    applied += plan.applied;
    for (auto [id, stream] : oracle.placed) {
      ASSERT_EQ(plan.placements[id].stream, stream) << seed << ", node " << id;
      ASSERT_EQ(plan.placements[id].end, oracle.ends[id]) << seed << ", node " << id;
      // A token is an input on another stream, and covers every earlier node of that stream.
      std::map<int32_t, NodeId> last;
      for (NodeId input : oracle.inputs[id])
        if (oracle.placed[input] != stream)
          last[oracle.placed[input]] = std::max(last.try_emplace(oracle.placed[input], kNone).first->second, input);
      std::set<NodeId> tokens(plan.tokens[id].begin(), plan.tokens[id].end());
      ASSERT_EQ(tokens.size(), plan.tokens[id].size()) << seed;
      for (auto [other, node] : last)
        ASSERT_TRUE(tokens.count(node)) << seed << ", node " << id << ", stream " << other;
      for (NodeId token : tokens)
        ASSERT_TRUE(llvm::is_contained(oracle.inputs[id], token)) << seed;
    }
  }
  EXPECT_GT(applied, 500);
}

TEST(MultiStreamTest, OrdersByPlannedStart) {
  Example example;
  NodeId a = example.add(kCompute, 10), b = example.add(kCompute, 12, {a}), g = example.add(kComm, 8);
  NodeId wait = example.add(StreamRole::Transparent, 0, {g}), c = example.add(kCompute, 5, {b, wait});
  NodeId unused = example.add(StreamRole::Transparent, 0, {a});
  IndexLists preds;
  for (const std::vector<int32_t> &row : example.preds)
    preds.append(row);
  // The gather begins with the first computation; its wait comes where its reader is, not where it ends.
  EXPECT_EQ(orderByStart(preds, example.plan()), (Order{a, g, b, wait, c, unused}));
}

TEST(MultiStreamTest, AnOrderByStartRespectsDependencesAndStarts) {
  int reordered = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    Example example = randomExample(seed);
    MultiStreamPlan plan = example.plan();
    IndexLists preds;
    for (const std::vector<int32_t> &row : example.preds)
      preds.append(row);
    Order order = orderByStart(preds, plan);
    std::vector<int32_t> places(order.size(), kNone);
    for (size_t place = 0; place < order.size(); ++place)
      places[order[place]] = static_cast<int32_t>(place);
    ASSERT_FALSE(llvm::is_contained(places, kNone)) << seed;
    Ns last = 0;
    for (NodeId id : order) {
      for (NodeId pred : preds[id])
        ASSERT_LT(places[pred], places[id]) << seed;
      if (plan.placements[id].stream == kNone)
        continue;
      ASSERT_GE(plan.placements[id].start, last) << seed;
      last = plan.placements[id].start;
    }
    reordered += !llvm::is_sorted(order);
  }
  EXPECT_GT(reordered, 300);
}

} // namespace
