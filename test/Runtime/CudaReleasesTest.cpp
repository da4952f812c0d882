//===- CudaReleasesTest.cpp - Notice if no headers of CUDA were found -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// CudaHeadersTest.cpp adds one test for each release of CUDA whose headers CMake has found. This test says so if there
// is none.
//
//===------------------------------------------------------------------------------------------===//

#include <gtest/gtest.h>

TEST(Cuda, HeadersOfSomeReleaseWereFound) {
  if (testing::UnitTest::GetInstance()->total_test_suite_count() == 1)
    GTEST_SKIP() << "cuda_runtime_api.h was not found, or does not compile: scripts/setup.sh installs it, or "
                    "COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
  EXPECT_GT(testing::UnitTest::GetInstance()->total_test_suite_count(), 1);
}
