//===- LifetimeTest.cpp - Tokens, buffers, streams, clock and scale ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What lives how long, what overlaps, and that large numbers of ranks and tokens work.
//
//===------------------------------------------------------------------------------------------===//

#include "Core/SymmetricHeap.h"
#include "RuntimeTestSupport.h"
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <malloc.h>
#include <map>
#include <random>
#include <sstream>

using namespace commsched::test;
namespace runtime = commsched::runtime;

namespace {
constexpr int64_t SymmetricSegmentBytes = runtime::SymmetricHeap::leastSegmentBytes;

TEST(Tokens, StartsReturnBeforeTheOthersArrive) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    float value = 1;
    commrt_token *token;
    int32_t done = 1;
    if (commrt_rank(context) == 0) {
      ASSERT_EQ(commrt_all_reduce_start(group, &value, &value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
      ASSERT_EQ(commrt_test(token, &done), COMMRT_OK);
      EXPECT_EQ(done, 0);
    }
    // Rank 1 starts only when it has heard of rank 0's test.
    int32_t word = 0;
    commrt_token *message;
    if (commrt_rank(context) == 0)
      ASSERT_EQ(commrt_send_start(group, &word, 1, COMMRT_I32, 1, 0, -1, &message), COMMRT_OK);
    else
      ASSERT_EQ(commrt_recv_start(group, &word, 1, COMMRT_I32, 0, 0, -1, &message), COMMRT_OK);
    ASSERT_EQ(finish(message), COMMRT_OK);
    if (commrt_rank(context) == 1)
      ASSERT_EQ(commrt_all_reduce_start(group, &value, &value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_wait(token, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_wait(token, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_wait_host(token, 0), COMMRT_OK);
    EXPECT_EQ(value, 2.f);
    commrt_token_release(token);
  }));
}

TEST(Tokens, ReleasedWhileInFlight) {
  expectAllOk(runRanks(3, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    std::vector<float> values(100, 1.f);
    for (float &value : values) {
      commrt_token *token;
      ASSERT_EQ(commrt_all_reduce_start(group, &value, &value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
      commrt_token_release(token);
    }
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    EXPECT_EQ(values, std::vector<float>(100, 3.f));
  }));
}

TEST(Tokens, TenThousandOutstanding) {
  constexpr int many = 10000;
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    std::vector<int32_t> values(many, commrt_rank(context));
    std::vector<commrt_token *> tokens(many);
    for (int i = 0; i < many; ++i)
      ASSERT_EQ(commrt_all_reduce_start(group, &values[i], &values[i], 1, COMMRT_I32, COMMRT_SUM, 1, -1, &tokens[i]),
                COMMRT_OK);
    for (int i = many - 1; i >= 0; --i)
      ASSERT_EQ(finish(tokens[i]), COMMRT_OK);
    EXPECT_EQ(values, std::vector<int32_t>(many, 1));
  }));
}

