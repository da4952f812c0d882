//===- FaultTest.cpp - Each way to go wrong ends in a clear error on every rank ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Injected faults, disagreeing schedules, disagreeing calls, ranks that leave and bad arguments. No rank may hang: the
// timeout of each run is its bound.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>

using namespace commsched::test;

namespace {
constexpr commrt_site stepSites[] = {
    {COMMRT_ALL_GATHER, COMMRT_F32, 16, "world", "step.mlir:4:7", 0},
    {COMMRT_ALL_REDUCE, COMMRT_F32, 16, "world", "step.mlir:5:7", 0},
    {COMMRT_REDUCE_SCATTER, COMMRT_F32, 16, "world", "step.mlir:6:7", 0},
};

/// Three collectives, each waited for, as a program.
void step(commrt_context *context) {
  if (commrt_program_begin(context, 42, stepSites, 3))
    return;
  commrt_group *group = worldGroup(context);
  Memory<float> small(context, 16, 1.0F), large(context, 16 * commrt_ranks(context), 0.0F);
  commrt_token *tokens[3];
  if (commrt_all_gather_start(group, small.data(), large.data(), 1, 16, COMMRT_F32, 0, &tokens[0]) ||
      finishOnHost(tokens[0]))
    return;
  if (commrt_all_reduce_start(group, small.data(), small.data(), 16, COMMRT_F32, COMMRT_SUM, 1, 1, &tokens[1]) ||
      finishOnHost(tokens[1]))
    return;
  if (commrt_reduce_scatter_start(group, large.data(), small.data(), 1, 16, COMMRT_F32, COMMRT_SUM, 1, 2, &tokens[2]) ||
      finishOnHost(tokens[2]))
    return;
  commrt_program_end(context);
}

std::vector<RankResult> stepWithFault(const char *fault, int64_t timeoutMs) {
  RunOptions how;
  how.fault = fault;
  how.timeoutMs = timeoutMs;
  return runRanks(4, how, step);
}

/// No test reaches it: only a notice ends a wait before.
constexpr int64_t noTimeoutMs = 24 * 3600 * 1000;

/// For a wait that has to end by its short timeout: it may not go on until a wait for cancelled works gives up, 30 s
/// later.
struct EndsSoon {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  ~EndsSoon() { EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25)); }
};

TEST(Fault, NoneIsFine) { expectAllOk(stepWithFault(nullptr, 20000)); }
TEST(Fault, DelayOnlyDelays) { expectAllOk(stepWithFault("delay@1:rank=2:ms=30", 20000)); }
TEST(Fault, DropTimesOutAndNamesTheRank) {
  EndsSoon check;
  expectAllFailed(stepWithFault("drop@1:rank=2", 300), COMMRT_ERR_TIMEOUT, {"all_reduce", "step.mlir:5:7"});
}
TEST(Fault, MismatchShowsBothSides) {
  expectAllFailed(stepWithFault("mismatch@2:rank=1", 20000), COMMRT_ERR_MISMATCH,
                  {"is in reduce_scatter of 16 x f32 on @world", "step.mlir:6:7", "but rank"});
}
TEST(Fault, ErrorReachesAll) {
  expectAllFailed(stepWithFault("error@0", 20000), COMMRT_ERR_INJECTED, {"rank 3: injected error at start 0"});
}
TEST(Fault, HangIsBounded) {
  EndsSoon check;
  auto results = stepWithFault("hang@1:rank=0", 1500);
  expectAllFailed(results, COMMRT_ERR_TIMEOUT, {"waits for rank 0 (last started all_gather", "step.mlir:5:7"});
}

