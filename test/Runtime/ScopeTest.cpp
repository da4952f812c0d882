//===- ScopeTest.cpp - commrt_release_since ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What is given back at the end of an iteration, and what is kept.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"

using namespace commsched::test;

namespace {
TEST(Scope, KeepsWhatIsNamedAndWhatIsOlder) {
  expectAllOk(runRanks(1, {}, [](commrt_context *context) {
    void *older, *kept, *left, *released;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 100, &older), COMMRT_OK);
    int64_t mark = commrt_mark(context);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 1000, &kept), COMMRT_OK);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 10000, &left), COMMRT_OK);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 7, &released), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, released), COMMRT_OK);
    const void *keep[] = {static_cast<char *>(kept) + 999, nullptr, &mark};
    ASSERT_EQ(commrt_release_since(context, mark, keep, 3), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 1100);
    // The next iteration: what the last one kept goes.
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 1, &left), COMMRT_OK);
    ASSERT_EQ(commrt_release_since(context, mark, nullptr, 0), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 100);
    EXPECT_EQ(commrt_peak_bytes(context), 11107);
    ASSERT_EQ(commrt_free(context, older), COMMRT_OK);
    EXPECT_EQ(commrt_release_since(context, mark, nullptr, 1), COMMRT_ERR_INVALID);
  }));
}

TEST(Scope, WhatIsInFlightGoesLater) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    int64_t mark = commrt_mark(context);
    void *in, *out, *other;
    for (void **buffer : {&in, &out, &other})
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 4, buffer), COMMRT_OK);
    *static_cast<float *>(in) = 1;
    commrt_token *token, *dropped;
    ASSERT_EQ(commrt_all_reduce_start(group, in, out, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, in, other, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &dropped), COMMRT_OK);
    commrt_event *event;
    ASSERT_EQ(commrt_event_record(context, nullptr, &event), COMMRT_OK);
    const void *keep[] = {token};
    ASSERT_EQ(commrt_release_since(context, mark, keep, 1), COMMRT_OK);
    ASSERT_EQ(commrt_wait(token, nullptr), COMMRT_OK);
    void *result;
    ASSERT_EQ(commrt_token_output(token, 0, &result), COMMRT_OK);
    EXPECT_EQ(result, out);
    EXPECT_EQ(*static_cast<float *>(result), 2);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 4);
    ASSERT_EQ(commrt_release_since(context, mark, nullptr, 0), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 0);
  }));
}
} // namespace
