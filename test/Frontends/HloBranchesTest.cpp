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

#include "CommSched/Frontends/Hlo/HloRewriter.h"
#include "CommSched/Frontends/Hlo/HloText.h"
#include "HloTestSupport.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;
using namespace commsched::hlo::test;

namespace {

/// An entry that runs %block as {0} says. In %block, nothing runs while the collective does, although %k needs it not.
std::string program(StringRef how) {
  return formatv(R"(HloModule blocks, is_scheduled=true, num_partitions=4

%body (p: f32[4096,4096]) -> f32[4096,4096] {{
  %p = f32[4096,4096]{{1,0} parameter(0)
  ROOT %o = f32[4096,4096]{{1,0} negate(%p)
}

%block (b: f32[4096,4096]) -> f32[16384,4096] {{
  %b = f32[4096,4096]{{1,0} parameter(0)
  %s = (f32[4096,4096]{{1,0}, f32[16384,4096]{{1,0}) all-gather-start(%b), replica_groups={{{{0,1,2,3}}, dimensions={{0}
  %d = f32[16384,4096]{{1,0} all-gather-done(%s)
  %k = f32[4096,4096]{{1,0} fusion(%b), kind=kLoop, calls=%body
  ROOT %r = f32[16384,4096]{{1,0} custom-call(%d, %k), custom_call_target="join"
}

ENTRY %main (flag: pred[], x: f32[4096,4096]) -> f32[16384,4096] {{
  %flag = pred[] parameter(0)
  %x = f32[4096,4096]{{1,0} parameter(1)
  ROOT %c = f32[16384,4096]{{1,0} {0}
}
)",
                 how)
      .str();
}

class HloBlocks : public testing::TestWithParam<const char *> {};

} // namespace

// Tests that what a call or a conditional runs is a block of its own: it gets another order, the report has its name,
// and its caller takes as much less time.
TEST_P(HloBlocks, OrderedByThemselves) {
  std::string text = program(GetParam());
  std::unique_ptr<HloFile> file = cantFail(HloFile::read(text, "blocks.txt"));
  HloResult result = cantFail(scheduleModule(file->module(), h100(), {}));
  ASSERT_EQ(result.computations.size(), 2u);
  const ComputationResult &block = result.computations[0], &entry = result.computations[1];
  EXPECT_EQ(file->module().computations[block.computation].name, "block");
  EXPECT_EQ(block.collectives, 1);
  EXPECT_EQ(entry.collectives, 0);
  EXPECT_EQ(entry.makespanBefore, block.makespanBefore);
  EXPECT_EQ(entry.makespanAfter, block.makespanAfter);
  EXPECT_LT(block.makespanAfter, block.makespanBefore);
  EXPECT_EQ(entry.peakBefore, block.peakBefore);
  std::string report = formatv("{0}", json::Value(describe(file->module(), result))).str();
  EXPECT_NE(report.find(R"("name":"block")"), std::string::npos);
  // The kernel runs between start and done.
  std::string written = cantFail(file->write(result));
  EXPECT_GT(text.find("%k = "), text.find("%d = "));
  EXPECT_LT(written.find("%s = "), written.find("%k = "));
  EXPECT_LT(written.find("%k = "), written.find("%d = "));
}

INSTANTIATE_TEST_SUITE_P(Hlo, HloBlocks,
                         testing::Values("call(%x), to_apply=%block",
                                         "conditional(%flag, %x, %x), true_computation=%block, "
                                         "false_computation=%block"));

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
