//===- RangesTest.cpp - Tests of ranges for profilers -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A program runs with a profiler that writes down its ranges. A process loads a profiler once, so these tests run in a
// process of their own: RuntimeSeamTests.ranges.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <dlfcn.h>

using namespace commsched::test;

namespace {
/// The profiler's log; null if there is none.
const char *profilerLog() {
  const char *path = std::getenv("NVTX_INJECTION64_PATH");
  void *library = path ? dlopen(path, RTLD_LAZY) : nullptr;
  auto log = library ? reinterpret_cast<const char *(*)()>(dlsym(library, "fakeNvtxLog")) : nullptr;
  return log ? log() : nullptr;
}

/// Each start, wait and computation is a range with its site's location; the wait of a list names its first collective.
TEST(Ranges, NameTheSiteAndItsLocation) {
  if (!profilerLog())
    GTEST_SKIP() << "needs a profiler: RuntimeSeamTests.ranges runs it with NVTX_INJECTION64_PATH";
  const commrt_site sites[] = {{COMMRT_ALL_REDUCE, COMMRT_F32, 4, "world", "step.mlir:7:3", 0}};
  expectAllOk(runRanks(1, {}, [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    std::vector<float> data(4, 1);
    commrt_token *token;
    ASSERT_EQ(commrt_program_begin(context, 1, sites, 1), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), 4, COMMRT_F32, COMMRT_SUM, 1, 0, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    void *operands[] = {data.data()};
    const int64_t meta[] = {COMMRT_F32, 1, 1, 4, 0};
    ASSERT_EQ(commrt_compute(context, "my_computation", 1, operands, meta, 0), COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), 4, COMMRT_F32, COMMRT_SUM, 1, 0, nullptr),
              COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
  const std::string sum = "all_reduce of 4 x f32 on @world by sum (site 0, step.mlir:7:3)";
  EXPECT_EQ(profilerLog(), "0 domain commsched\n0 push " + sum + "\n0 pop \n0 push wait for @world (step.mlir:7:3)\n" +
                               "0 pop \n0 push my_computation\n0 pop \n0 push " + sum +
                               "\n0 pop \n0 push coalesced starts\n0 pop \n0 push wait for @world (step.mlir:7:3)\n" +
                               "0 pop \n");
}
} // namespace
