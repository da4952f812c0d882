//===- NcclOptionsTest.cpp - Options of communicators ---===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// How COMMRT_NCCL_GROUPS is read, what it says of bad text, and which rank makes which identifier.
//
//===------------------------------------------------------------------------------------------===//

#include "Nccl/NcclOptions.h"
#include <cstdlib>
#include <gtest/gtest.h>

using namespace commsched::runtime;

namespace {
constexpr int newVersion = 22907;

std::string readGroups(const char *text, NcclOptions &options, int version = newVersion) {
  setenv("COMMRT_NCCL_GROUPS", text, 1);
  std::string error = options.read(version);
  unsetenv("COMMRT_NCCL_GROUPS");
  return error;
}

TEST(NcclOptions, GroupsByNameAndOthers) {
  NcclOptions options;
  ASSERT_EQ(readGroups("dp:min=2,max=8;*:max=16,policy=efficiency;tp:policy=zero;", options), "");
  EXPECT_EQ(options.ctasOf("dp").text(), "2 to 8 CTAs");
  EXPECT_EQ(options.ctasOf("dp").policy, ncclUndefined);
  EXPECT_EQ(options.ctasOf("tp").text(), "policy zero");
  EXPECT_EQ(options.ctasOf("tp").policy, 2);
  EXPECT_EQ(options.ctasOf("pp").text(), "at most 16 CTAs, policy efficiency");
  EXPECT_FALSE(NcclOptions().ctasOf("dp").isSet());
}

TEST(NcclOptions, BadTextIsNamed) {
  for (auto [text, expected] : {
           std::pair("dp", "expected GROUP:OPTION,..., got 'dp'"),
           std::pair(":max=2", "expected GROUP:OPTION,..., got ':max=2'"),
           std::pair("dp:", "expected min=N, max=N (1 to 64) or policy=NAME, got ''"),
           std::pair("dp:max=65", "got 'max=65'"),
           std::pair("dp:min=0", "got 'min=0'"),
           std::pair("dp:max=2x", "got 'max=2x'"),
           std::pair("dp:most=2", "got 'most=2'"),
           std::pair("dp:policy=fast", "expected policy=default, efficiency or zero, got 'policy=fast'"),
           std::pair("dp:min=4,max=2", "'dp:min=4,max=2' has a least number of CTAs above its greatest"),
       }) {
    NcclOptions options;
    std::string error = readGroups(text, options);
    EXPECT_EQ(error.rfind("COMMRT_NCCL_GROUPS: ", 0), 0U) << error;
    EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
}

/// The order of launches in a graph is NCCL's before 2.30.5.
TEST(NcclOptions, OverlapInGraphsNeedsItsVersion) {
  setenv("COMMRT_NCCL_GRAPH_OVERLAP", "1", 1);
  NcclOptions options;
  EXPECT_EQ(options.read(newVersion), "COMMRT_NCCL_GRAPH_OVERLAP needs NCCL 2.30.5, and this is 2.29.7");
  EXPECT_EQ(options.read(23005), "");
  EXPECT_TRUE(options.graphOverlap);
  setenv("COMMRT_NCCL_GRAPH_OVERLAP", "0", 1);
  EXPECT_EQ(options.read(newVersion), "");
  EXPECT_FALSE(options.graphOverlap);
  unsetenv("COMMRT_NCCL_GRAPH_OVERLAP");
}

/// NCCL would ignore the field without a word.
TEST(NcclOptions, PoliciesNeedTheirVersion) {
  NcclOptions options;
  EXPECT_EQ(readGroups("dp:policy=efficiency", options, 22605),
            "COMMRT_NCCL_GROUPS: 'policy=efficiency' needs NCCL 2.27.0, and this is 2.26.5");
  EXPECT_EQ(readGroups("dp:policy=efficiency", options, 22703), "");
  EXPECT_NE(readGroups("dp:policy=zero", options, 22703).find("needs NCCL 2.28.0"), std::string::npos);
}

/// NCCL's own rule, literally: rootIdFromRank of its init.cc.
int rootOf(int rank, int ranks, int roots) {
  int more = ranks % roots, each = ranks / roots, limit = more * (each + 1);
  return rank < limit ? rank / (each + 1) : (rank - limit) / each + more;
}

TEST(NcclOptions, MakersOfIdentifiers) {
  for (int ranks : {3, 8, 1025, 4096, 5000})
    for (int count : {1, 2, 3})
      for (int index = 0; index < count; ++index) {
        int maker = makerOf(index, ranks, count);
        EXPECT_EQ(rootOf(maker, ranks, count), index);
        EXPECT_TRUE(maker == 0 || rootOf(maker - 1, ranks, count) == index - 1) << "it is the first of its ranks";
      }
  NcclOptions options;
  EXPECT_EQ(options.identifiers(1024), 1);
  EXPECT_EQ(options.identifiers(1025), 9);
  EXPECT_EQ(options.identifiers(4096), 32);
}

TEST(NcclOptions, NumbersOfIdentifiers) {
  setenv("COMMRT_NCCL_RANKS_OF_ONE_ID", "2", 1);
  setenv("COMMRT_NCCL_RANKS_PER_ID", "3", 1);
  NcclOptions options;
  EXPECT_EQ(options.read(newVersion), "");
  EXPECT_EQ(options.identifiers(8), 3);
  setenv("COMMRT_NCCL_RANKS_PER_ID", "no", 1);
  EXPECT_EQ(options.read(newVersion), "COMMRT_NCCL_RANKS_PER_ID is 'no', expected a number from 1");
  unsetenv("COMMRT_NCCL_RANKS_OF_ONE_ID");
  unsetenv("COMMRT_NCCL_RANKS_PER_ID");
  setenv("COMMRT_CHECK", "12", 1);
  EXPECT_EQ(options.read(newVersion), "");
  EXPECT_EQ(options.checkEvery, 12);
  setenv("COMMRT_CHECK", "-1", 1);
  EXPECT_EQ(options.read(newVersion), "COMMRT_CHECK is '-1', expected a number of starts, or 0");
  unsetenv("COMMRT_CHECK");
}
} // namespace
