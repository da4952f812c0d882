//===- FormatTest.cpp - Numbers for people ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/Format.h"
#include "gtest/gtest.h"

using namespace commsched;

TEST(Format, AtMostIsNeverLess) {
  EXPECT_EQ(formatAtMost(0), "0.00 %");
  EXPECT_EQ(formatAtMost(1e-9), "0.01 %");
  EXPECT_EQ(formatAtMost(0.02371), "2.38 %");
  EXPECT_EQ(formatAtMost(0.0238), "2.38 %");
  EXPECT_EQ(formatAtMost(0.0007), "0.07 %"); // 1e4 * 0.0007 is a little more than 7
  EXPECT_EQ(formatAtMost(1.5), "150.00 %");
}

TEST(Format, ALossOfTimeHasTheUnitsOfAGain) {
  EXPECT_EQ(formatNs(10'200), "10.2 us");
  EXPECT_EQ(formatNs(-10'200), "-10.2 us");
  EXPECT_EQ(formatNs(-3), "-3 ns");
}
