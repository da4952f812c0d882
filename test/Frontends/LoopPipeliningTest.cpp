//===- LoopPipeliningTest.cpp - Gains of pipelined loops --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The truth from outside is XLA's own pipeliner: small-scan-pipelined.pb is the program of small-scan.pb, compiled with
// XLA's flags. The rules are shown one by one with bodies that are written by hand.
//
//===------------------------------------------------------------------------------------------===//

#include "Hlo/Schedule/LoopPipelining.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "Hlo/Graph/HloProblem.h"
#include "HloTestSupport.h"
#include "ModuleBuilder.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

std::string tupleIndex(int64_t index) {
  std::string bytes;
  writeInteger(instruction_field::kTupleIndex, index, bytes);
  return bytes;
}

std::string trips(StringRef count) {
  std::string bytes;
  writeBytes(instruction_field::kBackendConfig, (R"({"known_trip_count":{"n":")" + count + R"("}})").str(), bytes);
  return bytes;
}

/// What the gather of the loop reads.
enum class Shard : uint8_t {
  OfIteration,    ///< A slice of a stack that no iteration changes.
  OfValue,        ///< The value that the iterations hand on.
  BehindBarrier,  ///< The slice, through a barrier with that value.
  OfChangedStack, ///< A slice of a stack that every iteration writes.
};

/// What happens to the reduced gradient of the loop.
enum class Gradient : uint8_t {
  None,
  Added, ///< A kernel adds it to a sum, which nothing else reads.
  Used,  ///< The same, and another kernel reads the sum.
};

/// A loop whose body gathers a weight right before it uses it.
std::string program(Shard shard, Gradient gradient, StringRef count = "8") {
  const std::string i32 = array(4, {}), part = f32({2048, 8192}), whole = f32({8192, 8192});
  const std::string carriedShape = tuple({i32, whole, part, part});
  ModuleBuilder builder;
  int64_t fused = builder.begin("fused", /*isFused=*/true);
  builder.add("n", "negate", part, {builder.parameter("p0", part, 0)});
  int64_t product = builder.begin("product", /*isFused=*/true);
  int64_t left = builder.parameter("p1", whole, 0), right = builder.parameter("p2", whole, 1);
  builder.add("dot", "dot", whole, {left, right});

  int64_t condition = builder.begin("condition");
  int64_t p = builder.parameter("pc", carriedShape, 0);
  builder.add("less", "compare", pred({}), {builder.add("ic", "get-tuple-element", i32, {p}, tupleIndex(0))});

  int64_t body = builder.begin("body");
  p = builder.parameter("p", carriedShape, 0);
  int64_t i = builder.add("i", "get-tuple-element", i32, {p}, tupleIndex(0));
  int64_t x = builder.add("x", "get-tuple-element", whole, {p}, tupleIndex(1));
  int64_t stack = builder.add("stack", "get-tuple-element", part, {p}, tupleIndex(2));
  int64_t sum = builder.add("sum", "get-tuple-element", part, {p}, tupleIndex(3));
  int64_t read = shard == Shard::OfValue ? x : shard == Shard::OfChangedStack ? sum : stack;
  int64_t slice = builder.add("slice", "fusion", part, {read, i}, called({fused}));
  if (shard == Shard::BehindBarrier) {
    int64_t both = builder.add("both", "tuple", tuple({part, whole}), {slice, x});
    int64_t barrier = builder.add("barrier", "opt-barrier", tuple({part, whole}), {both});
    slice = builder.add("held", "get-tuple-element", part, {barrier}, tupleIndex(0));
  }
  int64_t start =
      builder.add("gather", "all-gather-start", tuple({part, whole}), {slice}, group({0, 1, 2, 3}) + dimensions({0}));
  int64_t weight = builder.add("weight", "all-gather-done", whole, {start});
  int64_t y = builder.add("y", "fusion", whole, {x, weight}, called({product}));
  if (gradient != Gradient::None) {
    int64_t reduce =
        builder.add("reduce", "reduce-scatter-start", tuple({whole, part}), {y}, group({0, 1, 2, 3}) + dimensions({0}));
    int64_t reduced = builder.add("reduced", "reduce-scatter-done", part, {reduce});
    if (gradient == Gradient::Used)
      y = builder.add("z", "fusion", whole, {y, sum}, called({product}));
    sum = builder.add("added", "fusion", part, {sum, reduced}, called({fused}));
  } else if (shard == Shard::OfChangedStack) {
    sum = builder.add("changed", "fusion", part, {sum, i}, called({fused}));
  }
  int64_t next = builder.add("next", "fusion", i32, {i}, called({fused}));
  builder.add("handed", "tuple", carriedShape, {next, y, stack, sum});

  builder.begin("main");
  std::vector<int64_t> given;
  for (const std::string &shape : {i32, whole, part, part})
    given.push_back(builder.parameter("a" + std::to_string(given.size()), shape, static_cast<int64_t>(given.size())));
  int64_t initial = builder.add("initial", "tuple", carriedShape, given);
  builder.add("loop", "while", carriedShape, {initial}, called({body, condition}) + trips(count));
  return builder.serialize();
}

std::vector<PipelinedLoop> loopsOf(const std::string &bytes) {
  HloModule module = cantFail(readModule(bytes));
  return cantFail(forecastLoops(module, h100(), {})).loops;
}

