//===- MemoryBudgetTest.cpp - Limits, caps and the arithmetic under them --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What the options become, at the ends of their ranges too.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/MemoryBudget.h"
#include "CommSched/Support/SplitMix64.h"
#include "gtest/gtest.h"
#include <limits>

using namespace commsched;

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

/// The budget of two options that are in range.
MemoryBudget budget(double ratio, int64_t limitBytes = -1) {
  return llvm::cantFail(MemoryBudget::parse(ratio, limitBytes));
}

/// What is wrong with two options.
std::string fault(double ratio, int64_t limitBytes = -1) {
  llvm::Expected<MemoryBudget> budget = MemoryBudget::parse(ratio, limitBytes);
  return budget ? "" : llvm::toString(budget.takeError());
}

// Tests that a ratio counts in millionths of the input's peak, and that a limit overrides it.
TEST(MemoryBudget, RatioOrLimit) {
  EXPECT_EQ(MemoryBudget().limitFor(1000), 1000);
  EXPECT_EQ(budget(0.2).limitFor(1000), 1200);
  EXPECT_EQ(budget(1e-6).limitFor(3'000'000), 3'000'003);
  EXPECT_EQ(budget(-0.2).limitFor(1000), 800);
  EXPECT_EQ(budget(-0.999999).limitFor(1'000'000), 1);
  EXPECT_EQ(budget(0.2, 70).limitFor(1000), 70);
  EXPECT_EQ(budget(0.2, 0).limitFor(1000), 0);
}

// Tests that the largest options saturate instead of wrapping.
TEST(MemoryBudget, Saturates) {
  EXPECT_EQ(budget(1e6).limitFor(int64_t(10) << 40), kUnlimited);
  EXPECT_EQ(budget(1e6).limitFor(kUnlimited), kUnlimited);
  EXPECT_EQ(budget(0, kMost).limitFor(1), kUnlimited);
  EXPECT_EQ(budget(1e6).limitFor(1 << 20), (int64_t(1) << 20) * 1'000'001);
}

// Tests that what is out of range is named with its option, value and range.
TEST(MemoryBudget, Refuses) {
  EXPECT_EQ(fault(-1), "memory-budget-ratio=-1.00: expected a fraction above -1 and at most 1e6");
  EXPECT_EQ(fault(1000001), "memory-budget-ratio=1000001.00: expected a fraction above -1 and at most 1e6");
  EXPECT_NE(fault(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_NE(fault(std::numeric_limits<double>::infinity()), "");
  EXPECT_EQ(fault(0, -2), "memory-limit-bytes=-2: expected a number of bytes, or -1 for no limit");
}

// Tests that the tighter of two caps holds, and that a negative one is none.
TEST(BucketCaps, TheTighterHolds) {
  EXPECT_LT(tighterCap(-1, -1), 0);
  EXPECT_EQ(tighterCap(100, -1), 100);
  EXPECT_EQ(tighterCap(-1, 100), 100);
  EXPECT_EQ(tighterCap(100, 70), 70);
  EXPECT_EQ(tighterCap(0, 70), 0);
}

// Tests products that pass 64 bits, quotients by 0, and the direction of rounding.
TEST(Arithmetic, Products) {
  EXPECT_EQ(mulDiv(kMost / 2, 10, 20), kMost / 4);
  EXPECT_EQ(mulDiv(kMost, kMost, 1), kLargestAmount);
  EXPECT_EQ(mulDiv(-kMost, kMost, 1), -kLargestAmount);
  EXPECT_EQ(mulDiv(7, 3, 2), 10);
  EXPECT_EQ(mulDivUp(7, 3, 2), 11);
  EXPECT_EQ(mulDiv(7, 3, 0), 0);
  EXPECT_EQ(compareProducts(kMost, kMost, kMost, kMost - 1), 1);
  EXPECT_EQ(compareProducts(kMost, 3, 3, kMost), 0);
  EXPECT_EQ(compareProducts(-1, kMost, 0, 0), -1);
}

// Tests the first numbers of Vigna's reference implementation with seed 0.
TEST(SplitMix64, ReferenceNumbers) {
  SplitMix64 random(0);
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafull);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4ull);
  EXPECT_EQ(random.below(0), 0);
}

} // namespace