TEST(Fault, StallIsBounded) {
  EndsSoon check;
  auto results = stepWithFault("stall@1:rank=2", 1000);
  expectAllFailed(results, COMMRT_ERR_TIMEOUT, {"waits for rank 2 (last started all_gather"});
}
TEST(Fault, DeathIsNoticedAtOnce) {
  auto results = stepWithFault("die@1:rank=2", noTimeoutMs);
  EXPECT_EQ(results[2].status, COMMRT_ERR_INJECTED);
  results.erase(results.begin() + 2);
  expectAllFailed(results, COMMRT_ERR_PEER, {"rank 2: left", "all_reduce of 16 x f32 on @world", "step.mlir:5:7"});
}
TEST(Fault, AnotherSizeShowsBothSides) {
  expectAllFailed(stepWithFault("size@1:rank=1", 20000), COMMRT_ERR_MISMATCH,
                  {"all_reduce of 15 x f32 on @world", "all_reduce of 16 x f32 on @world", "step.mlir:5:7"});
}
/// Two all_reduces that only their places in the program tell apart.
TEST(Fault, AnotherOrderShowsBothSides) {
  RunOptions how;
  how.fault = "order@0:rank=1";
  auto results = runRanks(3, how, [](commrt_context *context) {
    const commrt_site sites[] = {{COMMRT_ALL_REDUCE, COMMRT_F32, 1, "world", "first.mlir:1:1", 0},
                                 {COMMRT_ALL_REDUCE, COMMRT_F32, 1, "world", "second.mlir:2:2", 0}};
    Memory<float> a(context, 1, 1.0F), b(context, 1, 2.0F);
    commrt_token *tokens[2];
    commrt_group *group = worldGroup(context);
    if (commrt_program_begin(context, 0, sites, 2) ||
        commrt_all_reduce_start(group, a.data(), a.data(), 1, COMMRT_F32, COMMRT_SUM, 1, 0, &tokens[0]) ||
        commrt_all_reduce_start(group, b.data(), b.data(), 1, COMMRT_F32, COMMRT_SUM, 1, 1, &tokens[1]))
      return;
    if (!finishOnHost(tokens[0]))
      finishOnHost(tokens[1]);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"first.mlir:1:1", "second.mlir:2:2"});
}
TEST(Fault, AnotherScheduleEndsWithoutATimeout) {
  expectAllFailed(stepWithFault("signature@1:rank=2", noTimeoutMs), COMMRT_ERR_MISMATCH,
                  {"first at collective 1", "rank 0 has all_reduce of 16 x f32 on @world (step.mlir:5:7)",
                   "rank 2 has all_reduce of 17 x f32 on @world (step.mlir:5:7) [altered by an injected fault]"});
}

/// A rank fails while another one starts what a fault drops: the dropped start ends too, whichever comes first.
TEST(Fault, DroppedStartsEndWithTheJob) {
  for (int round = 0; round < 300; ++round) {
    RunOptions how;
    how.fault = "drop@0:rank=0";
    how.timeoutMs = noTimeoutMs;
    expectAllFailed(runRanks(2, how,
                             [&](commrt_context *context) {
                               commrt_group *group = worldGroup(context);
                               Memory<float> value(context, 1, 1.0F);
                               commrt_token *token = nullptr;
                               if (commrt_rank(context) == 0) {
                                 if (!commrt_all_reduce_start(group, value.data(), value.data(), 1, COMMRT_F32,
                                                              COMMRT_SUM, 1, -1, &token))
                                   finishOnHost(token);
                                 return;
                               }
                               for (volatile int spin = 0; spin < round * 20; spin = spin + 1)
                                 ;
                               commrt_abort(context, COMMRT_OK, "now");
                             }),
                    COMMRT_ERR_ABORTED, {"rank 1: now"});
  }
}

/// Later moments than the clock can tell are not earlier ones.
TEST(Fault, TimeoutsAndDelaysNearTheLimit) {
  expectAllOk(stepWithFault("delay@1:rank=2:ms=3", INT64_MAX / 1'000'000));
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    Memory<float> value(context, 1, 1.0F);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(worldGroup(context), value.data(), value.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1,
                                      &token),
              COMMRT_OK);
    EXPECT_EQ(commrt_wait_host(token, INT64_MAX), COMMRT_OK);
    EXPECT_EQ(value[0], 2.f);
    commrt_token_release(token);
  }));
}

/// A rank leaves while a collective of it is delayed for ever: it does not wait for it.
TEST(Fault, DelayedCollectivesKeepNobody) {
  RunOptions how;
  how.fault = "delay@0:rank=0:ms=9223372036854775807";
  auto results = runRanks(2, how, [](commrt_context *context) {
    // It is never freed: the delayed collective may still use it.
    auto *value = new Memory<float>(context, 1, 1.0F);
    commrt_token *token;
    if (!commrt_all_reduce_start(worldGroup(context), value->data(), value->data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1,
                                 &token) &&
        commrt_rank(context) == 1)
      finishOnHost(token);
  });
  EXPECT_EQ(results[1].status, COMMRT_ERR_PEER) << results[1].message;
}

/// Entries of a folder of /proc/self: threads, open files; lines of a file: mappings.
int64_t countEntries(const char *folder) {
  std::error_code code;
  return std::distance(std::filesystem::directory_iterator(folder, code), {});
}

