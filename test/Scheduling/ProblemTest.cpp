//===- ProblemTest.cpp - Tests of the Problem's arrays ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Problem/Problem.h"
#include "gtest/gtest.h"

using namespace commsched;

namespace {

TEST(IndexLists, TransposesTheRelation) {
  IndexLists lists;
  lists.append({1, 2});
  lists.append({});
  lists.append({2});
  IndexLists transposed = lists.transposed(3);
  EXPECT_EQ(transposed[0].size(), 0u);
  EXPECT_EQ(transposed[1].vec(), std::vector<int32_t>({0}));
  EXPECT_EQ(transposed[2].vec(), std::vector<int32_t>({0, 2}));
}

TEST(Problem, ValidateFindsABackwardEdge) {
  Problem problem;
  problem.laneNames = {"compute"};
  problem.nodes.resize(2);
  problem.preds.append({1});
  problem.preds.append({});
  problem.touches.append({});
  problem.touches.append({});
  problem.finalize();
  EXPECT_EQ(problem.validate(), "node 0: an edge points backward");
}

} // namespace