TEST(Tokens, CoalescedStartsOnTwoGroupsShareOne) {
  expectAllOk(runRanks(4, {}, [](commrt_context *context) {
    commrt_group *world = worldGroup(context), *pairs;
    int64_t offsets[] = {0, 2, 4}, ranks[] = {0, 1, 2, 3};
    ASSERT_EQ(commrt_group_create(context, "pairs", 2, offsets, ranks, &pairs), COMMRT_OK);
    int32_t a = 1, b = 1;
    commrt_token *token;
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(world, &a, &a, 1, COMMRT_I32, COMMRT_SUM, 1, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(pairs, &b, &b, 1, COMMRT_I32, COMMRT_SUM, 1, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(a, 4);
    EXPECT_EQ(b, 2);
    // An empty list is complete.
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
  }));
}

/// Every kind with zero elements, and on one rank with some: nothing moves that should not, and all complete.
TEST(Null, ZeroElementsAndOneRank) {
  for (int32_t ranks : {1, 3})
    for (int64_t count : {0, 2}) {
      if (ranks > 1 && count > 0)
        continue;
      expectAllOk(runRanks(ranks, {}, [&](commrt_context *context) {
        commrt_group *g = worldGroup(context);
        int32_t in[] = {5, 6}, out[2];
        int64_t counts[] = {count, 0, 0}, pair[] = {0, 0};
        auto check = [&](const char *what, const std::function<int32_t(commrt_token **)> &start) {
          out[0] = out[1] = -1;
          commrt_token *token = nullptr;
          ASSERT_EQ(start(&token), COMMRT_OK) << what;
          ASSERT_EQ(finish(token), COMMRT_OK) << what;
          EXPECT_EQ(out[0], count ? 5 : -1) << what;
          EXPECT_EQ(out[1], count ? 6 : -1) << what;
        };
        constexpr int32_t type = COMMRT_I32, sum = COMMRT_SUM;
        check("all_gather",
              [&](commrt_token **t) { return commrt_all_gather_start(g, in, out, 1, count, type, -1, t); });
        check("reduce_scatter",
              [&](commrt_token **t) { return commrt_reduce_scatter_start(g, in, out, 1, count, type, sum, 1, -1, t); });
        check("all_reduce",
              [&](commrt_token **t) { return commrt_all_reduce_start(g, in, out, count, type, sum, 1, -1, t); });
        check("all_to_all",
              [&](commrt_token **t) { return commrt_all_to_all_start(g, in, out, 1, 1, count, type, -1, t); });
        check("all_to_all_v", [&](commrt_token **t) {
          return commrt_all_to_all_v_start(g, in, counts, out, counts, 1, 1, type, -1, t);
        });
        check("broadcast", [&](commrt_token **t) { return commrt_broadcast_start(g, in, out, count, type, 0, -1, t); });
        check("reduce",
              [&](commrt_token **t) { return commrt_reduce_start(g, in, out, count, type, sum, 1, 0, -1, t); });
        check("gather", [&](commrt_token **t) { return commrt_gather_start(g, in, out, 1, count, type, 0, -1, t); });
        check("scatter", [&](commrt_token **t) { return commrt_scatter_start(g, in, out, 1, count, type, 0, -1, t); });
        check("permute",
              [&](commrt_token **t) { return commrt_permute_start(g, in, out, count, type, pair, 1, -1, t); });
        check("message to itself", [&](commrt_token **t) {
          int32_t me = commrt_group_rank(g), status = commrt_coalesce_begin(context);
          status = status ? status : commrt_send_start(g, in, count, type, me, 9, -1, nullptr);
          status = status ? status : commrt_recv_start(g, out, count, type, me, 9, -1, nullptr);
          return status ? status : commrt_coalesce_end(context, t);
        });
      }));
    }
}

/// A group without members, and one that leaves all ranks but one out.
TEST(Null, EmptyGroups) {
  expectAllOk(runRanks(3, {}, [](commrt_context *context) {
    commrt_group *none, *lonely;
    int64_t offsets[] = {0, 0, 1, 1}, ranks[] = {1};
    ASSERT_EQ(commrt_group_create(context, "none", 0, nullptr, nullptr, &none), COMMRT_OK);
    ASSERT_EQ(commrt_group_create(context, "lonely", 3, offsets, ranks, &lonely), COMMRT_OK);
    EXPECT_EQ(commrt_group_size(none), 0);
    EXPECT_EQ(commrt_group_rank(none), -1);
    float value = 3, out = -1;
    commrt_token *token;
    for (commrt_group *group : {none, lonely}) {
      out = -1;
      ASSERT_EQ(commrt_all_reduce_start(group, &value, &out, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
      EXPECT_EQ(out, commrt_group_size(group) ? 3 : -1);
      if (commrt_group_size(group))
        continue;
      ASSERT_EQ(commrt_all_to_all_v_start(group, nullptr, nullptr, nullptr, nullptr, 1, 1, COMMRT_F32, -1, &token),
                COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
    }
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

TEST(Ranks, AThousandWithTinyMessages) {
  constexpr int n = 1000;
  expectAllOk(runRanks(n, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    int32_t me = commrt_rank(context), sum = me;
    std::vector<int32_t> all(n);
    commrt_token *tokens[2];
    ASSERT_EQ(commrt_program_begin(context, 9, nullptr, 0), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, &sum, &sum, 1, COMMRT_I32, COMMRT_SUM, 1, -1, &tokens[0]), COMMRT_OK);
    ASSERT_EQ(commrt_all_gather_start(group, &me, all.data(), 1, 1, COMMRT_I32, -1, &tokens[1]), COMMRT_OK);
    ASSERT_EQ(finish(tokens[0]), COMMRT_OK);
    ASSERT_EQ(finish(tokens[1]), COMMRT_OK);
    EXPECT_EQ(sum, n * (n - 1) / 2);
    for (int32_t i = 0; i < n; ++i)
      ASSERT_EQ(all[i], i);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

TEST(Buffers, OutliveTheCollectivesThatUseThem) {
  constexpr int64_t count = 1 << 16;
  RunOptions how;
  how.fault = "delay@0:rank=0:ms=20";
  expectAllOk(runRanks(2, how, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    void *in;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, count * 4, &in), COMMRT_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(in) % 64, 0u);
    std::vector<int32_t> out(2 * count);
    std::fill_n(static_cast<int32_t *>(in), count, 7 + commrt_rank(context));
    commrt_token *token;
    ASSERT_EQ(commrt_all_gather_start(group, in, out.data(), 1, count, COMMRT_I32, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, in), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), count * 4);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 0);
    EXPECT_EQ(out[0], 7);
    EXPECT_EQ(out[2 * count - 1], 8);
  }));
}

/// Released storage serves the next buffer of its size, as long as all of it stays below the peak. Memory that the
/// system gives comes with zeros; what was kept still holds what was written to it.
TEST(Buffers, LargeOnesAreUsedAgain) {
#if defined(__SANITIZE_ADDRESS__) || (defined(__has_feature) && __has_feature(address_sanitizer))
  GTEST_SKIP() << "with the address sanitizer no buffer is kept, so that a use after its release is found";
#endif
  mallopt(M_MMAP_THRESHOLD, 64 << 10); // larger ones go straight back to the system
  RunOptions how;
  how.poison = false;
  expectAllOk(runRanks(1, how, [](commrt_context *context) {
    constexpr int64_t large = 1 << 20;
    std::vector<void *> first(3), second(3);
    for (int round = 0; round < 3; ++round) {
      for (void *&pointer : first)
        ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, large, &pointer), COMMRT_OK);
      for (void *pointer : first) {
        if (round > 0)
          EXPECT_EQ(static_cast<char *>(pointer)[large - 1], 10 + round - 1);
        std::memset(pointer, 10 + round, large);
      }
      for (void *pointer : first)
        ASSERT_EQ(commrt_free(context, pointer), COMMRT_OK);
    }
    // Another size: some of what is kept has to go.
    for (void *&pointer : second)
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, large / 2, &pointer), COMMRT_OK);
    for (void *pointer : second)
      ASSERT_EQ(commrt_free(context, pointer), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 0);
    EXPECT_EQ(commrt_peak_bytes(context), 3 * large);
  }));
}

TEST(Buffers, FreeAfterTokens) {
  RunOptions how;
  how.fault = "delay@0:rank=0:ms=20";
  expectAllOk(runRanks(2, how, [](commrt_context *context) {
    void *unrelated;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 100, &unrelated), COMMRT_OK);
    int32_t value = 1;
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(worldGroup(context), &value, &value, 1, COMMRT_I32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(commrt_free_after(context, unrelated, &token, 1), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 100);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 0);
  }));
}

