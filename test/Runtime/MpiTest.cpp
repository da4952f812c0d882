//===- MpiTest.cpp - The mpi backend gives the bits of the threads backend --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Run under mpirun, or by another launcher over the backend that COMMRT_TEST_BACKEND names. Each process takes part in
// random collectives, plays all ranks of the same collectives on threads by itself, and compares its own rank's results
// bit for bit.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

using namespace commsched::test;

namespace {
struct Case {
  int32_t kind, dtype, reduction, root;
  int64_t outer, count;
};

Case randomCase(std::mt19937 &random, int32_t ranks) {
  Case result;
  result.kind = static_cast<int32_t>(random() % 12);
  if (result.kind == COMMRT_SEND || result.kind == COMMRT_RECV)
    result.kind = COMMRT_ALL_REDUCE;
  result.dtype = static_cast<int32_t>(random() % 4); // the floating-point types
  result.reduction = static_cast<int32_t>(random() % 6);
  result.root = static_cast<int32_t>(random() % ranks);
  constexpr int64_t counts[] = {0, 1, 7, 1000, 20000};
  result.count = counts[random() % 5];
  result.outer = 1 + random() % 3;
  return result;
}

/// Starts the collective; `in` and `out` have room for n * outer * count elements.
int32_t start(commrt_group *group, const Case &c, const void *in, void *out, commrt_token **token) {
  int64_t n = commrt_group_size(group);
  switch (c.kind) {
  case COMMRT_ALL_GATHER:
    return commrt_all_gather_start(group, in, out, c.outer, c.count, c.dtype, -1, token);
  case COMMRT_REDUCE_SCATTER:
    return commrt_reduce_scatter_start(group, in, out, c.outer, c.count, c.dtype, c.reduction, 0.3, -1, token);
  case COMMRT_ALL_REDUCE:
    return commrt_all_reduce_start(group, in, out, c.count, c.dtype, c.reduction, 0.3, -1, token);
  case COMMRT_ALL_TO_ALL:
    return commrt_all_to_all_start(group, in, out, c.outer, 1, c.outer * c.count, c.dtype, -1, token);
  case COMMRT_BROADCAST:
    return commrt_broadcast_start(group, in, out, c.count, c.dtype, c.root, -1, token);
  case COMMRT_REDUCE:
    return commrt_reduce_start(group, in, out, c.count, c.dtype, c.reduction, 0.3, c.root, -1, token);
  case COMMRT_GATHER:
    return commrt_gather_start(group, in, out, c.outer, c.count, c.dtype, c.root, -1, token);
  case COMMRT_SCATTER:
    return commrt_scatter_start(group, in, out, c.outer, c.count, c.dtype, c.root, -1, token);
  case COMMRT_PERMUTE: {
    std::vector<int64_t> pairs;
    for (int64_t i = 0; i + 1 < n; ++i)
      pairs.insert(pairs.end(), {i, i + 1});
    return commrt_permute_start(group, in, out, c.count, c.dtype, pairs.data(), n - 1, -1, token);
  }
  default:
    return commrt_barrier_start(group, -1, token);
  }
}

/// All collectives in flight at once; the results one after the other.
std::vector<char> play(commrt_context *context, uint32_t seed, int cases) {
  std::mt19937 random(seed);
  commrt_group *group = worldGroup(context);
  int64_t n = commrt_ranks(context);
  std::vector<std::unique_ptr<Memory<char>>> ins(cases), outs(cases); // of the device where there is one
  std::vector<commrt_token *> tokens(cases);
  commrt_program_begin(context, seed, nullptr, 0);
  for (int i = 0; i < cases; ++i) {
    Case c = randomCase(random, static_cast<int32_t>(n));
    int64_t elements = n * c.outer * c.count, size = commrt_dtype_size(c.dtype);
    std::vector<char> bytes(elements * size);
    std::mt19937 values(seed * 131 + i * 17 + commrt_rank(context));
    for (int64_t k = 0; k < elements; ++k) {
      // Sums, products and roundings of all sizes; the small types from the top bits of an f32.
      float value = static_cast<float>(static_cast<int32_t>(values())) * 0x1p-30f;
      double wide = value;
      uint16_t half = static_cast<uint16_t>(0x3000 | (values() & 0x8fff));
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      auto top = static_cast<uint16_t>(bits >> 16);
      const void *from = c.dtype == COMMRT_F16    ? static_cast<const void *>(&half)
                         : c.dtype == COMMRT_BF16 ? static_cast<const void *>(&top)
                         : c.dtype == COMMRT_F32  ? static_cast<const void *>(&value)
                                                  : static_cast<const void *>(&wide);
      std::memcpy(bytes.data() + k * size, from, size);
    }
    outs[i] = std::make_unique<Memory<char>>(context, elements * size, 0);
    ins[i] = std::make_unique<Memory<char>>(context, std::move(bytes));
    EXPECT_EQ(start(group, c, ins[i]->data(), outs[i]->data(), &tokens[i]), COMMRT_OK);
  }
  std::vector<char> all;
  for (int i = 0; i < cases; ++i) {
    EXPECT_EQ(finish(tokens[i]), COMMRT_OK);
    all.insert(all.end(), outs[i]->values().begin(), outs[i]->values().end());
  }
  EXPECT_EQ(commrt_program_end(context), COMMRT_OK);
  return all;
}

commrt_options mpiOptions() {
  commrt_options options;
  commrt_options_init(&options);
  const char *other = std::getenv("COMMRT_TEST_BACKEND");
  options.backend = other ? other : "mpi";
  options.timeout_ns = 300'000'000'000; // only a hang reaches it
  options.trace = std::getenv("COMMRT_TEST_TRACE") != nullptr;
  return options;
}

TEST(Mpi, BitsOfThreads) {
  commrt_options options = mpiOptions();
  commrt_job *job;
  char message[1024];
  ASSERT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  int32_t rank = commrt_job_local_rank(job), ranks = commrt_job_ranks(job);
  commrt_context *context;
  ASSERT_EQ(commrt_context_create(job, rank, &context), COMMRT_OK);
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    std::vector<char> mine = play(context, seed, 50), theirs;
    RunOptions onThreads;
    onThreads.backend = "threads";
    expectAllOk(runRanks(ranks, onThreads, [&](commrt_context *other) {
      std::vector<char> result = play(other, seed, 50);
      if (commrt_rank(other) == rank)
        theirs = std::move(result);
    }));
    EXPECT_TRUE(mine == theirs) << "rank " << rank << ", seed " << seed;
  }
  EXPECT_EQ(commrt_context_destroy(context), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}

/// Messages around a ring, also out of order by tag, and uneven splits of a middle dimension; a second job in one
/// process.
TEST(Mpi, MessagesTagsAndUnevenSplits) {
  commrt_options options = mpiOptions();
  commrt_job *job;
  ASSERT_EQ(commrt_job_create(&options, &job, nullptr, 0), COMMRT_OK);
  int32_t me = commrt_job_local_rank(job), n = commrt_job_ranks(job);
  commrt_context *context;
  ASSERT_EQ(commrt_context_create(job, me, &context), COMMRT_OK);
  commrt_group *group = worldGroup(context);
  int32_t next = (me + 1) % n, previous = (me + n - 1) % n;
  std::vector<int32_t> sent(100, me), got(100, -1);
  commrt_token *token;
  ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
  ASSERT_EQ(commrt_send_start(group, sent.data(), 100, COMMRT_I32, next, 0, -1, nullptr), COMMRT_OK);
  ASSERT_EQ(commrt_recv_start(group, got.data(), 100, COMMRT_I32, previous, 0, -1, nullptr), COMMRT_OK);
  ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
  ASSERT_EQ(finish(token), COMMRT_OK);
  EXPECT_EQ(got, std::vector<int32_t>(100, previous));

  // Out of order: the tag decides.
  const int64_t sendTags[] = {3, 1, 3, 1 << 20}, recvTags[] = {1 << 20, 3, 1, 3};
  const int recvOf[] = {3, 0, 1, 2};
  constexpr int64_t sizes[] = {10, 100000, 10, 1000};
  std::vector<std::vector<int32_t>> outgoing, incoming;
  ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
  for (int k = 0; k < 4; ++k) {
    outgoing.emplace_back(sizes[k], me * 10 + k);
    incoming.emplace_back(sizes[recvOf[k]], -1);
  }
  for (int k = 0; k < 4; ++k) {
    ASSERT_EQ(commrt_recv_start(group, incoming[k].data(), incoming[k].size(), COMMRT_I32, previous, recvTags[k], -1,
                                nullptr),
              COMMRT_OK);
    ASSERT_EQ(
        commrt_send_start(group, outgoing[k].data(), outgoing[k].size(), COMMRT_I32, next, sendTags[k], -1, nullptr),
        COMMRT_OK);
  }
  ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
  ASSERT_EQ(finish(token), COMMRT_OK);
  for (int k = 0; k < 4; ++k)
    EXPECT_EQ(incoming[k], std::vector<int32_t>(sizes[recvOf[k]], previous * 10 + recvOf[k]));

  // Rows [2][pieces][3]: me sends (me + 2 other) mod 3 rows to each other.
  constexpr int64_t outer = 2, inner = 3;
  std::vector<int64_t> sends(n), receives(n);
  std::vector<int32_t> in, expected;
  for (int64_t row = 0; row < outer; ++row)
    for (int32_t other = 0; other < n; ++other) {
      sends[other] = (me + 2 * other) % 3;
      receives[other] = (other + 2 * me) % 3;
      in.insert(in.end(), sends[other] * inner, row * 10000 + me * 100 + other);
      expected.insert(expected.end(), receives[other] * inner, row * 10000 + other * 100 + me);
    }
  std::vector<int32_t> out(expected.size());
  ASSERT_EQ(commrt_all_to_all_v_start(group, in.data(), sends.data(), out.data(), receives.data(), outer, inner,
                                      COMMRT_I32, -1, &token),
            COMMRT_OK);
  ASSERT_EQ(finish(token), COMMRT_OK);
  EXPECT_EQ(out, expected);
  ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  EXPECT_EQ(commrt_context_destroy(context), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}
/// Messages that are received last are outstanding before collectives of two rounds, whose second round needs progress;
/// more collectives than the backend posts at once, on two groups whose ranks wait in different orders.
TEST(Mpi, OutstandingOperationsDoNotHoldOthersBack) {
  constexpr int numMessages = 200, numReductions = 300;
  constexpr int64_t count = 10'000; // more than 16 KiB
  commrt_options options = mpiOptions();
  commrt_job *job;
  ASSERT_EQ(commrt_job_create(&options, &job, nullptr, 0), COMMRT_OK);
  int32_t me = commrt_job_local_rank(job), n = commrt_job_ranks(job);
  commrt_context *context;
  ASSERT_EQ(commrt_context_create(job, me, &context), COMMRT_OK);
  commrt_group *first = worldGroup(context, "first"), *second = worldGroup(context, "second");
  int32_t next = (me + 1) % n, previous = (me + n - 1) % n;
  std::vector<int32_t> sent(numMessages, me), got(numMessages, -1);
  std::vector<commrt_token *> receives(numMessages), firsts(numReductions), seconds(numReductions);
  for (int i = 0; i < numMessages; ++i)
    ASSERT_EQ(commrt_recv_start(first, &got[i], 1, COMMRT_I32, previous, i, -1, &receives[i]), COMMRT_OK);
  std::vector<std::vector<int32_t>> values(2 * numReductions, std::vector<int32_t>(count, me));
  for (int i = 0; i < numReductions; ++i) {
    auto reduce = [&](commrt_group *group, std::vector<int32_t> &data, commrt_token **token) {
      ASSERT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), count, COMMRT_I32, COMMRT_SUM, 1, -1, token),
                COMMRT_OK);
    };
    reduce(first, values[2 * i], &firsts[i]);
    reduce(second, values[2 * i + 1], &seconds[i]);
  }
  auto &early = me % 2 ? firsts : seconds, &late = me % 2 ? seconds : firsts;
  for (auto *tokens : {&early, &late})
    for (int i = numReductions - 1; i >= 0; --i)
      ASSERT_EQ(finish((*tokens)[i]), COMMRT_OK);
  for (int i = 0; i < numMessages; ++i) {
    commrt_token *token;
    ASSERT_EQ(commrt_send_start(first, &sent[i], 1, COMMRT_I32, next, i, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(finish(receives[i]), COMMRT_OK);
  }
  EXPECT_EQ(got, std::vector<int32_t>(numMessages, previous));
  for (const std::vector<int32_t> &value : values)
    EXPECT_EQ(value, std::vector<int32_t>(count, n * (n - 1) / 2));
  ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  EXPECT_EQ(commrt_context_destroy(context), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}
/// 10,000 tokens at once; symmetric buffers at one offset, whose memory is used again only after its last reader.
TEST(Mpi, ManyTokensAndSymmetricBuffers) {
  commrt_options options = mpiOptions();
  commrt_job *job;
  ASSERT_EQ(commrt_job_create(&options, &job, nullptr, 0), COMMRT_OK);
  int32_t me = commrt_job_local_rank(job), n = commrt_job_ranks(job);
  commrt_context *context;
  ASSERT_EQ(commrt_context_create(job, me, &context), COMMRT_OK);
  commrt_group *group = worldGroup(context);
  constexpr int many = 10000;
  std::vector<int32_t> values(many, me);
  std::vector<commrt_token *> tokens(many);
  for (int i = 0; i < many; ++i)
    ASSERT_EQ(commrt_all_reduce_start(group, &values[i], &values[i], 1, COMMRT_I32, COMMRT_SUM, 1, -1, &tokens[i]),
              COMMRT_OK);
  for (int i = many - 1; i >= 0; --i)
    ASSERT_EQ(finish(tokens[i]), COMMRT_OK);
  EXPECT_EQ(values, std::vector<int32_t>(many, n * (n - 1) / 2));

  constexpr int64_t count = 100000;
  auto make = [&](int64_t elements) {
    void *pointer = nullptr;
    EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, elements * 4, &pointer), COMMRT_OK);
    return static_cast<int32_t *>(pointer);
  };
  for (int round = 0; round < 3; ++round) {
    int32_t *in = make(count), *out = make(n * count);
    std::fill_n(in, count, me * 10 + round);
    commrt_token *token;
    ASSERT_EQ(commrt_all_gather_start(group, in, out, 1, count, COMMRT_I32, -1, &token), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, in), COMMRT_OK);
    int32_t *again = make(count);
    EXPECT_EQ(again, in);
    std::fill_n(again, count, -1);
    std::vector<int64_t> offsets(n);
    int64_t mine = -1;
    ASSERT_EQ(commrt_symmetric_offset(context, again, &mine), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int32_t from = 0; from < n; ++from)
      ASSERT_EQ(out[from * count + count / 2], from * 10 + round);
    ASSERT_EQ(commrt_all_gather_start(group, &mine, offsets.data(), 1, 1, COMMRT_I64, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    EXPECT_EQ(offsets, std::vector<int64_t>(n, mine));
    ASSERT_EQ(commrt_free(context, again), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, out), COMMRT_OK);
  }
  ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  EXPECT_EQ(commrt_context_destroy(context), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}
} // namespace
