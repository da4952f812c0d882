//===- CollectivesTest.cpp - Every collective against its definition --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each test computes what the header says, index by index, and compares every element on every rank.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <cstring>
#include <deque>

using namespace commsched::test;

namespace {
/// What rank `rank` puts at index i.
int32_t valueAt(int32_t rank, int64_t i) { return static_cast<int32_t>(rank * 1000003 + i * 17 + 5); }

std::vector<int32_t> filled(int32_t rank, int64_t n) {
  std::vector<int32_t> v(n);
  for (int64_t i = 0; i < n; ++i)
    v[i] = valueAt(rank, i);
  return v;
}

/// Sizes: nothing, tiny (inline), and large enough for the workers; with one and several rows.
struct Case {
  int32_t ranks;
  int64_t outer, count;
};
class Collectives : public testing::TestWithParam<Case> {
protected:
  int32_t n = GetParam().ranks;
  int64_t outer = GetParam().outer, count = GetParam().count;
  void run(const std::function<void(commrt_context *, commrt_group *)> &body) {
    expectAllOk(runRanks(n, {}, [&](commrt_context *context) { body(context, worldGroup(context)); }));
  }
};
INSTANTIATE_TEST_SUITE_P(Sizes, Collectives,
                         testing::Values(Case{1, 1, 5}, Case{1, 3, 4}, Case{2, 1, 1}, Case{2, 3, 1000}, Case{4, 1, 0},
                                         Case{4, 0, 7}, Case{4, 1, 3000}, Case{5, 4, 7}, Case{8, 2, 513}));

TEST_P(Collectives, AllGather) {
  run([&](commrt_context *context, commrt_group *group) {
    Memory in(context, filled(commrt_rank(context), outer * count));
    Memory<int32_t> out(context, outer * n * count, -1);
    commrt_token *token;
    ASSERT_EQ(commrt_all_gather_start(group, in.data(), out.data(), outer, count, COMMRT_I32, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t o = 0; o < outer; ++o)
      for (int32_t r = 0; r < n; ++r)
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(out[(o * n + r) * count + i], valueAt(r, o * count + i));
  });
}

TEST_P(Collectives, ReduceScatter) {
  run([&](commrt_context *context, commrt_group *group) {
    Memory in(context, filled(commrt_rank(context), outer * n * count));
    Memory<int32_t> out(context, outer * count, -1);
    commrt_token *token;
    ASSERT_EQ(
        commrt_reduce_scatter_start(group, in.data(), out.data(), outer, count, COMMRT_I32, COMMRT_SUM, 1, -1, &token),
        COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < count; ++i) {
        uint32_t sum = 0;
        for (int32_t r = 0; r < n; ++r)
          sum += valueAt(r, (o * n + commrt_rank(context)) * count + i);
        ASSERT_EQ(out[o * count + i], int32_t(sum));
      }
  });
}

TEST_P(Collectives, AllReduceInPlace) {
  run([&](commrt_context *context, commrt_group *group) {
    Memory data(context, filled(commrt_rank(context), count));
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), count, COMMRT_I32, COMMRT_MAX, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(data[i], valueAt(n - 1, i));
  });
}

// Every member reads all inputs: the same bits as otherwise, and the inputs stay what they were.
TEST_P(Collectives, AllReduceInOneShot) {
  run([&](commrt_context *context, commrt_group *group) {
    std::vector<float> given(count);
    for (int64_t i = 0; i < count; ++i)
      given[i] = 1.0F / static_cast<float>(valueAt(commrt_rank(context), i));
    Memory in(context, given);
    Memory<float> out(context, count, -1), ordinary(context, count, -1);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_one_shot_start(group, in.data(), out.data(), count, COMMRT_F32, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, in.data(), ordinary.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_TRUE(count == 0 || std::memcmp(out.values().data(), ordinary.values().data(), count * sizeof(float)) == 0);
    ASSERT_EQ(in.values(), given);
  });
}

TEST_P(Collectives, AllToAll) {
  for (bool inPlace : {false, true})
    run([&](commrt_context *context, commrt_group *group) {
      int32_t me = commrt_rank(context);
      Memory in(context, filled(me, outer * n * count));
      Memory<int32_t> out(context, outer * n * count, -1);
      Memory<int32_t> &target = inPlace ? in : out;
      commrt_token *token;
      ASSERT_EQ(
          commrt_all_to_all_start(group, in.data(), target.data(), outer, outer, outer * count, COMMRT_I32, -1, &token),
          COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
      for (int64_t o = 0; o < outer; ++o)
        for (int32_t r = 0; r < n; ++r)
          for (int64_t i = 0; i < count; ++i)
            ASSERT_EQ(target[(o * n + r) * count + i], valueAt(r, (o * n + me) * count + i));
    });
}

/// [rows][n][cols] split along the middle and concatenated along the rows: what shards another dimension.
TEST(AllToAll, SplitsOneDimensionAndConcatenatesAnother) {
  constexpr int64_t n = 4, rows = 3, cols = 5;
  expectAllOk(runRanks(n, {}, [&](commrt_context *context) {
    int32_t me = commrt_rank(context);
    Memory in(context, filled(me, rows * n * cols));
    Memory<int32_t> out(context, rows * n * cols, -1);
    commrt_token *token;
    ASSERT_EQ(commrt_all_to_all_start(worldGroup(context), in.data(), out.data(), rows, 1, rows * cols, COMMRT_I32, -1,
                                      &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int32_t from = 0; from < n; ++from)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t col = 0; col < cols; ++col)
          ASSERT_EQ(out[(from * rows + row) * cols + col], valueAt(from, (row * n + me) * cols + col));
  }));
}

/// Member i sends (i + 2 j) mod 4 times count elements to member j.
TEST_P(Collectives, AllToAllUneven) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t me = commrt_rank(context);
    auto share = [&](int32_t from, int32_t to) { return (from + 2 * to) % 4 * count; };
    std::vector<int64_t> sends(n), receives(n);
    for (int32_t r = 0; r < n; ++r) {
      sends[r] = share(me, r);
      receives[r] = share(r, me);
    }
    Memory in(context, filled(me, std::accumulate(sends.begin(), sends.end(), int64_t(0))));
    Memory<int32_t> out(context, std::accumulate(receives.begin(), receives.end(), int64_t(0)), -1);
    commrt_token *token;
    ASSERT_EQ(commrt_all_to_all_v_start(group, in.data(), sends.data(), out.data(), receives.data(), 1, 1, COMMRT_I32,
                                        -1, &token),
              COMMRT_OK);
    sends.assign(n, -7); // the counts were copied
    ASSERT_EQ(finish(token), COMMRT_OK);
    int64_t at = 0;
    for (int32_t from = 0; from < n; ++from) {
      int64_t begin = 0;
      for (int32_t to = 0; to < me; ++to)
        begin += share(from, to);
      for (int64_t i = 0; i < share(from, me); ++i)
        ASSERT_EQ(out[at++], valueAt(from, begin + i));
    }
  });
}

