//===- MpiScratchTest.cpp - Tests of the memory of reductions over MPI ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Which buffers are kept, and for whom.
//
//===------------------------------------------------------------------------------------------===//

#include "Mpi/MpiScratch.h"
#include <gtest/gtest.h>
#include <utility>

using namespace commsched::runtime;

namespace {
constexpr int64_t mib = 1 << 20;

/// Tests that the next reduction of the same size gets the memory of the last one.
TEST(MpiScratch, IsUsedAgain) {
  MpiScratch scratch;
  MpiScratch::Buffer first = scratch.take(mib);
  const char *memory = first.data.get();
  scratch.giveBack(std::move(first));
  EXPECT_EQ(scratch.spareBytes(), mib);
  MpiScratch::Buffer second = scratch.take(mib - 100);
  EXPECT_EQ(second.data.get(), memory);
  EXPECT_EQ(second.bytes, mib);
  EXPECT_EQ(scratch.spareBytes(), 0);
}

/// Tests that a small reduction does not take the memory of a large one.
TEST(MpiScratch, FitsTheRequest) {
  MpiScratch scratch;
  MpiScratch::Buffer large = scratch.take(mib);
  const char *memory = large.data.get();
  scratch.giveBack(std::move(large));
  MpiScratch::Buffer small = scratch.take(mib / 2 - 1);
  EXPECT_NE(small.data.get(), memory);
  EXPECT_EQ(small.bytes, mib / 2 - 1);
}

/// Tests that what is kept and what is used never exceed what was in use at one time.
TEST(MpiScratch, StaysBelowThePeak) {
  MpiScratch scratch;
  MpiScratch::Buffer first = scratch.take(mib), second = scratch.take(mib);
  scratch.giveBack(std::move(first));
  scratch.giveBack(std::move(second));
  EXPECT_EQ(scratch.spareBytes(), 2 * mib);
  MpiScratch::Buffer large = scratch.take(2 * mib);
  EXPECT_EQ(large.bytes, 2 * mib);
  EXPECT_EQ(scratch.spareBytes(), 0);
  scratch.giveBack(std::move(large));
  EXPECT_EQ(scratch.spareBytes(), 2 * mib);
}
} // namespace