TEST(Fault, ManyRunsLeaveNothingBehind) {
  const char *faults[] = {"drop@0", "mismatch@1", "error@2",     "delay@0:ms=1", "die@1",
                          "size@2", "hang@2",     "signature@0", "order@1",      "stall@0"};
  stepWithFault("die@1", 30);
  int64_t threads = countEntries("/proc/self/task"), files = countEntries("/proc/self/fd");
  for (int i = 0; i < 60; ++i)
    stepWithFault(faults[i % 10], 30);
  // A joined thread may still be listed for a moment.
  for (int i = 0; i < 6000 && countEntries("/proc/self/task") > threads; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(countEntries("/proc/self/task"), threads);
  EXPECT_EQ(countEntries("/proc/self/fd"), files);
}

TEST(Fault, BadSpecifications) {
  for (const char *fault : {"boom@1", "drop", "drop@x", "drop@1:rank", "drop@1:when=3", "delay@1:ms=-4", "@"}) {
    commrt_options options;
    commrt_options_init(&options);
    options.fault = fault;
    commrt_job *job;
    char message[256];
    EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_INVALID);
    EXPECT_NE(std::string(message).find(fault), std::string::npos);
    EXPECT_EQ(job, nullptr);
  }
}

//===- Schedules -----------------------------------------------------------------------------===//

std::vector<RankResult> compare(const std::function<void(int32_t, std::vector<commrt_site> &, uint64_t &)> &change) {
  return runRanks(4, {}, [&](commrt_context *context) {
    std::vector<commrt_site> sites;
    std::vector<std::string> locations(100);
    for (int i = 0; i < 100; ++i) {
      locations[i] = "step.mlir:" + std::to_string(i + 1) + ":3";
      sites.push_back({i % 3, COMMRT_BF16, 64 + i, "dp", locations[i].c_str(), 0});
    }
    uint64_t signature = 1;
    change(commrt_rank(context), sites, signature);
    commrt_program_begin(context, signature, sites.data(), sites.size());
  });
}

