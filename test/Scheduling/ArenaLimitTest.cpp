//===- ArenaLimitTest.cpp - Tests of the limit on the arena -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Answers are recounted from the problem with its buckets carried out: lives of buffers from what each position
// touches, and overlaps by comparing all pairs. Nothing of the models is used.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Lenses/ArenaLimit.h"
#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "Problem/ProblemPrinter.h"
#include "RandomProblem.h"
#include "gtest/gtest.h"

using namespace commsched;
using namespace commsched::test;

namespace {

/// What an order needs.
struct Recount {
  /// One entry for each buffer that is touched: its life and its place in the plan.
  struct Place {
    size_t begin, end;
    Bytes offset, bytes;
  };
  std::vector<Place> places;
  /// The most bytes that are live at once, workspaces not counted; the end of the highest place; the largest workspace.
  Bytes live = 0, arena = 0, workspace = 0;
};

/// Quadratic in the number of buffers and positions.
Recount recount(const Problem &problem, const Order &order) {
  Recount result;
  BufferPlan plan = planBuffers(liveIntervals(problem, order));
  std::vector<Bytes> live(order.size(), 0);
  for (size_t buffer = 0; buffer < problem.buffers.size(); ++buffer) {
    size_t begin = order.size(), end = 0;
    for (size_t at = 0; at < order.size(); ++at)
      for (BufferId touched : problem.touches[order[at]])
        if (touched == static_cast<BufferId>(buffer)) {
          begin = std::min(begin, at);
          end = at;
        }
    if (begin == order.size())
      continue;
    const Buffer &info = problem.buffers[buffer];
    if (info.def == kNone)
      begin = 0;
    if (info.liveOut)
      end = order.size() - 1;
    result.places.push_back({begin, end, plan.offsets[buffer], info.bytes});
    result.arena = std::max(result.arena, plan.offsets[buffer] + info.bytes);
    for (size_t at = begin; at <= end; ++at)
      live[at] += info.bytes;
  }
  for (size_t at = 0; at < order.size(); ++at) {
    result.live = std::max(result.live, live[at]);
    result.workspace = std::max(result.workspace, problem.nodes[order[at]].workspace);
  }
  return result;
}

/// Whether no two buffers that live together share a byte.
bool areApart(const std::vector<Recount::Place> &places) {
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      bool together = places[a].begin <= places[b].end && places[b].begin <= places[a].end;
      bool overlap = places[a].offset < places[b].offset + places[b].bytes &&
                     places[b].offset < places[a].offset + places[a].bytes;
      if (together && overlap)
        return false;
    }
  return true;
}

} // namespace

// Tests that the limit holds for the arena on random programs with buckets and regions, whatever it is, or that the
// answer is said not to fit; and that an answer is never slower than an order given that fits.
TEST(ArenaLimit, HoldsOnRandomPrograms) {
  int32_t buckets = 0, regions = 0, shorter = 0, below = 0, reached = 0, larger = 0;
  for (uint64_t seed = 0; seed < portion(400u); ++seed) {
    RandomOptions shape;
    shape.nodes = static_cast<int32_t>(10 + seed % 60);
    shape.commLanes = static_cast<int32_t>(1 + seed % 3);
    shape.chanceOfRegion = 15;
    shape.chanceOfMergeable = 90;
    shape.maxIssue = 20;
    // So large that rounding to the alignment is nothing.
    shape.maxBytes = 1 << 20;
    shape.chanceOfStart = seed % 2 == 0 ? 60 : 30;
    Problem problem = randomProblem(seed, shape);
    regions += !problem.regions.empty();
    Recount given = recount(problem, identityOrder(problem));
    Bytes givenArena = arenaOf(problem, keepOrder(problem));

    ScheduleOptions options;
    options.effort = 40 * shape.nodes;
    options.bucketing = seed % 5 != 0;
    // A little more than the given order needs, as much, or less.
    if (seed % 3 == 0)
      options.memory.ppm = 50000;
    else if (seed % 3 == 1)
      options.memory.limit = givenArena - givenArena / 16;
    options.limitedMemory = LimitedMemory::Arena;
    Schedule answer = schedule(problem, options);
    ASSERT_TRUE(answer.arena.has_value());
    Bytes arena = *answer.arena;
    std::string context = "seed " + std::to_string(seed) + "\n" + printAsMlir(problem).text;

    Recount found = recount(answer.carriedOut(problem), answer.order);
    ASSERT_TRUE(areApart(found.places)) << context;
    // Offsets are aligned, so the last buffer may end before the arena does.
    ASSERT_LE(found.arena + found.workspace, arena) << context;
    ASSERT_GT(found.arena + found.workspace + kBufferAlignment, arena) << context;
    ASSERT_EQ(answer.limit, options.memory.limitFor(givenArena)) << context;
    if (givenArena <= answer.limit) {
      ASSERT_LE(arena, answer.limit) << context;
      ASSERT_LE(answer.makespan, answer.inputMakespan) << context;
    } else {
      ++below;
      reached += arena <= answer.limit;
      ASSERT_LE(arena, givenArena) << context;
    }
    ScheduleRequirements requirements;
    requirements.collectiveOrder = options.collectiveOrder;
    requirements.peakLimit = std::max(given.live + given.workspace, arena);
    ASSERT_EQ(verify(problem, answer, requirements), "") << context;
    buckets += !answer.buckets.empty();
    shorter += answer.makespan < answer.inputMakespan;
    larger += 100 * found.arena > 101 * found.live;
  }
  // The programs show what they are for.
  EXPECT_GE(buckets, leastOf(61));
  EXPECT_GT(regions, leastOf(150));
  EXPECT_GT(shorter, leastOf(100));
  EXPECT_GT(reached, leastOf(20));
  EXPECT_LT(reached, portion(4) == 4 ? below : below + 1); // A portion of the programs may reach all of them.
  EXPECT_GT(larger, leastOf(20)) << "arenas that are more than 1 % larger than what is live";
}

// Tests that a search takes only what the caller admits, and that this is what makes answers fit: a limit on live bytes
// alone is exceeded by some arenas.
TEST(ArenaLimit, AdmitsOnlyWhatFits) {
  int32_t refused = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomOptions shape;
    shape.nodes = 60;
    shape.chanceOfStart = 50;
    Problem problem = randomProblem(seed, shape);
    Bytes limit = arenaOf(problem, keepOrder(problem));
    ScheduleOptions options;
    options.effort = 4000;
    options.admits = [&](const Problem &carried, llvm::ArrayRef<NodeId> order) {
      Recount found = recount(carried, Order(order.begin(), order.end()));
      bool fits = found.arena + found.workspace <= limit;
      refused += !fits;
      return fits;
    };
    Schedule answer = schedule(problem, options);
    Recount found = recount(answer.carriedOut(problem), answer.order);
    ASSERT_LE(found.arena + found.workspace, limit) << "seed " << seed;
    ASSERT_EQ(answer.defect, "") << "a refusal is no defect";
  }
  EXPECT_GT(refused, 10);
}
