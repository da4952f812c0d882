//===- NcclTest.cpp - Tests particular to collectives over NCCL -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Streams, events, memory and messages of the nccl backend, over the libraries that COMMRT_NCCL_LIBRARY and
// COMMRT_CUDART_LIBRARY name: in CI the emulated ones, which end the process when a rule of CUDA or NCCL is broken.
// Under the thread sanitizer, a missing order between two streams is a data race.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <atomic>
#include <climits>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <unistd.h>

using namespace commsched::test;

namespace {
constexpr int64_t count = 1000;

/// Each rank's values, by element: small, and not exact in 16 bits when they are added up.
float valueAt(int32_t rank, int64_t i) { return static_cast<float>((rank * 37 + i * 11) % 101 - 50) / 7; }

RunOptions overNccl(int64_t timeoutMs = 20000, const char *fault = nullptr) {
  RunOptions how;
  how.backend = "nccl";
  how.timeoutMs = timeoutMs;
  how.fault = fault;
  return how;
}

/// A variable of the environment, for a block.
struct Variable {
  const char *name;
  Variable(const char *name, const char *value) : name(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name); }
};

std::vector<float> filled(int32_t rank) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = valueAt(rank, i);
  return values;
}

commrt_stream *lane(commrt_context *context, int32_t number) {
  commrt_stream *stream = nullptr;
  EXPECT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, number, &stream), COMMRT_OK);
  return stream;
}

//===- Types and reductions ------------------------------------------------------------------===//

/// The bytes of small values of a type, which reductions keep within its range.
std::vector<char> elements(int32_t dtype, int32_t rank, int64_t n) {
  std::vector<char> bytes(n * commrt_dtype_size(dtype));
  for (int64_t i = 0; i < n; ++i) {
    auto number = static_cast<int32_t>((rank * 3 + i) % 5) + 1;
    char *to = bytes.data() + i * commrt_dtype_size(dtype);
    auto store = [&](auto value) { std::memcpy(to, &value, sizeof(value)); };
    float real = static_cast<float>(number) / 3;
    uint32_t bits;
    std::memcpy(&bits, &real, 4);
    switch (dtype) {
    case COMMRT_F16: // (1 + number / 8) * 2^0
      store(static_cast<uint16_t>(0x3c00 + number * 128));
      break;
    case COMMRT_BF16:
      store(static_cast<uint16_t>(bits >> 16));
      break;
    case COMMRT_F32:
      store(real);
      break;
    case COMMRT_F64:
      store(static_cast<double>(number) / 3);
      break;
    case COMMRT_I1:
      store(static_cast<uint8_t>(number % 2));
      break;
    default: // integers of any width, little-endian
      std::memcpy(to, &number, std::min<size_t>(sizeof(number), commrt_dtype_size(dtype)));
    }
  }
  return bytes;
}