using Names = std::vector<std::string>;

} // namespace

// Tests that a gather may run ahead if it needs the number of the iteration and what no iteration changes, that a
// barrier is told apart from other values, and that nothing is said of a loop of one iteration or of unknown length.
TEST(LoopPipelining, GathersAhead) {
  std::vector<PipelinedLoop> loops = loopsOf(program(Shard::OfIteration, Gradient::None));
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].body, "body");
  EXPECT_EQ(loops[0].collectives, Names{"gather"});
  EXPECT_TRUE(loops[0].barred.empty());
  EXPECT_EQ(loops[0].runs, 8);
  EXPECT_EQ(loops[0].carried, int64_t(8192) * 8192 * 4);
  // One gather comes before the loop, and those in it hide behind the kernels, or the kernels behind them.
  std::string bytes = program(Shard::OfIteration, Gradient::None);
  HloModule module = cantFail(readModule(bytes));
  Ns gather = 0;
  for (const ComputationResult &one : cantFail(scheduleModule(module, h100(), {})).computations)
    for (const StartReport &start : one.starts)
      gather = start.cost;
  EXPECT_GT(gather, 0);
  EXPECT_GE(loops[0].pipelined, gather);
  EXPECT_GT(loops[0].iteration, loops[0].pipelined);
  EXPECT_LE(loops[0].iteration, loops[0].pipelined + gather);
  EXPECT_EQ(loops[0].gain, 8 * (loops[0].iteration - loops[0].pipelined) - gather);

  EXPECT_TRUE(loopsOf(program(Shard::OfValue, Gradient::None)).empty());
  EXPECT_TRUE(loopsOf(program(Shard::OfChangedStack, Gradient::None)).empty());
  EXPECT_TRUE(loopsOf(program(Shard::OfIteration, Gradient::None, "1")).empty());
  EXPECT_TRUE(loopsOf(program(Shard::OfIteration, Gradient::None, "many")).empty());
}

// Tests that a gather behind a barrier is named, beside a reduction that may run behind, and that a reduction whose
// result another kernel reads may not.
TEST(LoopPipelining, ReductionsBehind) {
  std::vector<PipelinedLoop> loops = loopsOf(program(Shard::BehindBarrier, Gradient::Added));
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].collectives, Names{"reduce"});
  EXPECT_EQ(loops[0].barred, Names{"gather"});
  loops = loopsOf(program(Shard::OfIteration, Gradient::Added));
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].collectives, (Names{"gather", "reduce"}));
  loops = loopsOf(program(Shard::OfIteration, Gradient::Used));
  ASSERT_EQ(loops.size(), 1u);
  EXPECT_EQ(loops[0].collectives, Names{"gather"});
}

// Tests that one iteration of the steady state is a valid problem, no longer than the iteration as it was.
TEST(LoopPipelining, SteadyStatesAreValid) {
  for (Shard shard : {Shard::OfIteration, Shard::OfValue, Shard::BehindBarrier, Shard::OfChangedStack})
    for (Gradient gradient : {Gradient::None, Gradient::Added, Gradient::Used}) {
      std::string bytes = program(shard, gradient);
      HloModule module = cantFail(readModule(bytes));
      HloCosts costs(module, h100());
      std::vector<Carried> carried(module.computations.size());
      std::vector<CalleeWork> callees(module.computations.size());
      auto at = find_if(module.computations, [](const HloComputation &one) { return one.name == "body"; });
      HloGraph graph(module, static_cast<int32_t>(at - module.computations.begin()), carried);
      LoadedComputation loaded =
          cantFail(loadComputation(graph, costs, callees, CalleeCost::Before, /*isEntry=*/false, MergeKeys()));
      Bytes bytesCarried = 0;
      Problem body = pipelinedBody(loaded.problem, findPipelining(graph, loaded.problem), bytesCarried);
      EXPECT_EQ(body.validate(), "");
      EXPECT_LE(makespanOf(body, identityOrder(body)), makespanOf(loaded.problem, identityOrder(loaded.problem)));
    }
}

// Tests that the forecast for XLA's loop is what XLA's pipeliner and a schedule of its loop reach, and that nothing is
// left to run apart then.
TEST(LoopPipelining, ForecastIsWhatXlaReaches) {
  std::string given = readInput("small-scan.pb"), pipelined = readInput("small-scan-pipelined.pb");
  HloModule module = cantFail(readModule(pipelined));
  HloResult reached = cantFail(scheduleModule(module, h100(), {}));
  int32_t compared = 0;
  for (const PipelinedLoop &loop : loopsOf(given)) {
    EXPECT_LT(loop.pipelined, loop.iteration);
    if (loop.collectives.empty())
      continue;
    std::string name = loop.body + ".clone";
    for (const ComputationResult &one : reached.computations) {
      if (module.computations[one.computation].name != name)
        continue;
      ++compared;
      EXPECT_NEAR(static_cast<double>(loop.pipelined) / static_cast<double>(one.makespanAfter), 1.0, 0.06);
    }
  }
  EXPECT_EQ(compared, 1);
  HloModule scheduled = cantFail(readModule(reached.module));
  LoopForecast left = cantFail(forecastLoops(scheduled, h100(), {}));
  for (const PipelinedLoop &loop : left.loops)
    EXPECT_TRUE(loop.collectives.empty()) << loop.body;
}