TEST(Buffers, SymmetricSizesMustAgree) {
  commrt_job *job = openJob(2, {});
  commrt_context *contexts[2];
  void *pointer;
  for (int32_t rank : {0, 1})
    ASSERT_EQ(commrt_context_create(job, rank, &contexts[rank]), COMMRT_OK);
  EXPECT_EQ(commrt_alloc(contexts[0], COMMRT_BUFFER_SYMMETRIC, 64, &pointer), COMMRT_OK);
  EXPECT_EQ(commrt_alloc(contexts[1], COMMRT_BUFFER_SYMMETRIC, 128, &pointer), COMMRT_ERR_MISMATCH);
  char message[512];
  EXPECT_EQ(commrt_last_error(contexts[0], message, sizeof(message)), COMMRT_ERR_MISMATCH);
  EXPECT_STREQ(message, "rank 1: symmetric buffer 0 has 128 bytes here and 64 on another rank");
  for (commrt_context *context : contexts)
    commrt_context_destroy(context);
  commrt_job_destroy(job);
}

/// Ranks release what collectives still use, at times of their own; offsets stay equal, and nothing is overwritten.
TEST(Buffers, SymmetricOffsetsAgreeAndWaitForTheirLastUse) {
  constexpr int32_t n = 3;
  constexpr int64_t count = 1 << 16;
  std::vector<std::vector<int64_t>> offsets(n);
  std::vector<char *> bases(n);
  RunOptions how;
  how.fault = "delay@0:rank=1:ms=30";
  expectAllOk(runRanks(n, how, [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    int32_t me = commrt_rank(context);
    auto make = [&](int64_t bytes) {
      void *pointer = nullptr;
      int64_t offset = -1;
      EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, bytes, &pointer), COMMRT_OK);
      EXPECT_EQ(commrt_symmetric_offset(context, static_cast<char *>(pointer) + bytes - 1, &offset), COMMRT_OK);
      offsets[me].push_back(offset - (bytes - 1));
      return static_cast<int32_t *>(pointer);
    };
    int32_t *small = make(1), *in = make(count * 4), *out = make(n * count * 4);
    bases[me] = reinterpret_cast<char *>(small) - offsets[me][0];
    std::fill_n(in, count, me);
    commrt_token *token;
    ASSERT_EQ(commrt_all_gather_start(group, in, out, 1, count, COMMRT_I32, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, in), COMMRT_OK);
    // Waits for the gather, which reads the same place.
    int32_t *again = make(count * 4), done = 0;
    EXPECT_EQ(again, in);
    ASSERT_EQ(commrt_test(token, &done), COMMRT_OK);
    EXPECT_EQ(done, 1);
    std::fill_n(again, count, -1);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int32_t from = 0; from < n; ++from)
      ASSERT_EQ(out[from * count + 17], from);
    make(SymmetricSegmentBytes); // more than what is left: another segment
  }));
  for (int32_t rank = 1; rank < n; ++rank) {
    EXPECT_EQ(offsets[rank], offsets[0]);
    EXPECT_EQ(bases[rank] - bases[rank - 1], bases[1] - bases[0]); // one mapping for all ranks
  }
}

