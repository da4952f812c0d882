//===- BufferPlanTest.cpp - Tests of the buffer plan ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The oracle compares all pairs of buffers: two that share a position may not share a byte. On tiny inputs an
// exhaustive search says what the smallest arena is.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <numeric>

using namespace commsched;
using namespace commsched::test;

namespace {

/// Quadratic and obvious.
bool pairsAreApart(llvm::ArrayRef<LiveInterval> intervals, const BufferPlan &plan) {
  for (size_t a = 0; a < intervals.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      bool together = std::max(intervals[a].begin, intervals[b].begin) <= std::min(intervals[a].end, intervals[b].end);
      bool overlap = std::max(plan.offsets[a], plan.offsets[b]) <
                     std::min(plan.offsets[a] + intervals[a].bytes, plan.offsets[b] + intervals[b].bytes);
      if (together && overlap)
        return false;
    }
  return true;
}

std::vector<LiveInterval> randomIntervals(Random &random, int32_t count, int32_t positions, Bytes maxBytes) {
  std::vector<LiveInterval> intervals;
  for (int32_t i = 0; i < count; ++i) {
    int32_t begin = random.below(positions);
    int32_t length = random.percent(20) ? random.below(positions) : random.below(std::max(positions / 8, 1));
    Bytes bytes = random.percent(5) ? 0 : random.percent(30) ? random.between(1, 8) : random.between(1, maxBytes);
    intervals.push_back({begin, std::min(begin + length, positions - 1), bytes});
  }
  return intervals;
}

/// The smallest arena by trying every order of placement at the lowest place that is free.
Bytes smallestArena(llvm::ArrayRef<LiveInterval> intervals) {
  std::vector<int32_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  Bytes best = std::numeric_limits<Bytes>::max();
  do {
    std::vector<Bytes> offsets(intervals.size(), -1);
    Bytes total = 0;
    for (int32_t id : order) {
      Bytes offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t other = 0; other < intervals.size(); ++other)
          if (offsets[other] >= 0 && intervals[other].begin <= intervals[id].end &&
              intervals[id].begin <= intervals[other].end && offset < offsets[other] + intervals[other].bytes &&
              offsets[other] < offset + intervals[id].bytes) {
            offset = offsets[other] + intervals[other].bytes;
            moved = true;
          }
      }
      offsets[id] = offset;
      total = std::max(total, offset + intervals[id].bytes);
    }
    best = std::min(best, total);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

/// Cuts a rectangle of `positions` times `bytes` into `count` buffers by straight cuts, in random places: they fill an
/// arena of `bytes` without a gap.
std::vector<LiveInterval> cutRectangle(Random &random, int32_t count, int32_t positions, Bytes bytes) {
  std::vector<LiveInterval> pieces = {{0, positions - 1, bytes}};
  while (static_cast<int32_t>(pieces.size()) < count) {
    LiveInterval &piece = pieces[random.below(static_cast<int32_t>(pieces.size()))];
    LiveInterval other = piece;
    if (random.percent(50) && piece.begin < piece.end) {
      piece.end = piece.begin + random.below(piece.end - piece.begin);
      other.begin = piece.end + 1;
    } else if (piece.bytes > 1) {
      piece.bytes = random.between(1, piece.bytes - 1);
      other.bytes -= piece.bytes;
    } else {
      continue;
    }
    pieces.push_back(other);
  }
  return pieces;
}

} // namespace

// Tests that no two live buffers overlap on 10,000 random programs, by both oracles, whatever the alignment.
TEST(BufferPlan, NoTwoLiveBuffersOverlap) {
  Random random(7);
  for (int32_t run = 0; run < 10000; ++run) {
    std::vector<LiveInterval> intervals =
        randomIntervals(random, random.between(0, 40), random.between(1, 60), random.percent(50) ? 64 : 100000);
    Bytes alignment = Bytes(1) << random.below(10);
    BufferPlan plan = planBuffers(intervals, alignment);
    ASSERT_EQ(verifyBufferPlan(intervals, plan, alignment), "") << "run " << run;
    ASSERT_TRUE(pairsAreApart(intervals, plan)) << "run " << run;
    ASSERT_GE(plan.total, plan.bound);
    ASSERT_EQ(planBuffers(intervals, alignment).offsets, plan.offsets) << "not deterministic";
  }
}

// Tests lives that are read off programs with collectives in flight, in the given and in random orders; the bound is
// the peak of the memory model where nothing has a workspace.
TEST(BufferPlan, PlansPrograms) {
  Random random(11);
  RandomOptions options;
  options.chanceOfWorkspace = 0;
  for (int32_t run = 0; run < 1000; ++run) {
    options.nodes = random.between(2, 60);
    Problem problem = randomProblem(run, options);
    Order order = run % 2 ? identityOrder(problem) : randomOrder(problem, random);
    std::vector<LiveInterval> intervals = liveIntervals(problem, order);
    BufferPlan plan = planBuffers(intervals);
    ASSERT_EQ(verifyBufferPlan(intervals, plan), "") << "run " << run;
    ASSERT_EQ(plan.bound, peakOf(problem, order)) << "run " << run;
  }
}