TEST(Schedule, EqualPasses) {
  expectAllOk(compare([](int32_t, std::vector<commrt_site> &, uint64_t &) {}));
}
TEST(Schedule, LocationsMayDiffer) {
  expectAllOk(compare([](int32_t rank, std::vector<commrt_site> &sites, uint64_t &) {
    sites[5].location = rank ? "elsewhere" : "here";
  }));
}
TEST(Schedule, FirstDifferenceIsNamedWithBothLocations) {
  auto results = compare([](int32_t rank, std::vector<commrt_site> &sites, uint64_t &) {
    if (rank == 2) {
      std::swap(sites[37], sites[38]);
      sites[80].count = 1;
    }
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH,
                  {"first at collective 37", "rank 0 has reduce_scatter of 101 x bf16 on @dp (step.mlir:38:3)",
                   "rank 2 has all_reduce of 102 x bf16 on @dp (step.mlir:39:3)"});
}
TEST(Schedule, LengthsDiffer) {
  auto results = compare([](int32_t rank, std::vector<commrt_site> &sites, uint64_t &) {
    if (rank == 3)
      sites.resize(40);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"first at collective 40", "rank 3 has no further collective"});
}
TEST(Schedule, FirstSiteAndEmptyProgram) {
  auto results = compare([](int32_t rank, std::vector<commrt_site> &sites, uint64_t &) {
    if (rank == 0)
      sites.clear();
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"first at collective 0: rank 0 has no further collective"});
}
/// One side sends, the other receives: nothing to compare.
TEST(Schedule, MessagesAreLeftOut) {
  expectAllOk(compare([](int32_t rank, std::vector<commrt_site> &sites, uint64_t &) {
    if (rank < 2)
      sites.insert(sites.begin() + 7, {rank ? COMMRT_SEND : COMMRT_RECV, COMMRT_F32, 5, "dp", "message", 0});
  }));
}
TEST(Schedule, OnlySignaturesDiffer) {
  auto results = compare([](int32_t rank, std::vector<commrt_site> &, uint64_t &signature) { signature = rank == 1; });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"the schedule signatures differ"});
}
TEST(Schedule, RankThatNeverComes) {
  RunOptions how;
  how.timeoutMs = 200;
  std::atomic<bool> over{false};
  auto results = runRanks(3, how, [&](commrt_context *context) {
    if (commrt_rank(context) != 1)
      commrt_program_begin(context, 1, stepSites, 3);
    over = over || commrt_rank(context) != 1;
    while (!over)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  expectAllFailed(results, COMMRT_ERR_TIMEOUT, {"no word from rank 1"});
}

//===- Calls that disagree -------------------------------------------------------------------===//

TEST(Mismatch, Kinds) {
  auto results = runRanks(3, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> data(context, 3, 0.0F);
    commrt_token *token;
    int32_t status =
        commrt_rank(context) == 1
            ? commrt_all_reduce_start(group, data.data(), data.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token)
            : commrt_all_gather_start(group, data.data(), data.data(), 1, 1, COMMRT_F32, -1, &token);
    if (!status)
      finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"all_reduce of 1 x f32 on @world", "all_gather of 1 x f32 on @world"});
}
TEST(Mismatch, Sizes) {
  auto results = runRanks(3, {}, [](commrt_context *context) {
    Memory<float> data(context, 8, 0.0F);
    commrt_token *token;
    if (!commrt_all_reduce_start(worldGroup(context), data.data(), data.data(), 4 + commrt_rank(context) / 2,
                                 COMMRT_F32, COMMRT_SUM, 1, -1, &token))
      finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"of 4 x f32", "of 5 x f32"});
}
// The way to add up is agreed on, too: it reaches what carries the collective out.
TEST(Mismatch, OneShot) {
  auto results = runRanks(2, {}, [&](commrt_context *context) {
    Memory<float> in(context, 4, 0.0F), out(context, 4, 0.0F);
    commrt_token *token = nullptr;
    commrt_group *group = worldGroup(context);
    if (commrt_rank(context) == 0)
      commrt_all_reduce_start(group, in.data(), out.data(), 4, COMMRT_F32, COMMRT_SUM, 1, -1, &token);
    else
      commrt_all_reduce_one_shot_start(group, in.data(), out.data(), 4, COMMRT_F32, -1, &token);
    finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"by sum in one shot", "rank 0", "rank 1"});
}

TEST(Mismatch, UnevenSplits) {
  auto results = runRanks(2, {}, [](commrt_context *context) {
    Memory<float> in(context, 8, 0.0F), out(context, 8, 0.0F);
    int64_t sends[] = {1, 2}, receives[] = {1, commrt_rank(context) == 0 ? 2 : 1};
    commrt_token *token;
    if (!commrt_all_to_all_v_start(worldGroup(context), in.data(), sends, out.data(), receives, 1, 1, COMMRT_F32, -1,
                                   &token))
      finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"sends 2 elements to rank 1, which expects 1"});
}
TEST(Mismatch, SendAndReceiveSizes) {
  auto results = runRanks(2, {}, [](commrt_context *context) {
    Memory<float> data(context, 4, 0.0F);
    commrt_token *token;
    commrt_group *group = worldGroup(context);
    int32_t status = commrt_rank(context) == 0 ? commrt_send_start(group, data.data(), 4, COMMRT_F32, 1, 0, -1, &token)
                                               : commrt_recv_start(group, data.data(), 2, COMMRT_F32, 0, 0, -1, &token);
    if (!status)
      finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"send of 4 x f32", "recv of 2 x f32"});
}

//===- Ranks that leave, aborts, arguments ---------------------------------------------------===//

TEST(Leaving, OthersLearnIt) {
  auto results = runRanks(3, {}, [](commrt_context *context) {
    Memory<float> value(context, 1, 1.0F);
    commrt_token *token;
    commrt_group *group = worldGroup(context);
    if (commrt_rank(context) == 2)
      return;
    if (!commrt_all_reduce_start(group, value.data(), value.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token))
      finishOnHost(token);
  });
  EXPECT_EQ(results[2].status, COMMRT_OK);
  results.pop_back();
  expectAllFailed(results, COMMRT_ERR_PEER, {"rank 2: left", "all_reduce"});
}
TEST(Leaving, DuringTheComparison) {
  auto results = runRanks(3, {}, [](commrt_context *context) {
    if (commrt_rank(context) != 0)
      commrt_program_begin(context, 1, nullptr, 0);
  });
  results.erase(results.begin());
  expectAllFailed(results, COMMRT_ERR_PEER, {"rank 0: left"});
}
TEST(Leaving, AfterTheEndIsFine) {
  expectAllOk(runRanks(4, {}, [](commrt_context *context) {
    commrt_program_begin(context, 1, nullptr, 0);
    commrt_program_end(context);
    if (commrt_rank(context) != 0)
      return;
    commrt_event *event;
    EXPECT_EQ(commrt_event_record(context, nullptr, &event), COMMRT_OK);
  }));
}

TEST(Abort, ReachesAllAndCallsTheHandlerOnce) {
  std::atomic<int> called{0};
  auto results = runRanks(4, {}, [&](commrt_context *context) {
    commrt_set_error_handler(
        context,
        [](void *user, int32_t rank, int32_t status, const char *message) {
          EXPECT_EQ(rank, 3);
          EXPECT_EQ(status, COMMRT_ERR_ABORTED);
          EXPECT_STREQ(message, "rank 3: enough");
          ++*static_cast<std::atomic<int> *>(user);
        },
        &called);
    if (commrt_rank(context) == 3) {
      commrt_abort(context, COMMRT_OK, "enough");
      return;
    }
    Memory<float> value(context, 1, 1.0F);
    commrt_token *token;
    if (!commrt_all_reduce_start(worldGroup(context), value.data(), value.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1,
                                 &token))
      finishOnHost(token);
    commrt_progress(context);
  });
  expectAllFailed(results, COMMRT_ERR_ABORTED, {"rank 3: enough"});
  EXPECT_EQ(called.load(), 4);
}

TEST(Arguments, AreChecked) {
  auto fails = [](const char *text,
                  const std::function<int32_t(commrt_context *, commrt_group *, commrt_token **)> &call) {
    auto results = runRanks(1, {}, [&](commrt_context *context) {
      commrt_token *token;
      EXPECT_EQ(call(context, worldGroup(context), &token), COMMRT_ERR_INVALID);
      // The first error latches.
      void *pointer;
      EXPECT_EQ(commrt_program_begin(context, 0, nullptr, 0), COMMRT_ERR_INVALID);
      // Memory is still to be had: compiled code runs to its end.
      EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 8, &pointer), COMMRT_OK);
    });
    expectAllFailed(results, COMMRT_ERR_INVALID, {text});
  };
  static float data[4];
  fails("negative size", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_all_gather_start(g, data, data, 1, -1, COMMRT_F32, -1, t);
  });
  fails("overflows", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_all_gather_start(g, data, data, 1, INT64_MAX / 2, COMMRT_F32, -1, t);
  });
  fails("does not divide into its rows", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_all_to_all_start(g, data, data, 2, 1, 3, COMMRT_F32, -1, t);
  });
  fails("too large", [](commrt_context *, commrt_group *g, commrt_token **t) {
    int64_t counts[] = {INT64_MAX / 4}; // no rows: only the product with `inner` overflows
    return commrt_all_to_all_v_start(g, data, counts, data, counts, 0, 8, COMMRT_F32, -1, t);
  });
  fails("built for version 1 of the runtime",
        [](commrt_context *c, commrt_group *, commrt_token **) { return commrt_check_abi(c, 1); });
  fails("unknown element type", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_all_gather_start(g, data, data, 1, 1, 77, -1, t);
  });
  fails("the reduction is not defined", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_all_reduce_start(g, data, data, 1, COMMRT_I32, COMMRT_SCALED_SUM, 2, -1, t);
  });
  fails("overlaps the input", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_all_reduce_one_shot_start(g, data, data + 1, 2, COMMRT_F32, -1, t);
  });
  fails("expected splits that add up to 3 rows, got [2]", [](commrt_context *, commrt_group *g, commrt_token **) {
    int64_t counts[] = {2};
    return commrt_check_rows(g, counts, 3, -1);
  });
  fails("expected splits that add up to 3 rows, got [-1]", [](commrt_context *, commrt_group *g, commrt_token **) {
    int64_t counts[] = {-1};
    return commrt_check_rows(g, counts, 3, -1);
  });
  fails("the root is not a member", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_broadcast_start(g, data, data, 1, COMMRT_F32, 1, -1, t);
  });
  fails("the peer is not a member", [](commrt_context *, commrt_group *g, commrt_token **t) {
    return commrt_send_start(g, data, 1, COMMRT_F32, -1, 0, -1, t);
  });
  fails("a pair names no member", [](commrt_context *, commrt_group *g, commrt_token **t) {
    int64_t pairs[] = {0, 1};
    return commrt_permute_start(g, data, data, 1, COMMRT_F32, pairs, 1, -1, t);
  });
  fails("twice a source or a target", [](commrt_context *, commrt_group *g, commrt_token **t) {
    int64_t pairs[] = {0, 0, 0, 0};
    return commrt_permute_start(g, data, data, 1, COMMRT_F32, pairs, 2, -1, t);
  });
  fails("the token is NULL",
        [](commrt_context *, commrt_group *g, commrt_token **) { return commrt_barrier_start(g, -1, nullptr); });
  fails("without a begin",
        [](commrt_context *c, commrt_group *, commrt_token **t) { return commrt_coalesce_end(c, t); });
  fails("not nested", [](commrt_context *c, commrt_group *, commrt_token **) {
    commrt_coalesce_begin(c);
    return commrt_coalesce_begin(c);
  });
  fails("released before", [](commrt_context *c, commrt_group *, commrt_token **) {
    void *p;
    commrt_alloc(c, COMMRT_BUFFER_PLAIN, 8, &p);
    commrt_free(c, p);
    return commrt_free(c, p);
  });
  fails("of another kind", [](commrt_context *c, commrt_group *g, commrt_token **t) {
    commrt_program_begin(c, 1, stepSites, 3);
    return commrt_barrier_start(g, 1, t);
  });
}