/// Every type with every reduction that it has, in the three collectives that reduce: the bits of the definition.
void reduceAll(int32_t ranks, bool isExact) {
  expectAllOk(runRanks(ranks, overNccl(), [&](commrt_context *context) {
    constexpr int64_t n = 9;
    commrt_group *group = worldGroup(context);
    int32_t me = commrt_rank(context);
    for (int32_t dtype = COMMRT_F16; dtype <= COMMRT_I1; ++dtype)
      for (int32_t op = COMMRT_SUM; op <= COMMRT_SCALED_SUM; ++op)
        for (double scale : {0.25, 0.3}) {
          std::vector<std::vector<char>> all;
          std::vector<const void *> ins;
          for (int32_t rank = 0; rank < ranks; ++rank)
            all.push_back(elements(dtype, rank, n * ranks));
          for (auto &one : all)
            ins.push_back(one.data());
          std::vector<char> expected(all[0].size());
          if ((op != COMMRT_SCALED_SUM && scale != 0.25) ||
              commrt_reduce_local(dtype, op, scale, ranks, ins.data(), expected.data(), n * ranks) != COMMRT_OK)
            continue;
          // Outside of exact mode NCCL may round wide types once more.
          bool isWide = dtype == COMMRT_F32 || dtype == COMMRT_F64;
          if (!isExact && isWide && (op == COMMRT_AVG || op == COMMRT_SCALED_SUM))
            continue;
          std::string what = std::string(commrt_dtype_name(dtype)) + " by " + commrt_reduction_name(op);
          Memory<char> in(context, all[me]), sum(context, in.values().size(), 1);
          Memory<char> part(context, n * commrt_dtype_size(dtype), 1), rooted(context, in.values().size(), 1);
          commrt_token *tokens[3];
          ASSERT_EQ(commrt_all_reduce_start(group, in.data(), sum.data(), n * ranks, dtype, op, scale, -1, &tokens[0]),
                    COMMRT_OK);
          ASSERT_EQ(commrt_reduce_scatter_start(group, in.data(), part.data(), 1, n, dtype, op, scale, -1, &tokens[1]),
                    COMMRT_OK);
          ASSERT_EQ(commrt_reduce_start(group, in.data(), me == 1 ? rooted.data() : nullptr, n * ranks, dtype, op,
                                        scale, 1, -1, &tokens[2]),
                    COMMRT_OK);
          for (commrt_token *token : tokens)
            ASSERT_EQ(finish(token), COMMRT_OK);
          ASSERT_EQ(sum.values(), expected) << what;
          int64_t bytes = n * commrt_dtype_size(dtype);
          ASSERT_EQ(part.values(),
                    std::vector<char>(expected.begin() + me * bytes, expected.begin() + (me + 1) * bytes))
              << what;
          if (me == 1)
            ASSERT_EQ(rooted.values(), expected) << what;
        }
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

TEST(NcclReductions, ExactModeHasTheBitsOfTheDefinition) {
  Variable exact("COMMRT_NCCL_EXACT", "1");
  for (const char *kernels : {"require", "off"}) { // by kernels, and by the host
    Variable how("COMMRT_DEVICE_KERNELS", kernels);
    for (int32_t ranks : {2, 3, 4})
      reduceAll(ranks, true);
  }
}
/// The emulated library adds up in rank order, and so shows which operation it was asked for.
TEST(NcclReductions, EveryTypeAndOperation) {
  for (int32_t ranks : {2, 3})
    reduceAll(ranks, false);
}

/// Sums that depend on the order: exact mode has the bits of the threads backend.
TEST(NcclReductions, ExactModeIsEqualToThreads) {
  auto sums = [](const RunOptions &how) {
    std::vector<float> result;
    expectAllOk(runRanks(4, how, [&](commrt_context *context) {
      Memory data(context, filled(commrt_rank(context)));
      commrt_token *token;
      ASSERT_EQ(commrt_all_reduce_start(worldGroup(context), data.data(), data.data(), count, COMMRT_F32, COMMRT_SUM, 1,
                                        -1, &token),
                COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
      if (commrt_rank(context) == 2)
        result = data.values();
      data.values();
      ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    }));
    return result;
  };
  Variable exact("COMMRT_NCCL_EXACT", "1");
  RunOptions threads;
  threads.backend = "threads";
  EXPECT_EQ(sums(overNccl()), sums(threads));
}

//===- Streams, events, memory ---------------------------------------------------------------===//

/// What one stream computes, another one's collective reads, and a third one uses.
TEST(NcclStreams, ProducersAndConsumersOnOtherStreams) {
  expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory source(context, filled(commrt_rank(context)));
    Memory<float> in(context, count, 0), out(context, count, 0), result(context, count, 0);
    commrt_stream *producer = lane(context, 1), *consumer = lane(context, 2);
    commrt_event *ready;
    ASSERT_EQ(commrt_event_record(context, nullptr, &ready), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, producer, ready), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, consumer, ready), COMMRT_OK);
    commrt_event_release(ready);
    ASSERT_EQ(commrt_copy(context, in.data(), source.data(), count * 4, COMMRT_COPY_ON_DEVICE, producer), COMMRT_OK);
    ASSERT_EQ(commrt_set_stream(context, producer), COMMRT_OK);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(commrt_wait(token, consumer), COMMRT_OK);
    ASSERT_EQ(commrt_copy(context, result.data(), out.data(), count * 4, COMMRT_COPY_ON_DEVICE, consumer), COMMRT_OK);
    commrt_token_release(token);
    commrt_event *done;
    ASSERT_EQ(commrt_event_record(context, consumer, &done), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, nullptr, done), COMMRT_OK);
    commrt_event_release(done);
    ASSERT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(result[i], valueAt(0, i) + valueAt(1, i));
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// An event covers the collectives that were started on its stream: nothing else waits for this one.
namespace {
/// A group of both ranks, one of each rank alone, and one of rank 1.
struct Groups {
  commrt_group *world, *own, *other;
};

/// What a start that moves nothing is made of.
struct Nothing {
  const char *what;
  /// Starts it on the current stream.
  int32_t (*start)(commrt_context *context, const Groups &groups, float *data, commrt_token **token);
};

constexpr int64_t noTokens[] = {0, 0};
const Nothing nothings[] = {
    {"an all_reduce of no elements",
     [](commrt_context *, const Groups &groups, float *data, commrt_token **token) {
       return commrt_all_reduce_start(groups.world, data, data, 0, COMMRT_F32, COMMRT_SUM, 1, -1, token);
     }},
    {"an exchange without tokens",
     [](commrt_context *, const Groups &groups, float *data, commrt_token **token) {
       return commrt_all_to_all_v_start(groups.world, data, noTokens, data, noTokens, 1, 4, COMMRT_F32, -1, token);
     }},
    {"a barrier of one rank", [](commrt_context *, const Groups &groups, float *,
                                 commrt_token **token) { return commrt_barrier_start(groups.own, -1, token); }},
    {"an all_reduce of no elements of one rank",
     [](commrt_context *, const Groups &groups, float *data, commrt_token **token) {
       return commrt_all_reduce_start(groups.own, data, data, 0, COMMRT_F32, COMMRT_SUM, 1, -1, token);
     }},
    {"a message of no elements to the own rank",
     [](commrt_context *context, const Groups &groups, float *data, commrt_token **token) {
       int32_t status = commrt_coalesce_begin(context);
       status = status ? status : commrt_send_start(groups.own, data, 0, COMMRT_F32, 0, 0, -1, nullptr);
       status = status ? status : commrt_recv_start(groups.own, data, 0, COMMRT_F32, 0, 0, -1, nullptr);
       return status ? status : commrt_coalesce_end(context, token);
     }},
    {"a list of collectives of no elements",
     [](commrt_context *context, const Groups &groups, float *data, commrt_token **token) {
       int32_t status = commrt_coalesce_begin(context);
       for (commrt_group *group : {groups.world, groups.own})
         status = status ? status : commrt_all_gather_start(group, data, data, 1, 0, COMMRT_F32, -1, /*token=*/nullptr);
       return status ? status : commrt_coalesce_end(context, token);
     }},
    {"a collective of a rank in no subset",
     [](commrt_context *, const Groups &groups, float *data, commrt_token **token) {
       return commrt_all_reduce_start(groups.other, data, data, 1, COMMRT_F32, COMMRT_SUM, 1, -1, token);
     }},
};
} // namespace

/// A start that moves nothing on stream 1 and its wait on stream 0 put what follows on stream 0 behind what stream 1
/// had before the start: here a wait for a collective that rank 1 starts only once rank 0 has seen that nothing goes
/// on.
TEST(NcclStreams, StartsThatMoveNothingOrderStreams) {
  for (const Nothing &nothing : nothings) {
    SCOPED_TRACE(nothing.what);
    std::atomic<bool> hasLooked = false;
    expectAllOk(runRanks(2, overNccl(), [&](commrt_context *context) {
      const int64_t alone[] = {0, 1, 2}, ranks[] = {0, 1}, last[] = {0, 1}, one[] = {1};
      commrt_group *world = worldGroup(context), *own = nullptr, *other = nullptr;
      ASSERT_EQ(commrt_group_create(context, "own", 2, alone, ranks, &own), COMMRT_OK);
      ASSERT_EQ(commrt_group_create(context, "other", 1, last, one, &other), COMMRT_OK);
      Memory<float> data(context, count, 1);
      bool isFirst = commrt_rank(context) == 0;
      while (!isFirst && !hasLooked)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      commrt_stream *lane1 = lane(context, 1);
      commrt_event *ready, *behind;
      commrt_token *late, *empty;
      ASSERT_EQ(commrt_event_record(context, nullptr, &ready), COMMRT_OK);
      ASSERT_EQ(commrt_event_await(context, lane1, ready), COMMRT_OK);
      ASSERT_EQ(commrt_set_stream(context, lane1), COMMRT_OK);
      ASSERT_EQ(commrt_all_reduce_start(world, data.data(), data.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &late),
                COMMRT_OK);
      ASSERT_EQ(commrt_wait(late, lane1), COMMRT_OK);
      ASSERT_EQ(nothing.start(context, {world, own, other}, data.data(), &empty), COMMRT_OK);
      ASSERT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
      ASSERT_EQ(commrt_wait(empty, nullptr), COMMRT_OK);
      ASSERT_EQ(commrt_event_record(context, nullptr, &behind), COMMRT_OK);
      constexpr int looks = 50;
      for (int look = 0; isFirst && look < looks; ++look) {
        int32_t isDone = 0;
        EXPECT_EQ(commrt_event_test(behind, &isDone), COMMRT_OK);
        EXPECT_EQ(isDone, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      hasLooked = true;
      EXPECT_EQ(data[7], 2);
      commrt_event_release(ready);
      commrt_event_release(behind);
      commrt_token_release(late);
      commrt_token_release(empty);
      ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    }));
  }
}

TEST(NcclStreams, EventsCoverStarts) {
  expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory in(context, filled(commrt_rank(context)));
    Memory<float> out(context, count, 0);
    commrt_stream *other = lane(context, 1);
    commrt_event *ready, *event;
    ASSERT_EQ(commrt_event_record(context, nullptr, &ready), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, other, ready), COMMRT_OK);
    ASSERT_EQ(commrt_set_stream(context, other), COMMRT_OK);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(commrt_event_record(context, other, &event), COMMRT_OK);
    ASSERT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, nullptr, event), COMMRT_OK);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(out[i], valueAt(0, i) + valueAt(1, i));
    commrt_event_release(ready);
    commrt_event_release(event);
    commrt_token_release(token);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// Timed events on a group's stream give the time of what was put between them; the emulator's default model is 10 us
/// for a call and 300,000 bytes per us, of which an all_reduce moves its input twice.
TEST(NcclStreams, TimedEventsOnTheStreamOfAGroup) {
  expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
    constexpr int64_t elements = 75000;
    commrt_group *group = worldGroup(context);
    Memory<float> in(context, elements, 1), out(context, elements, 0);
    commrt_stream *stream = nullptr, *messages = nullptr;
    ASSERT_EQ(commrt_group_stream(group, 0, &stream), COMMRT_OK);
    ASSERT_EQ(commrt_group_stream(group, 1, &messages), COMMRT_OK);
    EXPECT_NE(stream, messages);
    auto reduce = [&](int64_t size) {
      commrt_token *token;
      EXPECT_EQ(commrt_all_reduce_start(group, in.data(), out.data(), size, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
                COMMRT_OK);
      return token;
    };
    commrt_event *begin, *end, *plain;
    commrt_token *gate = reduce(1);
    ASSERT_EQ(commrt_event_record_timed(context, stream, &begin), COMMRT_OK);
    commrt_token *first = reduce(elements), *second = reduce(elements);
    ASSERT_EQ(commrt_event_record_timed(context, stream, &end), COMMRT_OK);
    ASSERT_EQ(commrt_event_record(context, stream, &plain), COMMRT_OK);
    ASSERT_EQ(commrt_wait_host(second, -1), COMMRT_OK);
    int32_t done = 0;
    while (!done)
      ASSERT_EQ(commrt_event_test(end, &done), COMMRT_OK);
    int64_t ns = 0;
    ASSERT_EQ(commrt_event_elapsed(begin, end, &ns), COMMRT_OK);
    if (!std::getenv("CUDA_EMU_NOISE_PERMILLE"))
      EXPECT_NEAR(static_cast<double>(ns), 24000, 20);
    EXPECT_EQ(commrt_event_elapsed(begin, plain, &ns), COMMRT_ERR_INVALID);
    EXPECT_EQ(commrt_event_elapsed(begin, nullptr, &ns), COMMRT_ERR_INVALID);
    for (commrt_event *event : {begin, end, plain})
      commrt_event_release(event);
    for (commrt_token *token : {gate, first, second})
      commrt_token_release(token);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// Memory is made for every stream, and goes back behind all of them, also while a collective uses it.
TEST(NcclMemory, ComesAndGoesOnSeveralStreams) {
  expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    commrt_stream *streams[] = {lane(context, 0), lane(context, 1), lane(context, 2)};
    Memory given(context, filled(commrt_rank(context)));
    commrt_event *ready;
    ASSERT_EQ(commrt_event_record(context, nullptr, &ready), COMMRT_OK);
    for (int32_t i : {1, 2})
      ASSERT_EQ(commrt_event_await(context, streams[i], ready), COMMRT_OK);
    for (int round = 0; round < 30; ++round) {
      commrt_stream *stream = streams[round % 3];
      void *in, *out;
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, count * 4, &in), COMMRT_OK);
      ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, count * 4, &out), COMMRT_OK);
      ASSERT_EQ(commrt_copy(context, in, given.data(), count * 4, COMMRT_COPY_ON_DEVICE, stream), COMMRT_OK);
      ASSERT_EQ(commrt_set_stream(context, stream), COMMRT_OK);
      commrt_token *token;
      ASSERT_EQ(commrt_all_reduce_start(group, in, out, count, COMMRT_F32, COMMRT_SUM, 1, -1, &token), COMMRT_OK);
      ASSERT_EQ(commrt_free(context, in), COMMRT_OK); // in flight
      ASSERT_EQ(commrt_wait(token, stream), COMMRT_OK);
      ASSERT_EQ(commrt_copy(context, out, given.data(), count * 4, COMMRT_COPY_ON_DEVICE, stream), COMMRT_OK);
      ASSERT_EQ(commrt_free(context, out), COMMRT_OK);
      commrt_token_release(token);
      ASSERT_EQ(commrt_progress(context), COMMRT_OK);
    }
    commrt_event_release(ready);
    ASSERT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// One rank finds no memory: all end with its size, at once.
TEST(NcclMemory, NoneLeftOnOneRank) {
  auto results = runRanks(3, overNccl(), [](commrt_context *context) {
    Memory<float> value(context, 1, 1);
    void *large = nullptr;
    if (commrt_rank(context) == 1)
      EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, int64_t(1) << 50, &large), COMMRT_ERR_MEMORY);
    commrt_token *token = nullptr;
    if (!commrt_all_reduce_start(worldGroup(context), value.data(), value.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1,
                                 &token))
      finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MEMORY, {"rank 1: no memory for a buffer of 1125899906842624 bytes"});
}

/// Arenas of two groups, in two programs: the collectives run on registered memory, at equal offsets.
TEST(NcclMemory, ArenasAreWindowsOfTheirGroups) {
  expectAllOk(runRanks(4, overNccl(), [](commrt_context *context) {
    commrt_group *world = worldGroup(context), *pairs;
    int64_t offsets[] = {0, 2, 4}, ranks[] = {0, 1, 2, 3};
    ASSERT_EQ(commrt_group_create(context, "pairs", 2, offsets, ranks, &pairs), COMMRT_OK);
    Memory given(context, filled(commrt_rank(context)));
    for (int program = 0; program < 2; ++program) {
      ASSERT_EQ(commrt_program_begin(context, 1, nullptr, 0), COMMRT_OK);
      ASSERT_EQ(commrt_arena_create(world, "first", count * 8), COMMRT_OK);
      ASSERT_EQ(commrt_arena_create(pairs, "second", count * 8), COMMRT_OK);
      for (commrt_group *group : {world, pairs}) {
        void *arena;
        ASSERT_EQ(commrt_arena_find(context, group == world ? "first" : "second", &arena), COMMRT_OK);
        EXPECT_EQ(commrt_arena_group(context, arena), group);
        auto *in = static_cast<float *>(arena), *out = in + count;
        ASSERT_EQ(commrt_copy(context, in, given.data(), count * 4, COMMRT_COPY_ON_DEVICE, nullptr), COMMRT_OK);
        commrt_token *token;
        ASSERT_EQ(commrt_all_reduce_one_shot_start(group, in, out, count, COMMRT_F32, -1, &token), COMMRT_OK);
        ASSERT_EQ(finish(token), COMMRT_OK);
        std::vector<float> got(count);
        ASSERT_EQ(commrt_copy(context, got.data(), out, count * 4, COMMRT_COPY_FROM_DEVICE, nullptr), COMMRT_OK);
        int32_t first = group == world ? 0 : commrt_rank(context) / 2 * 2, last = group == world ? 3 : first + 1;
        float expected = valueAt(first, 5);
        for (int32_t rank = first + 1; rank <= last; ++rank)
          expected += valueAt(rank, 5);
        EXPECT_EQ(got[5], expected);
      }
      ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    }
  }));
}

/// A computation without a kernel on the device waits for the collective before it, and the next one for it.
TEST(NcclStreams, ComputationsOnTheHost) {
  expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory in(context, filled(commrt_rank(context)));
    Memory<float> sum(context, count, 0), twice(context, count, 0);
    commrt_token *token;
    ASSERT_EQ(commrt_all_reduce_start(group, in.data(), sum.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    void *operands[] = {sum.data(), sum.data(), twice.data()};
    const int64_t meta[] = {COMMRT_F32, 0, 1, count, COMMRT_F32, 0, 1, count, COMMRT_F32, 3, 1, count, 0};
    ASSERT_EQ(commrt_compute(context, "aten.add", 3, operands, meta, 0), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(group, twice.data(), twice.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t i = 0; i < count; ++i)
      ASSERT_EQ(twice[i], 4 * (valueAt(0, i) + valueAt(1, i)));
  }));
}

//===- Lists and messages --------------------------------------------------------------------===//

/// One list over two groups and both communicators of one: each collective is right, and one token ends all.
TEST(NcclLists, GroupsAndMessagesInOneList) {
  expectAllOk(runRanks(4, overNccl(), [](commrt_context *context) {
    int32_t me = commrt_rank(context);
    commrt_group *world = worldGroup(context), *pairs;
    int64_t offsets[] = {0, 2, 4}, ranks[] = {0, 1, 2, 3};
    ASSERT_EQ(commrt_group_create(context, "pairs", 2, offsets, ranks, &pairs), COMMRT_OK);
    Memory in(context, filled(me));
    Memory<float> a(context, count, 0), b(context, count, 0), c(context, count, 0), d(context, 4 * count, 0);
    commrt_token *token;
    ASSERT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(world, in.data(), a.data(), count, COMMRT_F32, COMMRT_MAX, 1, -1, nullptr),
              COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(pairs, in.data(), b.data(), count, COMMRT_F32, COMMRT_MAX, 1, -1, nullptr),
              COMMRT_OK);
    ASSERT_EQ(commrt_send_start(world, in.data(), count, COMMRT_F32, (me + 1) % 4, 0, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_recv_start(world, c.data(), count, COMMRT_F32, (me + 3) % 4, 0, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_all_gather_start(world, in.data(), d.data(), 1, count, COMMRT_F32, -1, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int64_t i = 0; i < count; i += 37) {
      float most = valueAt(0, i), pair = std::max(valueAt(me / 2 * 2, i), valueAt(me / 2 * 2 + 1, i));
      for (int32_t rank = 0; rank < 4; ++rank) {
        most = std::max(most, valueAt(rank, i));
        ASSERT_EQ(d[rank * count + i], valueAt(rank, i));
      }
      ASSERT_EQ(a[i], most);
      ASSERT_EQ(b[i], pair);
      ASSERT_EQ(c[i], valueAt((me + 3) % 4, i));
    }
  }));
}

/// Both send before they receive, each with a token of its own: neither keeps the other one's stream.
TEST(NcclMessages, ExchangeWithoutAList) {
  expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
    int32_t me = commrt_rank(context);
    commrt_group *group = worldGroup(context);
    Memory in(context, filled(me));
    Memory<float> out(context, count, 0);
    commrt_token *sent, *received;
    ASSERT_EQ(commrt_send_start(group, in.data(), count, COMMRT_F32, 1 - me, 3, -1, &sent), COMMRT_OK);
    ASSERT_EQ(commrt_recv_start(group, out.data(), count, COMMRT_F32, 1 - me, 3, -1, &received), COMMRT_OK);
    ASSERT_EQ(finish(received), COMMRT_OK);
    ASSERT_EQ(finish(sent), COMMRT_OK);
    EXPECT_EQ(out.values(), filled(1 - me));
  }));
}