/// The same splits along the middle one of three dimensions: [outer][rows][inner].
TEST_P(Collectives, AllToAllUnevenMiddleDimension) {
  run([&](commrt_context *context, commrt_group *group) {
    constexpr int64_t outer = 3;
    int32_t me = commrt_rank(context);
    auto share = [&](int32_t from, int32_t to) { return (from + 2 * to) % 4; };
    std::vector<int64_t> sends(n), receives(n);
    for (int32_t r = 0; r < n; ++r) {
      sends[r] = share(me, r);
      receives[r] = share(r, me);
    }
    int64_t sendRows = std::accumulate(sends.begin(), sends.end(), int64_t(0));
    int64_t recvRows = std::accumulate(receives.begin(), receives.end(), int64_t(0));
    Memory in(context, filled(me, outer * sendRows * count));
    Memory<int32_t> out(context, outer * recvRows * count, -1);
    commrt_token *token;
    ASSERT_EQ(commrt_all_to_all_v_start(group, in.data(), sends.data(), out.data(), receives.data(), outer, count,
                                        COMMRT_I32, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    int64_t at = 0;
    for (int64_t row = 0; row < outer; ++row)
      for (int32_t from = 0; from < n; ++from) {
        int64_t before = 0, all = 0;
        for (int32_t to = 0; to < n; ++to) {
          before += to < me ? share(from, to) : 0;
          all += share(from, to);
        }
        for (int64_t i = 0; i < share(from, me) * count; ++i)
          ASSERT_EQ(out[at++], valueAt(from, (row * all + before) * count + i));
      }
  });
}

/// One member's pieces trade places within one buffer.
TEST(AllToAll, UnevenInPlace) {
  expectAllOk(runRanks(2, {}, [](commrt_context *context) {
    bool first = commrt_rank(context) == 0;
    Memory data(context, first ? std::vector<int32_t>{1, 2, 3} : std::vector<int32_t>{4, 5, 6});
    // Both sides may be one array.
    int64_t counts[] = {first ? 1 : 2, first ? 2 : 1};
    commrt_token *token;
    ASSERT_EQ(commrt_all_to_all_v_start(worldGroup(context), data.data(), counts, data.data(), counts, 1, 1, COMMRT_I32,
                                        -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(data.values(), first ? (std::vector<int32_t>{1, 4, 5}) : (std::vector<int32_t>{2, 3, 6}));
  }));
}

TEST_P(Collectives, Broadcast) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t root = n - 1;
    Memory in(context, filled(commrt_rank(context), count));
    Memory<int32_t> out(context, count, -1);
    commrt_token *token;
    const void *source = commrt_rank(context) == root ? in.data() : nullptr;
    ASSERT_EQ(commrt_broadcast_start(group, source, out.data(), count, COMMRT_I32, root, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(out.values(), filled(root, count));
  });
}

TEST_P(Collectives, Reduce) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t root = n / 2;
    Memory in(context, filled(commrt_rank(context), count));
    Memory<int32_t> out(context, count, -1);
    bool isRoot = commrt_rank(context) == root;
    commrt_token *token;
    ASSERT_EQ(commrt_reduce_start(group, in.data(), isRoot ? out.data() : nullptr, count, COMMRT_I32, COMMRT_MIN, 1,
                                  root, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(out[i], isRoot ? valueAt(0, i) : -1);
  });
}

TEST_P(Collectives, GatherThenScatter) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t root = n - 1, me = commrt_rank(context);
    Memory in(context, filled(me, outer * count));
    Memory<int32_t> all(context, me == root ? outer * n * count : 0, 0), out(context, outer * count, -1);
    commrt_token *token;
    ASSERT_EQ(commrt_gather_start(group, in.data(), all.data(), outer, count, COMMRT_I32, root, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t o = 0; me == root && o < outer; ++o)
      for (int32_t r = 0; r < n; ++r)
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(all[(o * n + r) * count + i], valueAt(r, o * count + i));
    ASSERT_EQ(commrt_scatter_start(group, all.data(), out.data(), outer, count, COMMRT_I32, root, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(out.values(), in.values());
  });
}

/// A ring without its last link: member 0 gets zeros.
TEST_P(Collectives, Permute) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t me = commrt_rank(context);
    std::vector<int64_t> pairs;
    for (int64_t r = 0; r + 1 < n; ++r)
      pairs.insert(pairs.end(), {r, r + 1});
    Memory data(context, filled(me, count));
    commrt_token *token;
    ASSERT_EQ(commrt_permute_start(group, data.data(), data.data(), count, COMMRT_I32, pairs.data(), n - 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(data[i], me == 0 ? 0 : valueAt(me - 1, i));
  });
}

/// Each pair exchanges; several messages between two members arrive in order.
TEST_P(Collectives, SendAndReceive) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t me = commrt_rank(context);
    constexpr int messages = 3;
    std::deque<Memory<int32_t>> sent, got;
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    for (int k = 0; k < messages; ++k)
      for (int32_t peer = 0; peer < n; ++peer) {
        sent.emplace_back(context, filled(me * 100 + k, count));
        got.emplace_back(context, count, -1);
        ASSERT_EQ(commrt_send_start(group, sent.back().data(), count, COMMRT_I32, peer, 0, -1, nullptr), COMMRT_OK);
        ASSERT_EQ(commrt_recv_start(group, got.back().data(), count, COMMRT_I32, peer, 0, -1, nullptr), COMMRT_OK);
      }
    commrt_token *token;
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int k = 0; k < messages; ++k)
      for (int32_t peer = 0; peer < n; ++peer)
        ASSERT_EQ(got[k * n + peer].values(), filled(peer * 100 + k, count));
  });
}

