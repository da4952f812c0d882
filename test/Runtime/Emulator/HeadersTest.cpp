//===- HeadersTest.cpp - The emulator's declarations against CUDA's and NCCL's ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the vendor's header is found, it takes the place of the emulator's types, its numbers become assertions, and
// each function of the emulator redeclares the vendor's: the compiler refuses a redeclaration with another type.
//
//===------------------------------------------------------------------------------------------===//

#ifdef COMMSCHED_HAS_CUDA_HEADERS
#define EMULATOR_WITH_CUDA_HEADERS
#ifdef COMMSCHED_HAS_NCCL_HEADERS
#define EMULATOR_WITH_NCCL_HEADERS
#endif
#endif
#include "CudaApi.h"
#ifdef EMULATOR_WITH_NCCL_HEADERS
#include "NcclApi.h"
#endif
#include <gtest/gtest.h>

namespace {
// Tests that our types, numbers and functions are those of cuda_runtime_api.h.
TEST(Headers, Cuda) {
#ifdef EMULATOR_WITH_CUDA_HEADERS
  EXPECT_GE(CUDART_VERSION, 13000); // everything was compared when this was compiled
#else
  GTEST_SKIP() << "cuda_runtime_api.h of CUDA 13 was not found, or does not compile: scripts/setup.sh installs it, or "
                  "COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
#endif
}

// Tests that our types, numbers and functions are those of nccl.h.
TEST(Headers, Nccl) {
#ifndef EMULATOR_WITH_NCCL_HEADERS
  GTEST_SKIP() << "nccl.h of NCCL 2.32 was not found, or does not compile: scripts/setup.sh installs it, or "
                  "COMMSCHED_NVIDIA_INCLUDE_DIRS names its folder";
#else
  EXPECT_GE(NCCL_VERSION_CODE, 23200);
#endif
}

#ifdef EMULATOR_WITH_CUDA_HEADERS
// The check can fail: a function of another type is another type.
static_assert(!std::is_same_v<decltype(&cudaSetDevice), decltype(&cudaGetDevice)>);
#endif
} // namespace
