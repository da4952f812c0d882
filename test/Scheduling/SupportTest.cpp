//===- SupportTest.cpp - Tests of sizes and names on command lines ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/ByteCount.h"
#include "CommSched/Support/NearestName.h"
#include "gtest/gtest.h"

using namespace commsched;

namespace {

/// The bytes, or kWrong if the text is refused.
constexpr int64_t kWrong = -123;
int64_t bytesOf(llvm::StringRef text) {
  llvm::Expected<ByteCount> count = ByteCount::parse(text);
  if (count)
    return *count;
  llvm::consumeError(count.takeError());
  return kWrong;
}

TEST(ByteCount, HasUnits) {
  EXPECT_EQ(bytesOf("12884901888"), 12884901888);
  EXPECT_EQ(bytesOf("12GiB"), 12884901888);
  EXPECT_EQ(bytesOf("12 gib"), 12884901888);
  EXPECT_EQ(bytesOf("1.5kB"), 1500);
  EXPECT_EQ(bytesOf("64B"), 64);
  EXPECT_EQ(bytesOf("-1"), -1);
  EXPECT_EQ(bytesOf("0"), 0);
}

TEST(ByteCount, RefusesWhatIsNoSize) {
  for (llvm::StringRef text :
       {"", "GiB", "12Gib/s", "1.5", "-1GiB", "1e3kB", "9223372036854775808", "9000000TiB", "1..5kB"})
    EXPECT_EQ(bytesOf(text), kWrong) << text.str();
}

TEST(NearestName, IsTheOneWithTheFewestEdits) {
  const llvm::StringRef known[] = {"effort", "limit", "limits", "memory-limit-bytes"};
  EXPECT_EQ(nearestName("efort", known), "effort");
  EXPECT_EQ(nearestName("limit", known), "limit");
  EXPECT_EQ(nearestName("memory_limit_byte", known), "memory-limit-bytes");
  EXPECT_EQ(nearestName("p", known), "");
  EXPECT_EQ(suggestName("p", known), "; expected effort, limit, limits or memory-limit-bytes");
  EXPECT_EQ(suggestName("efort", known), "; did you mean 'effort'?");
}

} // namespace