// Tests how far from the smallest arena small plans are: never more than a quarter, and 1 % on average.
TEST(BufferPlan, IsCloseToTheSmallest) {
  Random random(3);
  Bytes planned = 0, smallest = 0;
  for (int32_t run = 0; run < 200; ++run) {
    std::vector<LiveInterval> intervals = randomIntervals(random, 7, 8, 20);
    Bytes best = smallestArena(intervals), total = planBuffers(intervals, 1).total;
    ASSERT_GE(total, best);
    EXPECT_LE(4 * total, 5 * best) << "run " << run;
    planned += total;
    smallest += best;
  }
  EXPECT_LE(100 * planned, 101 * smallest);
}

// Tests that a training step is planned within 10 % of what is live at most.
TEST(BufferPlan, IsCloseToTheBoundOnLayers) {
  for (int32_t layers : {1, 10, 100}) {
    LayeredOptions options;
    options.layers = layers;
    Problem problem = layeredProblem(layers, options);
    std::vector<LiveInterval> intervals = liveIntervals(problem, identityOrder(problem));
    BufferPlan plan = planBuffers(intervals);
    ASSERT_EQ(verifyBufferPlan(intervals, plan), "");
    EXPECT_LE(10 * plan.total, 11 * plan.bound) << layers << " layers: " << plan.total << " for " << plan.bound;
  }
}

// Tests how close plans come to arenas that are known to be possible: rectangles that were cut into buffers.
TEST(BufferPlan, IsCloseToWhatWasCut) {
  Random random(17);
  constexpr Bytes kArena = 1 << 20;
  // The number of buffers, and how much of the arena that is known the plans may take together, in permille.
  const std::pair<int32_t, Bytes> cases[] = {{8, 1000}, {64, 1010}, {512, 1115}};
  for (auto [count, allowed] : cases) {
    Bytes planned = 0;
    constexpr int32_t kRuns = 20;
    for (int32_t run = 0; run < kRuns; ++run) {
      std::vector<LiveInterval> intervals = cutRectangle(random, count, 4 * count, kArena);
      BufferPlan plan = planBuffers(intervals, 1);
      ASSERT_EQ(verifyBufferPlan(intervals, plan, 1), "");
      ASSERT_EQ(plan.bound, kArena);
      planned += plan.total;
    }
    EXPECT_LE(1000 * planned, allowed * kRuns * kArena) << count << " buffers";
  }
}

// Tests the verifier: it sees each thing that can be wrong.
TEST(BufferPlan, VerifierSeesMistakes) {
  std::vector<LiveInterval> intervals = {{0, 2, 100}, {2, 4, 50}, {3, 4, 100}, {1, 0, 9}};
  BufferPlan good = planBuffers(intervals, 64);
  ASSERT_EQ(verifyBufferPlan(intervals, good, 64), "");
  EXPECT_EQ(good.bound, 150);
  EXPECT_EQ(good.offsets[0], good.offsets[2]) << "lives apart: they share space";
  auto withOffset = [&](size_t id, Bytes offset) {
    BufferPlan plan = good;
    plan.offsets[id] = offset;
    return verifyBufferPlan(intervals, plan, 64);
  };
  EXPECT_NE(withOffset(1, good.offsets[0] + 64).find("overlaps"), std::string::npos);
  EXPECT_NE(withOffset(1, good.offsets[0]).find("overlaps"), std::string::npos);
  EXPECT_NE(withOffset(1, 129).find("not aligned"), std::string::npos);
  EXPECT_NE(withOffset(1, -64).find("not aligned"), std::string::npos);
  EXPECT_NE(withOffset(0, 1024).find("beyond"), std::string::npos);
  BufferPlan plan = good;
  plan.bound = 149;
  EXPECT_NE(verifyBufferPlan(intervals, plan, 64).find("live together"), std::string::npos);
  plan.offsets.pop_back();
  EXPECT_NE(verifyBufferPlan(intervals, plan, 64), "");
}

// Tests sizes: nothing, one buffer, 100,000 buffers of which any two may meet.
TEST(BufferPlan, Sizes) {
  EXPECT_EQ(planBuffers({}).total, 0);
  EXPECT_EQ(planBuffers({{0, 0, 1}}).total, kBufferAlignment);
  Random random(5);
  std::vector<LiveInterval> intervals = randomIntervals(random, 100000, 100000, 1 << 20);
  EXPECT_EQ(verifyBufferPlan(intervals, planBuffers(intervals)), "");
}