TEST(NcclMessages, TagsHaveOneOrderOnBothSides) {
  auto results = runRanks(2, overNccl(), [](commrt_context *context) {
    bool isSender = commrt_rank(context) == 0;
    commrt_group *group = worldGroup(context);
    Memory<float> data(context, 2, 0);
    commrt_token *tokens[2] = {};
    for (int i = 0; i < 2; ++i)
      if (isSender)
        commrt_send_start(group, data.data() + i, 1, COMMRT_F32, 1, i, -1, &tokens[i]);
      else
        commrt_recv_start(group, data.data() + i, 1, COMMRT_F32, 0, 1 - i, -1, &tokens[i]);
    for (commrt_token *token : tokens)
      finishOnHost(token);
  });
  expectAllFailed(results, COMMRT_ERR_MISMATCH, {"have one order over NCCL", "coalesce them", "tag 1"});
}

TEST(NcclMessages, ToItselfNeedsBothSides) {
  auto results = runRanks(1, overNccl(), [](commrt_context *context) {
    Memory<float> data(context, 2, 0);
    commrt_token *token;
    ASSERT_EQ(commrt_send_start(worldGroup(context), data.data(), 1, COMMRT_F32, 0, 0, -1, &token), COMMRT_OK);
    EXPECT_EQ(commrt_wait(token, nullptr), COMMRT_ERR_UNSUPPORTED);
    commrt_token_release(token);
  });
  expectAllFailed(results, COMMRT_ERR_UNSUPPORTED, {"a message to the own rank whose other side has not been started"});
}