TEST(Arguments, NullHandles) {
  commrt_token *token;
  int32_t done;
  EXPECT_EQ(commrt_all_gather_start(nullptr, nullptr, nullptr, 1, 1, COMMRT_F32, -1, &token), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_wait(nullptr, nullptr), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_test(nullptr, &done), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_token_release(nullptr), COMMRT_OK);
  EXPECT_EQ(commrt_context_destroy(nullptr), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(nullptr), COMMRT_OK);
  EXPECT_EQ(commrt_program_begin(nullptr, 0, nullptr, 0), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_rank(nullptr), -1);
}

/// A program that was built with a smaller structure, or with a larger one.
TEST(Arguments, OptionsOfOtherVersions) {
  constexpr size_t smaller = offsetof(commrt_options, fault);
  struct {
    commrt_options options;
    int64_t beyond, guard = 77;
  } given;
  auto *bytes = reinterpret_cast<unsigned char *>(&given.options);
  std::fill_n(bytes, sizeof(commrt_options), 0xee);
  commrt_options_init_sized(&given.options, smaller);
  EXPECT_EQ(given.options.struct_size, smaller);
  EXPECT_EQ(std::count(bytes + smaller, bytes + sizeof(commrt_options), 0xee),
            static_cast<int64_t>(sizeof(commrt_options) - smaller));
  commrt_job *job = nullptr;
  char message[512];
  given.options.ranks = 3; // `fault`, which lies beyond, is garbage that nobody reads
  ASSERT_EQ(commrt_job_create(&given.options, &job, message, sizeof(message)), COMMRT_OK) << message;
  EXPECT_EQ(commrt_job_ranks(job), 3);
  commrt_job_destroy(job);

  constexpr size_t larger = sizeof(commrt_options) + sizeof(int64_t);
  given.beyond = 5;
  commrt_options_init_sized(&given.options, larger);
  EXPECT_EQ(given.options.struct_size, larger);
  EXPECT_EQ(given.beyond, 0);
  EXPECT_EQ(given.guard, 77);
  ASSERT_EQ(commrt_job_create(&given.options, &job, message, sizeof(message)), COMMRT_OK) << message;
  commrt_job_destroy(job);
  given.beyond = 5;
  EXPECT_EQ(commrt_job_create(&given.options, &job, message, sizeof(message)), COMMRT_ERR_INVALID);
  EXPECT_STREQ(message, "options are set that only a later version of the library knows");
  given.options.struct_size = 3;
  EXPECT_EQ(commrt_job_create(&given.options, &job, message, sizeof(message)), COMMRT_ERR_INVALID);
}

TEST(Arguments, Jobs) {
  commrt_options options;
  commrt_options_init(&options);
  commrt_job *job;
  char message[2048];
  options.backend = "no_such";
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_BACKEND);
  EXPECT_NE(std::string(message).find("no backend 'no_such'"), std::string::npos);
  options.backend = "../evil";
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_BACKEND);
  options.backend = "threads";
  options.ranks = -1;
  EXPECT_EQ(commrt_job_create(&options, &job, message, 8), COMMRT_ERR_INVALID);
  EXPECT_EQ(std::string(message).size(), 7u);
  options.ranks = 2;
  ASSERT_EQ(commrt_job_create(&options, &job, nullptr, 0), COMMRT_OK);
  commrt_context *context, *second;
  EXPECT_EQ(commrt_context_create(job, 2, &context), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_context_create(job, 1, &context), COMMRT_OK);
  EXPECT_EQ(commrt_context_create(job, 1, &second), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_ERR_INVALID);
  EXPECT_EQ(commrt_context_destroy(context), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}
} // namespace