TEST(Buffers, SymmetricOrderMustAgree) {
  auto results = runRanks(2, {}, [](commrt_context *context) {
    void *first, *second, *third;
    commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 1000, &first);
    commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 1000, &second);
    commrt_free(context, commrt_rank(context) ? first : second);
    // Compiled code goes on after the error: there is memory.
    commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 1000, &third);
    EXPECT_NE(third, nullptr);
    float value = 1;
    commrt_token *token;
    if (!commrt_all_reduce_start(worldGroup(context), &value, &value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token))
      finish(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"symmetric buffer 2 has offset", "in different orders"});
}

TEST(Buffers, OnlySymmetricOnesHaveOffsets) {
  auto results = runRanks(1, {}, [](commrt_context *context) {
    void *plain;
    int64_t offset;
    commrt_alloc(context, COMMRT_BUFFER_PLAIN, 10, &plain);
    EXPECT_EQ(commrt_symmetric_offset(context, plain, &offset), COMMRT_ERR_INVALID);
  });
  expectAllFailed(results, COMMRT_ERR_INVALID, {"not in a symmetric buffer"});
}

/// Random allocations and releases: ranges are disjoint, aligned, within one segment, and equal in a second heap.
TEST(SymmetricHeap, RangesAreDisjointAndRepeatable) {
  std::mt19937 random(5);
  runtime::SymmetricHeap heap, twin;
  std::map<int64_t, int64_t> live; // bytes by offset
  for (int i = 0; i < 4000; ++i) {
    if (!live.empty() && random() % 5 < 2) {
      auto victim = std::next(live.begin(), random() % live.size());
      heap.release(victim->first);
      twin.release(victim->first);
      live.erase(victim);
      continue;
    }
    int64_t bytes = random() % 7 == 0 ? int64_t(random() % (40 << 20)) : int64_t(random() % 5000);
    int64_t offset = heap.take(bytes);
    ASSERT_EQ(offset, twin.take(bytes));
    ASSERT_EQ(offset % runtime::SymmetricHeap::alignment, 0);
    const auto &segment = heap.segmentOf(offset);
    ASSERT_LE(offset + bytes, segment.offset + segment.bytes);
    auto next = live.lower_bound(offset);
    ASSERT_TRUE(next == live.end() || offset + bytes <= next->first);
    ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= offset);
    live[offset] = std::max<int64_t>(bytes, 1);
  }
  // All of it comes back together.
  for (auto [offset, bytes] : live)
    heap.release(offset);
  std::vector<runtime::SymmetricHeap::Segment> segments = heap.getSegments();
  for (const auto &segment : segments)
    EXPECT_GE(heap.take(segment.bytes), 0);
  EXPECT_EQ(heap.getSegments().size(), segments.size());
  EXPECT_LT(heap.take(INT64_MAX - 5), 0);
}