//===- Deadlines -----------------------------------------------------------------------------===//

/// Nobody calls a wait that blocks: the watchdog notices the rank that does not come, and writes the record.
TEST(NcclWatchdog, LateRanksAreNoticedWithoutAWait) {
  auto folder = std::filesystem::temp_directory_path() / ("commrt-record-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  Variable record("COMMRT_FLIGHT_RECORD", (folder / "record").c_str());
  std::atomic<bool> over{false};
  auto results = runRanks(2, overNccl(200), [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> data(context, count, 0);
    if (commrt_rank(context) == 0) {
      commrt_token *token;
      ASSERT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
                COMMRT_OK);
      ASSERT_EQ(commrt_wait(token, nullptr), COMMRT_OK);
      while (commrt_last_error(context, nullptr, 0) == COMMRT_OK)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(finishOnHost(token), COMMRT_ERR_TIMEOUT);
      over = true;
    }
    while (!over)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  expectAllFailed(
      results, COMMRT_ERR_TIMEOUT,
      {"rank 0: waited 200 ms; all_reduce of 1000 x f32 on @world", "waits for rank 1 (has started nothing)"});
  std::ifstream file(folder / "record.0");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("0 all_reduce of 1000 x f32 on @world by sum: "), std::string::npos) << text.str();
  EXPECT_NE(text.str().find("begun and not done"), std::string::npos) << text.str();
  std::filesystem::remove_all(folder);
}

/// A context that ends lets what its streams wait for end, so that its peers get their results.
TEST(NcclWatchdog, WhatWasWaitedForEnds) {
  for (int round = 0; round < 10; ++round)
    expectAllOk(runRanks(2, overNccl(), [](commrt_context *context) {
      commrt_group *group = worldGroup(context);
      Memory in(context, filled(commrt_rank(context)));
      Memory<float> out(context, count, 0);
      commrt_token *token;
      ASSERT_EQ(commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
                COMMRT_OK);
      ASSERT_EQ(finish(token), COMMRT_OK);
      if (commrt_rank(context) == 0)
        ASSERT_EQ(out[7], valueAt(0, 7) + valueAt(1, 7));
    }));
}

/// Two groups whose collectives overlap, many of them in flight.
TEST(NcclStreams, ManyInFlightOnTwoGroups) {
  expectAllOk(runRanks(4, overNccl(), [](commrt_context *context) {
    commrt_group *groups[2] = {worldGroup(context), nullptr};
    int64_t offsets[] = {0, 2, 4}, ranks[] = {0, 2, 1, 3};
    ASSERT_EQ(commrt_group_create(context, "strided", 2, offsets, ranks, &groups[1]), COMMRT_OK);
    constexpr int many = 100;
    std::deque<Memory<int32_t>> data;
    std::vector<commrt_token *> tokens(many);
    for (int i = 0; i < many; ++i) {
      data.emplace_back(context, 1, 1);
      ASSERT_EQ(commrt_all_reduce_start(groups[i % 2], data.back().data(), data.back().data(), 1, COMMRT_I32,
                                        COMMRT_SUM, 1, -1, &tokens[i]),
                COMMRT_OK);
    }
    for (int i = many - 1; i >= 0; --i) {
      ASSERT_EQ(finish(tokens[i]), COMMRT_OK);
      ASSERT_EQ(data[i][0], i % 2 ? 2 : 4);
    }
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// A rank that NCCL loses, a call that fails, one that NCCL puts on its stream only during the abort, an error that
/// NCCL reports later, an abort that hangs: every rank ends with the same error, by the deadline.
TEST(NcclFaults, EndEveryRankByTheDeadline) {
  const char *fault = std::getenv("NCCL_EMU_FAULT");
  if (!fault)
    GTEST_SKIP() << "needs a fault of the emulated library: RuntimeNcclTests.lose and others run it";
  // Long enough for what comes before the collectives, on a machine with other work.
  auto results = runRanks(2, overNccl(900), [](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory in(context, filled(commrt_rank(context)));
    Memory<float> out(context, count, 0);
    for (int i = 0; i < 10; ++i) {
      commrt_token *token = nullptr;
      if (commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token) ||
          finishOnHost(token))
        return;
    }
  });
  // The rank whose call stays in progress and the ones that wait for it have the same deadline.
  std::string kind = std::string(fault).substr(0, 4);
  bool isTimeout = kind == "lose" || kind == "late";
  expectAllFailed(results, isTimeout ? COMMRT_ERR_TIMEOUT : COMMRT_ERR_BACKEND,
                  {isTimeout ? "900 ms" : "failed: ", "on @world"});
}

//===- Communicators -------------------------------------------------------------------------===//

/// A function of the emulated library; null, with a reason printed, over the real one.
template <typename Function> Function *emulatorFunction(const char *name) {
  const char *path = std::getenv("COMMRT_NCCL_LIBRARY");
  void *handle = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  auto *function = handle ? reinterpret_cast<Function *>(dlsym(handle, name)) : nullptr;
  if (!function)
    std::cout << "the library is not emulated: " << name << " is not asked\n";
  return function;
}

/// Every rank adds up 1.
void sumOnes(commrt_context *context) {
  Memory<int32_t> value(context, 1, 1);
  commrt_token *token;
  ASSERT_EQ(commrt_all_reduce_start(worldGroup(context), value.data(), value.data(), 1, COMMRT_I32, COMMRT_SUM, 1, -1,
                                    &token),
            COMMRT_OK);
  ASSERT_EQ(finish(token), COMMRT_OK);
  EXPECT_EQ(value[0], commrt_ranks(context));
  ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
}

/// Above a number of ranks the first communicator is made from several identifiers, which several ranks make.
TEST(NcclComms, ManyRanksAndSeveralIdentifiers) {
  Variable few("COMMRT_NCCL_RANKS_OF_ONE_ID", "2"), each("COMMRT_NCCL_RANKS_PER_ID", "3");
  expectAllOk(runRanks(8, overNccl(), sumOnes));
  const char *version = std::getenv("NCCL_EMU_VERSION");
  bool isOld = version && std::atoi(version) < 22300;
  if (auto *most = emulatorFunction<int()>("emulatorMostIdentifiers"))
    EXPECT_EQ(most(), isOld ? 0 : 3);
}

/// The numbers of thread blocks reach NCCL, and a report names them.
TEST(NcclComms, CtasOfGroups) {
  Variable groups("COMMRT_NCCL_GROUPS", "world:min=2,max=8;*:max=4");
  auto results = runRanks(2, overNccl(), [](commrt_context *context) {
    commrt_group *pairs;
    int64_t offsets[] = {0, 2}, ranks[] = {0, 1};
    sumOnes(context);
    ASSERT_EQ(commrt_group_create(context, "pairs", 1, offsets, ranks, &pairs), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    Memory<int32_t> value(context, 1, 1);
    commrt_token *token = nullptr;
    if (commrt_rank(context) == 0 && !commrt_all_reduce_start(worldGroup(context), value.data(), value.data(), 1,
                                                              COMMRT_I32, COMMRT_SUM, 1, -1, &token)) {
      EXPECT_EQ(commrt_wait_host(token, 100'000'000), COMMRT_ERR_TIMEOUT);
      commrt_token_release(token);
    }
    while (commrt_last_error(context, nullptr, 0) == COMMRT_OK)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  expectAllFailed(results, COMMRT_ERR_TIMEOUT, {"; @world has 2 to 8 CTAs; @pairs has at most 4 CTAs"});
  int least = 0, most = 0, policy = 0;
  if (auto *ctasOf = emulatorFunction<int(const char *, int *, int *, int *)>("emulatorCtasOf")) {
    for (const char *name : {"world", "world.messages", "pairs"}) {
      ASSERT_EQ(ctasOf(name, &least, &most, &policy), 1) << name;
      EXPECT_EQ(most, name == std::string("pairs") ? 4 : 8);
      EXPECT_EQ(least, name == std::string("pairs") ? INT_MIN : 2);
      EXPECT_EQ(policy, INT_MIN);
    }
  }
}

TEST(NcclComms, BadOptionsAreRefused) {
  Variable groups("COMMRT_NCCL_GROUPS", "world:max=0");
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl";
  commrt_job *job = nullptr;
  char message[512];
  EXPECT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_ERR_INVALID);
  EXPECT_STREQ(message, "nccl: COMMRT_NCCL_GROUPS: expected min=N, max=N (1 to 64) or policy=NAME, got 'max=0'");
}

/// Before 2.26 NCCL does not keep the order of launches: one group is in flight at a time.
TEST(NcclStreams, OldLibrariesRunOneGroupAfterTheOther) {
  const char *version = std::getenv("NCCL_EMU_VERSION");
  if (!version || std::string(version) != "21900")
    GTEST_SKIP() << "needs an old library: RuntimeNcclTests.old runs it with NCCL_EMU_VERSION=21900";
  expectAllOk(runRanks(2, overNccl(20000, "delay@0:rank=1:ms=50"), [](commrt_context *context) {
    commrt_group *first = worldGroup(context, "first"), *second = worldGroup(context, "second");
    Memory<float> a(context, 1, 1), b(context, 1, 1);
    commrt_token *slow, *quick;
    ASSERT_EQ(commrt_all_reduce_start(first, a.data(), a.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1, &slow), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(second, b.data(), b.data(), 1, COMMRT_F32, COMMRT_SUM, 1, -1, &quick), COMMRT_OK);
    ASSERT_EQ(commrt_wait_host(quick, -1), COMMRT_OK);
    int32_t done = 0;
    ASSERT_EQ(commrt_test(slow, &done), COMMRT_OK);
    EXPECT_EQ(done, 1);
    for (commrt_token *token : {slow, quick})
      ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}
} // namespace