/// Receives are posted in another order than the sends: the tag decides, and the order within a tag.
TEST_P(Collectives, MessagesMatchByTag) {
  run([&](commrt_context *context, commrt_group *group) {
    int32_t me = commrt_rank(context), to = (me + 1) % n, from = (me + n - 1) % n;
    const int64_t sendTags[] = {7, 0, 7, 5, 1 << 20}, recvTags[] = {1 << 20, 5, 7, 0, 7};
    const int recvOf[] = {4, 3, 0, 1, 2}; // which send each receive takes
    std::deque<Memory<int32_t>> sent, got;
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    for (int k = 0; k < 5; ++k) {
      sent.emplace_back(context, filled(me * 100 + k, count));
      got.emplace_back(context, count, -1);
    }
    for (int k = 0; k < 5; ++k)
      ASSERT_EQ(commrt_send_start(group, sent[k].data(), count, COMMRT_I32, to, sendTags[k], -1, nullptr), COMMRT_OK);
    for (int k = 0; k < 5; ++k)
      ASSERT_EQ(commrt_recv_start(group, got[k].data(), count, COMMRT_I32, from, recvTags[k], -1, nullptr), COMMRT_OK);
    commrt_token *token;
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int k = 0; k < 5; ++k)
      ASSERT_EQ(got[k].values(), filled(from * 100 + recvOf[k], count));
  });
}

