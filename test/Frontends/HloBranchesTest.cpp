//===- HloBranchesTest.cpp - Collectives in branches and in what is called --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// small-branches.pb is XLA's module of a jax.lax.cond with collectives in both branches, made as the other Inputs are.
// XLA's modules for GPUs have no calls with collectives before they are scheduled, so those are written by hand.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Schedule/HloRewriter.h"
#include "HloTestSupport.h"
#include "ModuleBuilder.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

/// An entry that runs `block` by a `call` or a `conditional`. In `block`, nothing runs while the collective does,
/// although the kernel `k` needs nothing of it.
std::string program(StringRef opcode) {
  const std::string shard = f32({4096, 4096}), whole = f32({16384, 4096});
  ModuleBuilder builder;
  int64_t body = builder.begin("body", /*isFused=*/true);
  int64_t p = builder.parameter("p", shard, 0);
  builder.add("o", "negate", shard, {p});
  int64_t block = builder.begin("block");
  int64_t b = builder.parameter("b", shard, 0);
  int64_t start =
      builder.add("s", "all-gather-start", tuple({shard, whole}), {b}, group({0, 1, 2, 3}) + dimensions({0}));
  int64_t done = builder.add("d", "all-gather-done", whole, {start});
  int64_t kernel = builder.add("k", "fusion", shard, {b}, called({body}));
  builder.add("r", "custom-call", whole, {done, kernel}, target("join"));
  builder.begin("main");
  int64_t flag = builder.parameter("flag", pred({}), 0);
  int64_t x = builder.parameter("x", shard, 1);
  if (opcode == "call")
    builder.add("c", opcode, whole, {x}, called({block}));
  else
    builder.add("c", opcode, whole, {flag, x, x}, called({block, block}));
  return builder.serialize();
}

std::vector<StringRef> namesOf(const HloComputation &computation, ArrayRef<int32_t> order) {
  std::vector<StringRef> names;
  for (int32_t at : order)
    names.push_back(computation.instructions[at].name);
  return names;
}

class HloBlocks : public testing::TestWithParam<const char *> {};

} // namespace

// Tests that what a call or a conditional runs is a block of its own: it gets another order, the report has its name,
// and its caller takes as much less time.
TEST_P(HloBlocks, OrderedByThemselves) {
  std::string bytes = program(GetParam());
  HloModule module = cantFail(readModule(bytes));
  HloResult result = cantFail(scheduleModule(module, h100(), {}));
  ASSERT_EQ(result.computations.size(), 2u);
  const ComputationResult &block = result.computations[0], &entry = result.computations[1];
  EXPECT_EQ(module.computations[block.computation].name, "block");
  EXPECT_EQ(block.collectives, 1);
  EXPECT_EQ(entry.collectives, 0);
  EXPECT_EQ(entry.makespanBefore, block.makespanBefore);
  EXPECT_EQ(entry.makespanAfter, block.makespanAfter);
  EXPECT_LT(block.makespanAfter, block.makespanBefore);
  EXPECT_EQ(entry.peakBefore, block.peakBefore);
  std::string report = formatv("{0}", json::Value(describe(module, result))).str();
  EXPECT_NE(report.find(R"("name":"block")"), std::string::npos);
  // The kernel runs between start and done.
  EXPECT_EQ(namesOf(module.computations[block.computation], module.computations[block.computation].sequence),
            (std::vector<StringRef>{"b", "s", "d", "k", "r"}));
  EXPECT_EQ(namesOf(module.computations[block.computation], block.sequence),
            (std::vector<StringRef>{"b", "s", "k", "d", "r"}));
}

INSTANTIATE_TEST_SUITE_P(Hlo, HloBlocks, testing::Values("call", "conditional"));

// Tests that the collectives in branches of XLA's own conditional are taken apart and ordered, that all branches and
// the entry are in the report, and that the conditional is as long as its longest branch.
TEST(HloBranches, Xla) {
  std::string bytes = readInput("small-branches.pb");
  HloModule module = cantFail(readModule(bytes));
  HloResult plain = cantFail(scheduleModule(module, h100(), {}));
  RewrittenModule rewritten = cantFail(rewriteModule(module, h100(), {}, {}, plain));
  const std::vector<ComputationResult> &all = rewritten.result.computations;
  ASSERT_EQ(all.size(), 3u);
  for (const ComputationResult &one : all)
    EXPECT_GT(one.collectives, 0);
  const Ns longestBefore = std::max(all[0].makespanBefore, all[1].makespanBefore);
  const Ns longestAfter = std::max(all[0].makespanAfter, all[1].makespanAfter);
  EXPECT_LT(longestAfter, longestBefore);
  // Nothing in the entry runs beside the conditional.
  EXPECT_EQ(all[2].makespanBefore - all[2].makespanAfter, longestBefore - longestAfter);
  // What was written is ordered in its branches, too.
  HloModule again = cantFail(readModule(rewritten.bytes));
  HloOptions random;
  random.shuffle = 3;
  HloResult shuffled = cantFail(scheduleModule(again, h100(), random));
  for (const ComputationResult &one : shuffled.computations)
    EXPECT_NE(one.sequence, again.computations[one.computation].sequence);
  cantFail(readModule(shuffled.module).takeError());
}