TEST(Buffers, ZeroBytesAndNoMemory) {
  auto results = runRanks(1, {}, [](commrt_context *context) {
    void *pointer;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 0, &pointer), COMMRT_OK);
    EXPECT_NE(pointer, nullptr);
    ASSERT_EQ(commrt_free(context, pointer), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, nullptr), COMMRT_OK);
    EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, INT64_MAX - 3, &pointer), COMMRT_ERR_MEMORY);
  });
  expectAllFailed(results, COMMRT_ERR_MEMORY, {"no memory for a buffer"});
}

/// On CPU backends a timed event has the time of the call.
TEST(Streams, TimedEventsOfTheHost) {
  expectAllOk(runRanks(1, {}, [](commrt_context *context) {
    commrt_event *begin, *end;
    commrt_stream *stream = nullptr;
    int64_t before = commrt_clock_ns(context), ns = -1;
    ASSERT_EQ(commrt_event_record_timed(context, nullptr, &begin), COMMRT_OK);
    int64_t middle = commrt_clock_ns(context);
    ASSERT_EQ(commrt_event_record_timed(context, nullptr, &end), COMMRT_OK);
    ASSERT_EQ(commrt_event_elapsed(begin, end, &ns), COMMRT_OK);
    EXPECT_GE(ns, 0);
    EXPECT_LE(ns, commrt_clock_ns(context) - before);
    EXPECT_LE(before, middle);
    EXPECT_EQ(commrt_group_stream(worldGroup(context), 0, &stream), COMMRT_ERR_UNSUPPORTED);
    commrt_event_release(begin);
    commrt_event_release(end);
  }));
}

TEST(Streams, EventsCoverWhatWasIssued) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    commrt_stream *comm, *again;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMM, 3, &comm), COMMRT_OK);
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMM, 3, &again), COMMRT_OK);
    EXPECT_EQ(comm, again);
    ASSERT_EQ(commrt_set_stream(context, comm), COMMRT_OK);
    int32_t value = 1, done = 0;
    commrt_token *token;
    commrt_event *before, *after;
    ASSERT_EQ(commrt_event_record(context, comm, &before), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, &value, &value, 1, COMMRT_I32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_event_record(context, comm, &after), COMMRT_OK);
    ASSERT_EQ(commrt_event_test(before, &done), COMMRT_OK);
    EXPECT_EQ(done, 1);
    ASSERT_EQ(commrt_event_await(context, nullptr, after), COMMRT_OK);
    EXPECT_EQ(value, 2);
    ASSERT_EQ(commrt_event_test(after, &done), COMMRT_OK);
    EXPECT_EQ(done, 1);
    EXPECT_EQ(commrt_event_release(before), COMMRT_OK);
    EXPECT_EQ(commrt_event_release(after), COMMRT_OK);
    commrt_token_release(token);
  }));
}