TEST_P(Collectives, Barrier) {
  std::atomic<int> arrived{0};
  run([&](commrt_context *, commrt_group *group) {
    ++arrived;
    commrt_token *token;
    ASSERT_EQ(commrt_barrier_start(group, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_wait_host(token, -1), COMMRT_OK); // on a device an ordinary wait is the stream's
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(arrived.load(), n);
  });
}

/// Two groups of a partition work independently; a rank in no subset passes through.
TEST(Groups, PartitionAndOutsiders) {
  expectAllOk(runRanks(5, {}, [](commrt_context *context) {
    int64_t offsets[] = {0, 2, 2, 4}, ranks[] = {0, 2, 3, 1};
    commrt_group *group, *again;
    ASSERT_EQ(commrt_group_create(context, "tp", 3, offsets, ranks, &group), COMMRT_OK);
    ASSERT_EQ(commrt_group_create(context, "tp", 3, offsets, ranks, &again), COMMRT_OK);
    EXPECT_EQ(group, again);
    int32_t me = commrt_rank(context);
    Memory<int32_t> value(context, 1, me + 1);
    EXPECT_EQ(commrt_group_size(group), me == 4 ? 0 : 2);
    EXPECT_EQ(commrt_group_rank(group), std::vector<int>({0, 1, 1, 0, -1})[me]);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(group, value.data(), value.data(), 1, COMMRT_I32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(value[0], std::vector<int>({4, 6, 4, 6, 5})[me]);
  }));
}

TEST(Groups, BadPartitions) {
  auto fails = [](std::vector<int64_t> offsets, std::vector<int64_t> ranks, const char *text) {
    auto results = runRanks(2, {}, [&](commrt_context *context) {
      commrt_group *group;
      EXPECT_EQ(commrt_group_create(context, "g", offsets.size() - 1, offsets.data(), ranks.data(), &group),
                COMMRT_ERR_INVALID);
      EXPECT_EQ(group, nullptr);
    });
    expectAllFailed(results, COMMRT_ERR_INVALID, {text});
  };
  fails({0, 2}, {0, 0}, "rank 0 appears twice");
  fails({0, 1}, {7}, "rank 7 is not below 2");
  fails({2, 0}, {0, 1}, "offsets must ascend");
}

/// The result of a reduction is the one in rank order however the ranks' threads are timed.
TEST(Determinism, SumInRankOrder) {
  constexpr int n = 8;
  constexpr int64_t count = 4096;
  auto value = [](int32_t rank, int64_t i) {
    return float((rank * 7919 + i * 104729) % 100003) * (rank % 2 ? 1e-3f : 1e3f);
  };
  for (int round = 0; round < 10; ++round)
    expectAllOk(runRanks(n, {}, [&](commrt_context *context) {
      commrt_group *group = worldGroup(context);
      std::vector<float> given(count);
      for (int64_t i = 0; i < count; ++i)
        given[i] = value(commrt_rank(context), i);
      Memory data(context, given);
      if (commrt_rank(context) == round % n)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      commrt_token *token;
      ASSERT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
                COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
      for (int64_t i = 0; i < count; ++i) {
        float expected = value(0, i);
        for (int32_t r = 1; r < n; ++r)
          expected += value(r, i);
        ASSERT_EQ(data[i], expected);
      }
    }));
}
} // namespace
