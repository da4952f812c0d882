//===- CublasLtHeadersTest.cpp - The emulator's declarations against cuBLASLt's ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// If the vendor's header is found, each function of the emulator redeclares the vendor's: the compiler refuses another
// type.
//
//===------------------------------------------------------------------------------------------===//

#include "CublasLtApi.h"
#include <gtest/gtest.h>

namespace {
// Tests that our functions and numbers are those of cublasLt.h.
TEST(Headers, CublasLt) {
#ifdef EMULATOR_WITH_CUBLASLT_HEADERS
  EXPECT_GE(CUBLAS_VERSION, 120000); // the functions were compared when this was compiled
#else
  GTEST_SKIP() << "cublasLt.h was not found, or does not compile: COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
#endif
}
} // namespace