/// Two collectives on one lane, 100 ns each, behind 150 ns of computation: the second ends at 200, and 50 are exposed.
TEST(Sim, VirtualClockFollowsTheTimelineModel) {
  const commrt_site sites[] = {{COMMRT_ALL_REDUCE, COMMRT_I32, 1, "world", "a", 100},
                               {COMMRT_ALL_REDUCE, COMMRT_I32, 1, "world", "b", 100}};
  RunOptions how;
  how.backend = "sim";
  how.trace = true;
  expectAllOk(runRanks(3, how, [&](commrt_context *context) {
    ASSERT_EQ(commrt_program_begin(context, 1, sites, 2), COMMRT_OK);
    commrt_group *group = worldGroup(context);
    int32_t a = 1, b = 2;
    commrt_token *tokens[2];
    ASSERT_EQ(commrt_all_reduce_start(group, &a, &a, 1, COMMRT_I32, COMMRT_SUM, 1, 0, &tokens[0]), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, &b, &b, 1, COMMRT_I32, COMMRT_SUM, 1, 1, &tokens[1]), COMMRT_OK);
    ASSERT_EQ(commrt_advance(context, 150), COMMRT_OK);
    EXPECT_EQ(commrt_clock_ns(context), 150);
    ASSERT_EQ(commrt_wait(tokens[0], nullptr), COMMRT_OK);
    EXPECT_EQ(commrt_clock_ns(context), 150);
    ASSERT_EQ(commrt_wait(tokens[1], nullptr), COMMRT_OK);
    EXPECT_EQ(commrt_clock_ns(context), 200);
    EXPECT_EQ(a, 3);
    EXPECT_EQ(b, 6);
    ASSERT_EQ(commrt_trace_size(context), 4);
    commrt_trace_record record;
    ASSERT_EQ(commrt_trace_get(context, 3, &record), COMMRT_OK);
    EXPECT_EQ(record.kind, 100);
    EXPECT_EQ(record.begin_ns, 150);
    EXPECT_EQ(record.end_ns, 200);
    EXPECT_EQ(record.site, 1);
    EXPECT_EQ(commrt_trace_get(context, 4, &record), COMMRT_ERR_INVALID);
  }));
}

