//===- MemoryTest.cpp - Tests of live bytes, the tree and moves -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle is written in another style than the sweep: every buffer's first and last touch is looked up for every
// position.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Memory/Memory.h"
#include "Check/OrderVerifier.h"
#include "CommSched/Scheduling/Memory/MemoryTree.h"
#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::test;

namespace {

/// Live bytes of one position by definition: quadratic and obvious.
Bytes liveAt(const Problem &problem, const Order &order, int32_t position) {
  Bytes live = problem.nodes[order[position]].workspace;
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
    const Buffer &buffer = problem.buffers[id];
    bool touchedBefore = false, touchedHere = false, touchedAfter = false;
    for (int32_t at = 0; at < problem.size(); ++at) {
      bool touches = std::count(problem.touches[order[at]].begin(), problem.touches[order[at]].end(), id) > 0;
      (at < position ? touchedBefore : at == position ? touchedHere : touchedAfter) |= touches;
    }
    bool allocated = touchedBefore || touchedHere || (buffer.def == kNone && touchedAfter);
    bool needed = touchedHere || touchedAfter || buffer.liveOut;
    live += allocated && needed ? buffer.bytes : 0;
  }
  return live;
}

TEST(Memory, SweepIsTheDefinition) {
  Random random(1);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(0, 25));
    options.donatedArguments = static_cast<int32_t>(random.below(4));
    Problem problem = randomProblem(seed, options);
    ASSERT_EQ(problem.validate(), "");
    for (const Order &order : {identityOrder(problem), randomOrder(problem, random)}) {
      MemoryProfile profile = memoryProfile(problem, order);
      Bytes peak = 0;
      for (int32_t position = 0; position < problem.size(); ++position) {
        ASSERT_EQ(profile.live[position], liveAt(problem, order, position)) << "seed " << seed << " at " << position;
        peak = std::max(peak, profile.live[position]);
      }
      ASSERT_EQ(profile.peak, peak);
      ASSERT_EQ(peakOf(problem, order), peak);
      if (!order.empty())
        ASSERT_EQ(profile.live[profile.peakPosition], peak);
    }
  }
}

TEST(MemoryTree, IsAnArray) {
  Random random(2);
  for (int32_t size : {0, 1, 2, 3, 7, 8, 33}) {
    std::vector<Bytes> plain(size, 0);
    MemoryTree tree(size);
    ASSERT_EQ(tree.size(), size);
    for (int32_t round = 0; round < 600; ++round) {
      int32_t first = static_cast<int32_t>(random.between(0, size)),
              last = static_cast<int32_t>(random.between(first, size));
      if (random.percent(20)) {
        std::vector<Bytes> fresh;
        for (int32_t at = first; at < last; ++at)
          fresh.push_back(plain[at] = random.between(-50, 50));
        tree.assign(first, fresh);
      } else {
        Bytes bytes = random.between(-20, 20);
        tree.add(first, last, bytes);
        std::for_each(plain.begin() + first, plain.begin() + last, [&](Bytes &value) { value += bytes; });
      }
      ASSERT_EQ(tree.values(), plain);
      ASSERT_EQ(tree.max(), size == 0 ? MemoryTree::kEmpty : *std::max_element(plain.begin(), plain.end()));
      if (size > 0)
        ASSERT_EQ(tree.argmax(), std::max_element(plain.begin(), plain.end()) - plain.begin());
      first = static_cast<int32_t>(random.between(0, size)), last = static_cast<int32_t>(random.between(first, size));
      ASSERT_EQ(tree.max(first, last),
                first == last ? MemoryTree::kEmpty : *std::max_element(plain.begin() + first, plain.begin() + last));
      Bytes limit = random.between(-60, 60);
      int32_t firstAbove = -1, lastAbove = -1;
      for (int32_t at = first; at < last; ++at)
        if (plain[at] > limit) {
          firstAbove = firstAbove < 0 ? at : firstAbove;
          lastAbove = at;
        }
      ASSERT_EQ(tree.firstAbove(first, last, limit), firstAbove);
      ASSERT_EQ(tree.lastAbove(first, last, limit), lastAbove);
      if (size > 0) {
        int32_t at = static_cast<int32_t>(random.below(size));
        ASSERT_EQ(tree.value(at), plain[at]);
      }
    }
  }
}

/// The order after a move, the plain way.
Order moved(Order order, int32_t first, int32_t last, int32_t to) {
  Order group(order.begin() + first, order.begin() + last);
  order.erase(order.begin() + first, order.begin() + last);
  order.insert(order.begin() + to, group.begin(), group.end());
  return order;
}

TEST(MoveEvaluator, IsThePlainSweepOfTheMovedOrder) {
  Random random(3);
  for (uint64_t seed = 0; seed < 150; ++seed) {
    RandomOptions options;
    options.nodes = static_cast<int32_t>(random.between(2, 40));
    Problem problem = randomProblem(seed, options);
    Order order = randomOrder(problem, random);
    MoveEvaluator evaluator(problem, order);
    for (int32_t round = 0; round < 60; ++round) {
      int32_t size = problem.size(), first = static_cast<int32_t>(random.below(size));
      int32_t last = static_cast<int32_t>(random.between(first + 1, std::min(size, first + 5)));
      // Legal moves mostly; the answers hold for illegal ones too.
      bool legal = random.percent(70);
      int32_t low = legal ? evaluator.earliest(first, last) : 0;
      int32_t high = legal ? evaluator.latest(first, last) : size - (last - first);
      int32_t to = static_cast<int32_t>(random.between(low, high));
      Order next = moved(order, first, last, to);
      std::vector<Bytes> live = memoryProfile(problem, next).live;
      ASSERT_EQ(evaluator.peakIfMoved(first, last, to), *std::max_element(live.begin(), live.end()))
          << "seed " << seed << ": [" << first << ", " << last << ") to " << to;
      int32_t windowFirst = std::min(first, to), windowLast = std::max(last, to + last - first);
      ASSERT_EQ(evaluator.windowPeakIfMoved(first, last, to),
                *std::max_element(live.begin() + windowFirst, live.begin() + windowLast));
      if (legal)
        ASSERT_EQ(verifyOrder(problem, next, {}).empty(), verifyOrder(problem, order, {}).empty());
      if (legal && random.percent(70)) {
        evaluator.move(first, last, to);
        order = next;
      } else if (random.percent(30)) {
        evaluator.move(first, last, to);
        evaluator.move(to, to + last - first, first);
      }
      ASSERT_EQ(evaluator.order().vec(), order);
      ASSERT_EQ(evaluator.live().values(), memoryProfile(problem, order).live);
      for (int32_t position = 0; position < size; ++position)
        ASSERT_EQ(evaluator.position(order[position]), position);
    }
  }
}

// earliest() and latest() stop where an edge would break, and not before.
TEST(MoveEvaluator, EdgesBoundTheMove) {
  Random random(4);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Problem problem = randomProblem(seed);
    Order order = randomOrder(problem, random);
    MoveEvaluator evaluator(problem, order);
    for (int32_t at = 0; at < problem.size(); ++at) {
      int32_t low = evaluator.earliest(at, at + 1), high = evaluator.latest(at, at + 1);
      for (int32_t to = 0; to < problem.size(); ++to)
        ASSERT_EQ(verifyOrder(problem, moved(order, at, at + 1, to), {}).empty(), low <= to && to <= high);
    }
  }
}

} // namespace