/// A collective begins when its last member has arrived.
TEST(Sim, WaitsForTheSlowestRank) {
  const commrt_site sites[] = {{COMMRT_BARRIER, -1, 0, "world", "a", 10}};
  RunOptions how;
  how.backend = "sim";
  expectAllOk(runRanks(3, how, [&](commrt_context *context) {
    ASSERT_EQ(commrt_program_begin(context, 1, sites, 1), COMMRT_OK);
    commrt_token *token;
    commrt_advance(context, 100 * commrt_rank(context));
    ASSERT_EQ(commrt_barrier_start(worldGroup(context), 0, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(commrt_clock_ns(context), 210);
  }));
}

/// A message leaves nothing behind, however many tags there are. On the main thread: mallinfo2 sees its memory only.
TEST(Tokens, TagsAreForgotten) {
  commrt_job *job = openJob(1, {});
  commrt_context *context = nullptr;
  ASSERT_EQ(commrt_context_create(job, 0, &context), COMMRT_OK);
  commrt_group *group = worldGroup(context);
  constexpr int64_t many = 20000;
  size_t before = 0;
  for (int64_t tag = 0; tag < many; ++tag) {
    if (tag == 100)
      before = mallinfo2().uordblks;
    int32_t value = 1, got = 0;
    commrt_token *token;
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    ASSERT_EQ(commrt_send_start(group, &value, 1, COMMRT_I32, 0, tag, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_recv_start(group, &got, 1, COMMRT_I32, 0, tag, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(got, 1);
  }
  EXPECT_LT(mallinfo2().uordblks, before + many * 16); // a list per tag takes more than 100 bytes
  commrt_context_destroy(context);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}

/// From another thread while the rank works. The thread sanitizer says what is not guarded.
TEST(Report, DumpBesideStarts) {
  RunOptions how;
  how.fault = "die@150:rank=1";
  how.timeoutMs = 24 * 3600 * 1000;
  runRanks(2, how, [](commrt_context *context) {
    std::atomic<bool> isOver{false};
    std::thread other([&] {
      while (!isOver)
        commrt_dump(context, "/dev/null");
    });
    commrt_group *group = worldGroup(context);
    for (int i = 0; i < 200; ++i) {
      float value = 1;
      commrt_token *token;
      if (commrt_all_reduce_start(group, &value, &value, 1, COMMRT_F32, COMMRT_SUM, 1, -1, &token) || finish(token))
        break;
    }
    isOver = true;
    other.join();
  });
}

TEST(Report, TraceAndDump) {
  RunOptions how;
  how.trace = true;
  std::string folder = testing::TempDir() + "commrt-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  folder += '/';
  expectAllOk(runRanks(1, how, [&](commrt_context *context) {
    commrt_token *token;
    ASSERT_EQ(commrt_barrier_start(worldGroup(context, "a\"b"), -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(commrt_trace_compute(context, "matmul", 1500, 4001), COMMRT_OK);
    std::string path = folder + "commrt_trace.json";
    ASSERT_EQ(commrt_trace_write(context, path.c_str()), COMMRT_OK);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_NE(text.str().find("\"tid\":\"a\\\"b\",\"name\":\"barrier\""), std::string::npos) << text.str();
    EXPECT_NE(text.str().find("\"name\":\"matmul\",\"ts\":1.500,\"dur\":2.501"), std::string::npos) << text.str();
    std::remove(path.c_str());
    path = folder + "commrt_dump.txt";
    ASSERT_EQ(commrt_dump(context, path.c_str()), COMMRT_OK);
    std::stringstream dump;
    dump << std::ifstream(path).rdbuf();
    EXPECT_NE(dump.str().find("rank 0 of 1, backend threads\nstatus: ok"), std::string::npos) << dump.str();
    std::remove(path.c_str());
  }));
  std::remove(folder.c_str());
}
// An arena is the same memory at the same offset in every call, whatever else is allocated, given back or left behind
// between them; it goes with the program.
TEST(Lifetime, ArenasStayUntilTheProgramEnds) {
  auto results = runRanks(2, {}, [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    ASSERT_EQ(commrt_program_begin(context, 0, nullptr, 0), COMMRT_OK);
    ASSERT_EQ(commrt_arena_create(group, "arena", 1000), COMMRT_OK);
    void *first = nullptr;
    int64_t offset = -1;
    for (int call = 0; call < 3; ++call) {
      int64_t mark = commrt_mark(context), now = -1;
      void *before = nullptr, *arena = nullptr, *left = nullptr;
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 500 * (call + 1), &before), COMMRT_OK);
      ASSERT_EQ(commrt_arena_find(context, "arena", &arena), COMMRT_OK);
      ASSERT_EQ(commrt_symmetric_offset(context, arena, &now), COMMRT_OK);
      if (call == 0) {
        first = arena;
        offset = now;
      }
      EXPECT_EQ(arena, first);
      EXPECT_EQ(now, offset);
      EXPECT_EQ(commrt_arena_group(context, static_cast<char *>(arena) + 999), group);
      EXPECT_EQ(commrt_arena_group(context, before), nullptr);
      ASSERT_EQ(commrt_free(context, before), COMMRT_OK);
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 300, &left), COMMRT_OK);
      ASSERT_EQ(commrt_release_since(context, mark, nullptr, 0), COMMRT_OK);
      EXPECT_EQ(commrt_allocated_bytes(context), 1000);
    }
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    EXPECT_EQ(commrt_allocated_bytes(context), 0);
  });
  expectAllOk(results);
}

TEST(Lifetime, ArenasHaveNamesOfTheirOwn) {
  expectAllFailed(runRanks(1, {},
                           [](commrt_context *context) {
                             commrt_group *group = worldGroup(context);
                             commrt_arena_create(group, "arena", 8);
                             EXPECT_EQ(commrt_arena_create(group, "arena", 8), COMMRT_ERR_INVALID);
                           }),
                  COMMRT_ERR_INVALID, {"the program has an arena arena"});
  expectAllFailed(runRanks(1, {},
                           [](commrt_context *context) {
                             void *pointer = nullptr;
                             EXPECT_EQ(commrt_arena_find(context, "none", &pointer), COMMRT_ERR_INVALID);
                             EXPECT_EQ(pointer, nullptr);
                           }),
                  COMMRT_ERR_INVALID, {"the program has no arena none"});
  expectAllFailed(runRanks(1, {},
                           [](commrt_context *context) {
                             void *pointer = nullptr;
                             commrt_arena_create(worldGroup(context), "arena", 8);
                             EXPECT_EQ(commrt_arena_find(context, "arena", &pointer), COMMRT_OK);
                             EXPECT_EQ(commrt_free(context, pointer), COMMRT_ERR_INVALID);
                           }),
                  COMMRT_ERR_INVALID, {"commrt_free: not a buffer"});
}

} // namespace
