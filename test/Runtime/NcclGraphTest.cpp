//===- NcclGraphTest.cpp - Captured programs --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A random program is run call by call, and as one call, a capture, and launches of the graph: the bits of its memory
// have to be equal. What a capture cannot hold is refused with one message that says what it was.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>

using namespace commsched::test;

namespace {
/// Ranks that are threads may capture only where a test asks for it: the emulated devices do not block each other.
struct GraphThreads {
  GraphThreads() { setenv("COMMRT_NCCL_GRAPH_THREADS", "1", 1); }
  ~GraphThreads() { unsetenv("COMMRT_NCCL_GRAPH_THREADS"); }
};

RunOptions overNccl(int64_t timeoutMs = 20000, const char *fault = nullptr) {
  RunOptions how;
  how.backend = "nccl";
  how.timeoutMs = timeoutMs;
  how.fault = fault;
  return how;
}

//===- A random program ----------------------------------------------------------------------===//

constexpr int64_t elements = 240; ///< of each buffer, per member; divisible by 2, 3 and 4
constexpr int buffers = 5;

/// addOne by clang 22 for compute capability 7.0, without contraction.
constexpr char addOnePtx[] = R"(.version 7.5
.target sm_70
.address_size 64
.visible .entry addOne(.param .u64 data, .param .u64 count)
{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.b64 %rd2, [count];
  ld.param.b64 %rd1, [data];
  cvta.to.global.u64 %rd3, %rd1;
  setp.lt.s64 %p1, %rd2, 1;
  @%p1 bra $done;
$next:
  ld.global.b32 %r1, [%rd3];
  mul.rn.f32 %r2, %r1, 0f3F8147AE;
  add.rn.f32 %r3, %r2, 0f3E99999A;
  st.global.b32 [%rd3], %r3;
  add.s64 %rd3, %rd3, 4;
  add.s64 %rd2, %rd2, -1;
  setp.ne.s64 %p2, %rd2, 0;
  @%p2 bra $next;
$done:
  ret;
}
)";

void addOne(void *const *arguments, const uint32_t *, const uint32_t *) {
  float *data = *static_cast<float *const *>(arguments[0]);
  int64_t count = *static_cast<const int64_t *>(arguments[1]);
  for (int64_t i = 0; i < count; ++i)
    data[i] = data[i] * 1.01f + 0.3f; // no fixed point nearby
}

/// The state of one rank. An iteration reads and writes all of it, so that it differs from the one before.
struct Program {
  commrt_context *context;
  commrt_group *world, *pairs = nullptr;
  commrt_stream *streams[2] = {};
  commrt_image *image = nullptr;
  std::deque<Memory<float>> state;

  explicit Program(commrt_context *context) : context(context), world(worldGroup(context)) {
    std::vector<int64_t> offsets = {0}, ranks;
    for (int64_t rank = 0; rank < commrt_ranks(context); ++rank) {
      ranks.push_back(rank);
      if (rank % 2 == 1 || rank + 1 == commrt_ranks(context))
        offsets.push_back(rank + 1);
    }
    EXPECT_EQ(commrt_group_create(context, "pairs", static_cast<int64_t>(offsets.size()) - 1, offsets.data(),
                                  ranks.data(), &pairs),
              COMMRT_OK);
    for (int lane = 0; lane < 2; ++lane)
      EXPECT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, lane, &streams[lane]), COMMRT_OK);
    static const int64_t sizes[] = {sizeof(void *), sizeof(int64_t)};
    static const commrt_image_kernel kernels[] = {{"addOne", sizes, 2, addOne}};
    const commrt_image_info info = {sizeof(info), "graphs", addOnePtx, sizeof(addOnePtx), kernels, 1};
    EXPECT_EQ(commrt_image_load(context, &info, &image), COMMRT_OK);
    for (int i = 0; i < buffers; ++i) {
      std::vector<float> values(size());
      for (int64_t k = 0; k < size(); ++k)
        values[k] = static_cast<float>((commrt_rank(context) * 37 + i * 5 + k * 11) % 101 - 50) / 7;
      state.emplace_back(context, std::move(values));
    }
  }
  int64_t size() const { return elements * commrt_ranks(context); }
  float *at(int i) { return state[i].data(); }

  void kernel(float *data, commrt_stream *stream) {
    int64_t count = size();
    void *const arguments[] = {static_cast<void *>(&data), &count};
    EXPECT_EQ(commrt_kernel_launch(image, "addOne", 1, 1, 1, 1, 1, 1, 0, arguments, stream), COMMRT_OK);
  }
  commrt_token *start(std::mt19937 &random, const float *in, float *out, bool isListed);
  void iterate(uint32_t seed);
};

/// One of the collectives; what it writes is a buffer of its own.
commrt_token *Program::start(std::mt19937 &random, const float *in, float *out, bool isListed) {
  commrt_token *token = nullptr, **result = isListed ? nullptr : &token;
  commrt_group *group = random() % 2 ? world : pairs;
  int64_t n = commrt_group_size(group), block = elements / (n == 3 ? 3 : 4);
  int32_t me = commrt_group_rank(group), status = COMMRT_OK;
  auto next = static_cast<int32_t>((me + 1) % n), previous = static_cast<int32_t>((me + n - 1) % n);
  std::vector<int64_t> counts(n, 20), pairsOf;
  for (int64_t i = 0; i < n; ++i)
    pairsOf.insert(pairsOf.end(), {i, (i + 1) % n});
  switch (random() % 12) {
  case 0:
    status = commrt_all_gather_start(group, in, out, 2, block / 2, COMMRT_F32, -1, result);
    break;
  case 1:
    status = commrt_reduce_scatter_start(group, in, out, 1, block, COMMRT_F32, COMMRT_SUM, 1, -1, result);
    break;
  case 2: // on the host, where 16-bit averages are exact
    status = commrt_all_reduce_start(group, in, out, elements, COMMRT_BF16, COMMRT_AVG, 1, -1, result);
    break;
  case 3:
    status = commrt_all_to_all_start(group, in, out, 2, 1, block, COMMRT_F32, -1, result);
    break;
  case 4:
    status = commrt_all_to_all_v_start(group, in, counts.data(), out, counts.data(), 1, 2, COMMRT_F32, -1, result);
    break;
  case 5:
    status = commrt_broadcast_start(group, in, out, elements, COMMRT_F32, static_cast<int32_t>(n - 1), -1, result);
    break;
  case 6:
    status = commrt_reduce_start(group, in, out, elements, COMMRT_F32, COMMRT_MAX, 1, 0, -1, result);
    break;
  case 7:
    status = commrt_gather_start(group, in, out, 1, block, COMMRT_F32, 0, -1, result);
    break;
  case 8:
    status = commrt_scatter_start(group, in, out, 1, block, COMMRT_F32, 0, -1, result);
    break;
  case 9:
    status = commrt_permute_start(group, in, out, elements, COMMRT_F32, pairsOf.data(), n, -1, result);
    break;
  case 10:
    status = commrt_all_reduce_start(group, in, out, elements, COMMRT_F32, COMMRT_SCALED_SUM, 0.3, -1, result);
    break;
  default: { // messages around a ring
    commrt_token *sent = nullptr;
    EXPECT_EQ(commrt_send_start(group, in, elements, COMMRT_F32, next, 0, -1, isListed ? nullptr : &sent), COMMRT_OK);
    status = commrt_recv_start(group, out, elements, COMMRT_F32, previous, 0, -1, result);
    commrt_token_release(sent);
  }
  }
  EXPECT_EQ(status, COMMRT_OK);
  return token;
}

/// Collectives in flight beside kernels on two streams, with buffers that come and go.
void Program::iterate(uint32_t seed) {
  std::mt19937 random(seed);
  int64_t mark = commrt_mark(context), bytes = size() * 4;
  for (int round = 0; round < 6; ++round) {
    commrt_stream *stream = streams[random() % 2], *other = streams[random() % 2];
    EXPECT_EQ(commrt_set_stream(context, stream), COMMRT_OK);
    int from = static_cast<int>(random() % buffers), to = (from + 1) % buffers, third = (from + 2) % buffers;
    void *temporary = nullptr;
    EXPECT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &temporary), COMMRT_OK);
    EXPECT_EQ(commrt_copy(context, temporary, at(from), bytes, COMMRT_COPY_ON_DEVICE, stream), COMMRT_OK);
    kernel(static_cast<float *>(temporary), stream);
    commrt_token *token = nullptr, *second = nullptr;
    bool isList = random() % 3 == 0;
    if (isList)
      EXPECT_EQ(commrt_coalesce_begin(context), COMMRT_OK);
    token = start(random, static_cast<float *>(temporary), at(to), isList);
    second = isList ? start(random, static_cast<float *>(temporary), at(third), true) : nullptr;
    if (isList)
      EXPECT_EQ(commrt_coalesce_end(context, &token), COMMRT_OK);
    if (random() % 2)
      EXPECT_EQ(commrt_free(context, temporary), COMMRT_OK); // the collective still reads it
    commrt_event *event = nullptr;
    EXPECT_EQ(commrt_event_record(context, stream, &event), COMMRT_OK);
    if (random() % 2) {
      kernel(at((from + 3) % buffers), other);
    } else { // with a workspace of its own
      EXPECT_EQ(commrt_set_stream(context, other), COMMRT_OK);
      void *operands[] = {at((from + 3) % buffers), at((from + 4) % buffers)};
      const int64_t meta[] = {COMMRT_F32, 0, 1, size(), COMMRT_F32, 3, 1, size(), 0};
      const char *names[] = {"aten.relu", "opaque"};
      EXPECT_EQ(commrt_compute(context, names[random() % 2], 2, operands, meta, 0), COMMRT_OK);
      void *factors[] = {at(from), at((from + 3) % buffers), at((from + 4) % buffers)};
      const int64_t matrices[] = {COMMRT_F32, 0, 2, 12, 10, COMMRT_F32, 0, 2, 10, 20, COMMRT_F32, 3, 2, 12, 20, 0};
      if (random() % 2)
        EXPECT_EQ(commrt_compute(context, "aten.mm", 3, factors, matrices, 0), COMMRT_OK);
    }
    EXPECT_EQ(commrt_event_await(context, other, event), COMMRT_OK); // covers the collective, too
    kernel(at(to), other);
    EXPECT_EQ(commrt_wait(token, stream), COMMRT_OK);
    commrt_token_release(second);
    EXPECT_EQ(commrt_event_record(context, other, &event), COMMRT_OK);
    EXPECT_EQ(commrt_event_await(context, streams[0], event), COMMRT_OK);
    EXPECT_EQ(commrt_event_await(context, streams[1], event), COMMRT_OK);
  }
  for (int i = 0; i < buffers; ++i)
    kernel(at(i), streams[0]);
  EXPECT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
  EXPECT_EQ(commrt_release_since(context, mark, nullptr, 0), COMMRT_OK);
}

std::vector<float> contents(Program &program) {
  std::vector<float> all;
  for (Memory<float> &buffer : program.state)
    all.insert(all.end(), buffer.values().begin(), buffer.values().end());
  return all;
}

/// The memory after some iterations: all of them call by call, or the second one captured and launched.
std::vector<float> play(commrt_context *context, uint32_t seed, int iterations, bool isCaptured) {
  Program program(context);
  EXPECT_EQ(commrt_program_begin(context, seed, nullptr, 0), COMMRT_OK);
  program.iterate(seed);
  commrt_graph *graph = nullptr;
  if (isCaptured) {
    EXPECT_EQ(commrt_graph_begin(context), COMMRT_OK);
    program.iterate(seed);
    EXPECT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
  }
  for (int i = 1; i < iterations && commrt_last_error(context, nullptr, 0) == COMMRT_OK; ++i)
    if (isCaptured)
      EXPECT_EQ(commrt_graph_launch(graph), COMMRT_OK);
    else
      program.iterate(seed);
  std::vector<float> result = contents(program);
  EXPECT_EQ(commrt_program_end(context), COMMRT_OK);
  EXPECT_EQ(commrt_graph_destroy(graph), COMMRT_OK);
  return result;
}

bool isSame(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Captured programs have the bits of those that run call by call, and later iterations differ from earlier ones.
void compare(commrt_context *context, uint32_t seed) {
  std::vector<float> three = play(context, seed, 3, false), four = play(context, seed, 4, false);
  std::vector<float> captured = play(context, seed, 4, true);
  EXPECT_FALSE(isSame(three, four)) << "seed " << seed;
  EXPECT_TRUE(isSame(four, captured)) << "rank " << commrt_rank(context) << ", seed " << seed;
}

TEST(NcclGraph, LaunchesHaveTheBitsOfCalls) {
  GraphThreads allowed;
  for (int32_t ranks : {1, 2, 3, 4})
    for (uint32_t seed = 1; seed <= 4; ++seed)
      expectAllOk(runRanks(ranks, overNccl(), [&](commrt_context *context) { compare(context, seed); }));
}

/// The same where each rank is a process: under a launcher.
TEST(NcclGraph, LaunchesHaveTheBitsOfCallsInProcesses) {
  commrt_launch launch = {};
  launch.struct_size = sizeof(launch);
  char message[512];
  ASSERT_EQ(commrt_launch_read(&launch, message, sizeof(message)), COMMRT_OK) << message;
  if (launch.rank < 0)
    GTEST_SKIP() << "needs a launcher: RuntimeNcclTests.processes starts it";
  commrt_options options;
  commrt_options_init(&options);
  options.backend = "nccl";
  options.ranks = 0;
  options.timeout_ns = 300'000'000'000; // only a hang reaches it
  commrt_job *job;
  ASSERT_EQ(commrt_job_create(&options, &job, message, sizeof(message)), COMMRT_OK) << message;
  commrt_context *context;
  ASSERT_EQ(commrt_context_create(job, commrt_job_local_rank(job), &context), COMMRT_OK);
  for (uint32_t seed = 1; seed <= 6; ++seed)
    compare(context, seed);
  EXPECT_EQ(commrt_last_error(context, message, sizeof(message)), COMMRT_OK) << message;
  EXPECT_EQ(commrt_context_destroy(context), COMMRT_OK);
  EXPECT_EQ(commrt_job_destroy(job), COMMRT_OK);
}

//===- Order ---------------------------------------------------------------------------------===//

/// Late enough that a stream which does not wait for it has gone on.
void addOneLate(void *const *arguments, const uint32_t *grid, const uint32_t *block) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  addOne(arguments, grid, block);
}

/// A launch comes after what is on the other compute streams, and before what is put there next; a stream that is made
/// in a capture takes part in it.
TEST(NcclGraph, LaunchesAreOrderedWithAllStreams) {
  expectAllOk(runRanks(1, overNccl(), [](commrt_context *context) {
    constexpr int64_t size = 100, bytes = size * 4;
    Memory<float> first(context, size, 0), middle(context, size, 0), last(context, size, 0);
    const int64_t sizes[] = {sizeof(void *), sizeof(int64_t)};
    const commrt_image_kernel kernels[] = {{"addOne", sizes, 2, addOneLate}};
    const commrt_image_info info = {sizeof(info), "late", addOnePtx, sizeof(addOnePtx), kernels, 1};
    commrt_image *image = nullptr;
    ASSERT_EQ(commrt_image_load(context, &info, &image), COMMRT_OK);
    auto addLate = [&](Memory<float> &to, commrt_stream *stream) {
      float *data = to.data();
      int64_t count = size;
      void *const arguments[] = {static_cast<void *>(&data), &count};
      ASSERT_EQ(commrt_kernel_launch(image, "addOne", 1, 1, 1, 1, 1, 1, 0, arguments, stream), COMMRT_OK);
    };
    auto copy = [&](Memory<float> &to, Memory<float> &from, commrt_stream *stream) {
      ASSERT_EQ(commrt_copy(context, to.data(), from.data(), bytes, COMMRT_COPY_ON_DEVICE, stream), COMMRT_OK);
    };
    commrt_stream *other, *made;
    commrt_event *event;
    commrt_graph *graph;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &other), COMMRT_OK);
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    copy(middle, first, nullptr);
    ASSERT_EQ(commrt_event_record(context, nullptr, &event), COMMRT_OK);
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 2, &made), COMMRT_OK);
    ASSERT_EQ(commrt_event_await(context, made, event), COMMRT_OK);
    addLate(middle, made); // joined by the end of the capture alone
    ASSERT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
    float expected = 0;
    for (int i = 0; i < 3; ++i) {
      addLate(first, other);
      ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
      copy(last, middle, other);
      expected = expected * 1.01f + 0.3f;
    }
    ASSERT_EQ(commrt_copy(context, middle.data(), last.data(), bytes, COMMRT_COPY_ON_DEVICE, other), COMMRT_OK);
    std::vector<float> result(size);
    ASSERT_EQ(commrt_copy(context, result.data(), last.data(), bytes, COMMRT_COPY_FROM_DEVICE, other), COMMRT_OK);
    EXPECT_EQ(result[7], expected * 1.01f + 0.3f);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

/// Starts that move nothing order the streams of a capture, too: what is copied behind their waits is the sum, which
/// rank 1 lets end only after rank 0 has launched its graph.
TEST(NcclGraph, StartsThatMoveNothingOrderStreams) {
  GraphThreads threads;
  std::atomic<bool> isLaunched = false;
  expectAllOk(runRanks(2, overNccl(), [&](commrt_context *context) {
    constexpr int64_t size = 100;
    const int64_t alone[] = {0, 1, 2}, ranks[] = {0, 1}, last[] = {0, 1}, one[] = {1};
    commrt_group *world = worldGroup(context), *own = nullptr, *other = nullptr;
    ASSERT_EQ(commrt_group_create(context, "own", 2, alone, ranks, &own), COMMRT_OK);
    ASSERT_EQ(commrt_group_create(context, "other", 1, last, one, &other), COMMRT_OK);
    Memory<float> in(context, size, 1), out(context, size, 0), copies[] = {{context, size, 0}, {context, size, 0}};
    commrt_stream *lane[3];
    for (int32_t i = 0; i < 3; ++i)
      ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, i, &lane[i]), COMMRT_OK);
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    commrt_token *late, *empty[2];
    ASSERT_EQ(commrt_set_stream(context, lane[1]), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(world, in.data(), out.data(), size, COMMRT_F32, COMMRT_SUM, 1, -1, &late),
              COMMRT_OK);
    ASSERT_EQ(commrt_wait(late, lane[1]), COMMRT_OK);
    ASSERT_EQ(commrt_all_reduce_start(world, in.data(), in.data(), 0, COMMRT_F32, COMMRT_SUM, 1, -1, &empty[0]),
              COMMRT_OK);
    ASSERT_EQ(commrt_barrier_start(other, -1, &empty[1]), COMMRT_OK);
    ASSERT_EQ(commrt_set_stream(context, nullptr), COMMRT_OK);
    for (int i = 0; i < 2; ++i) {
      commrt_stream *reader = lane[2 * i];
      ASSERT_EQ(commrt_wait(empty[i], reader), COMMRT_OK);
      // Rank 1 is in the other group, whose barrier is its own.
      ASSERT_EQ(commrt_copy(context, copies[i].data(), out.data(), size * 4, COMMRT_COPY_ON_DEVICE, reader), COMMRT_OK);
    }
    commrt_graph *graph;
    ASSERT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
    while (commrt_rank(context) == 1 && !isLaunched)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
    if (commrt_rank(context) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    isLaunched = true;
    for (Memory<float> &copy : copies)
      EXPECT_EQ(copy[7], 2);
    for (commrt_token *token : {late, empty[0], empty[1]})
      commrt_token_release(token);
    ASSERT_EQ(commrt_graph_destroy(graph), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}

//===- Memory --------------------------------------------------------------------------------===//

/// What is allocated in a capture keeps its address, outlives the graph while the program has it, and is used again
/// within the capture once it was given back.
TEST(NcclGraph, MemoryOfTheGraph) {
  expectAllOk(runRanks(1, overNccl(), [](commrt_context *context) {
    constexpr int64_t bytes = 4096;
    Memory<float> in(context, bytes / 4, 5);
    float *from = in.data();
    commrt_graph *graph;
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    void *first, *second, *result;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &first), COMMRT_OK);
    ASSERT_EQ(commrt_copy(context, first, from, bytes, COMMRT_COPY_ON_DEVICE, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &result), COMMRT_OK);
    ASSERT_EQ(commrt_copy(context, result, first, bytes, COMMRT_COPY_ON_DEVICE, nullptr), COMMRT_OK);
    ASSERT_EQ(commrt_free(context, first), COMMRT_OK);
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, bytes, &second), COMMRT_OK);
    EXPECT_EQ(first, second);
    ASSERT_EQ(commrt_free(context, second), COMMRT_OK);
    ASSERT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
    ASSERT_EQ(commrt_graph_destroy(graph), COMMRT_OK);
    std::vector<float> values(bytes / 4);
    ASSERT_EQ(commrt_copy(context, values.data(), result, bytes, COMMRT_COPY_FROM_DEVICE, nullptr), COMMRT_OK);
    EXPECT_EQ(values[17], 5);
    ASSERT_EQ(commrt_free(context, result), COMMRT_OK);
  }));
}

/// Contexts that end with a graph, in a capture, or right after a launch.
TEST(NcclGraph, ContextsMayEndAtAnyTime) {
  GraphThreads allowed;
  for (int when = 0; when < 3; ++when)
    runRanks(2, overNccl(), [&](commrt_context *context) {
      auto program = std::make_unique<Program>(context);
      program->iterate(3);
      ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
      program->iterate(3);
      if (when > 0) {
        commrt_graph *graph = nullptr;
        EXPECT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
        for (int i = 0; when == 2 && i < 3; ++i)
          EXPECT_EQ(commrt_graph_launch(graph), COMMRT_OK);
      }
      for (Memory<float> &buffer : program->state)
        buffer.data();
    });
}

//===- Refusals ------------------------------------------------------------------------------===//

/// No kernel of the device carries computations out.
struct WithoutKernels {
  WithoutKernels() { setenv("COMMRT_DEVICE_KERNELS", "off", 1); }
  ~WithoutKernels() { unsetenv("COMMRT_DEVICE_KERNELS"); }
};

/// What a rank does in a capture, and what the message says.
struct Refusal {
  const char *text;
  std::function<void(commrt_context *, commrt_group *, Memory<float> &)> body;
};

commrt_token *startSum(commrt_group *group, Memory<float> &data) {
  commrt_token *token = nullptr;
  EXPECT_EQ(commrt_all_reduce_start(group, data.data(), data.data(), 8, COMMRT_F32, COMMRT_SUM, 1, 0, &token),
            COMMRT_OK);
  return token;
}

/// A start in a capture; null if another rank, which was faster, was refused already.
commrt_token *tryStartSum(commrt_group *group, Memory<float> &data) {
  commrt_token *token = nullptr;
  int32_t status = commrt_all_reduce_start(group, data.data(), data.data(), 8, COMMRT_F32, COMMRT_SUM, 1, 0, &token);
  EXPECT_TRUE(status == COMMRT_OK || status == COMMRT_ERR_UNSUPPORTED) << status;
  return status == COMMRT_OK ? token : nullptr;
}

const Refusal refusals[] = {
    {"a wait of the host for all_reduce of 8 x f32 on @world by sum (site 0, step.mlir:7:3)",
     [](commrt_context *, commrt_group *group, Memory<float> &data) {
       if (commrt_token *token = tryStartSum(group, data))
         commrt_wait_host(token, -1);
     }},
    {"a question of the host whether there is the result of all_reduce of 8 x f32 on @world by sum (site 0, step.mlir",
     [](commrt_context *, commrt_group *group, Memory<float> &data) {
       int32_t done;
       if (commrt_token *token = tryStartSum(group, data))
         commrt_test(token, &done);
     }},
    {"a question of the host for an event",
     [](commrt_context *context, commrt_group *, Memory<float> &) {
       commrt_event *event;
       int32_t done;
       if (commrt_event_record(context, nullptr, &event) == COMMRT_OK)
         commrt_event_test(event, &done);
     }},
    {"the host reads 32 bytes of the device's memory",
     [](commrt_context *, commrt_group *group, Memory<float> &data) {
       commrt_token *token = tryStartSum(group, data);
       if (!token)
         return;
       finish(token);
       std::vector<float> to(8);
       commrt_context *context = commrt_current();
       commrt_copy(context, to.data(), data.data(), 32, COMMRT_COPY_FROM_DEVICE, nullptr);
     }},
    {"the host writes 4 bytes of the device's memory",
     [](commrt_context *context, commrt_group *, Memory<float> &data) {
       float value = 1;
       commrt_copy(context, data.data(), &value, 4, COMMRT_COPY_TO_DEVICE, nullptr);
     }},
    {"computation 'unknown', which the host carries out",
     [](commrt_context *context, commrt_group *, Memory<float> &data) {
       void *operands[] = {data.data()};
       const int64_t meta[] = {COMMRT_F32, 1, 1, 8, 0};
       commrt_compute(context, "unknown", 1, operands, meta, 0);
     }},
    {"a new group @late",
     [](commrt_context *context, commrt_group *, Memory<float> &) { worldGroup(context, "late"); }},
    {"a new symmetric buffer of 64 bytes",
     [](commrt_context *context, commrt_group *, Memory<float> &) {
       void *data;
       commrt_alloc(context, COMMRT_BUFFER_SYMMETRIC, 64, &data);
     }},
    {"the end of the program",
     [](commrt_context *context, commrt_group *, Memory<float> &) { commrt_program_end(context); }},
    {"a capture within a capture",
     [](commrt_context *context, commrt_group *, Memory<float> &) { commrt_graph_begin(context); }},
};

TEST(NcclGraph, WhatNeedsTheHostIsRefused) {
  GraphThreads allowed;
  WithoutKernels without;
  const commrt_site sites[] = {{COMMRT_ALL_REDUCE, COMMRT_F32, 8, "world", "step.mlir:7:3", 0}};
  for (const Refusal &refusal : refusals) {
    auto results = runRanks(2, overNccl(), [&](commrt_context *context) {
      commrt_make_current(context);
      commrt_group *group = worldGroup(context);
      Memory<float> data(context, 8, 1);
      ASSERT_EQ(commrt_program_begin(context, 1, sites, 1), COMMRT_OK);
      finish(startSum(group, data));
      int32_t begun = commrt_graph_begin(context);
      if (begun == COMMRT_OK)
        refusal.body(context, group, data);
      commrt_graph *graph = nullptr;
      EXPECT_EQ(commrt_graph_end(context, &graph), COMMRT_ERR_UNSUPPORTED);
      EXPECT_EQ(graph, nullptr);
    });
    expectAllFailed(results, COMMRT_ERR_UNSUPPORTED, {"cannot be captured into a graph: ", refusal.text});
  }
}

/// A buffer that was made before the capture cannot be given back in it.
TEST(NcclGraph, OlderBuffersStay) {
  auto results = runRanks(1, overNccl(), [&](commrt_context *context) {
    void *older;
    commrt_graph *graph;
    ASSERT_EQ(commrt_alloc(context, COMMRT_BUFFER_PLAIN, 64, &older), COMMRT_OK);
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    commrt_free(context, older);
    EXPECT_EQ(commrt_graph_end(context, &graph), COMMRT_ERR_UNSUPPORTED);
  });
  expectAllFailed(results, COMMRT_ERR_UNSUPPORTED, {"cannot be captured", "made before the capture"});
}

/// Several devices in one process, and backends without graphs.
TEST(NcclGraph, NeedsAProcessPerDevice) {
  auto begin = [](commrt_context *context) { EXPECT_EQ(commrt_graph_begin(context), COMMRT_ERR_UNSUPPORTED); };
  expectAllFailed(runRanks(2, overNccl(), begin), COMMRT_ERR_UNSUPPORTED,
                  {"several GPUs in one process cannot be captured", "start one process per GPU"});
  RunOptions onThreads;
  onThreads.backend = "threads";
  expectAllFailed(runRanks(1, onThreads, begin), COMMRT_ERR_UNSUPPORTED, {"backend 'threads' captures no graphs"});
  expectAllFailed(runRanks(1, onThreads,
                           [](commrt_context *context) {
                             commrt_graph *graph;
                             EXPECT_EQ(commrt_graph_end(context, &graph), COMMRT_ERR_INVALID);
                           }),
                  COMMRT_ERR_INVALID, {"commrt_graph_end without a begin"});
}

/// A rank that does not launch: the deadline of the others' launch.
TEST(NcclGraph, EachLaunchHasADeadline) {
  GraphThreads allowed;
  // Making communicators has the same deadline, which a busy machine has to meet.
  auto results = runRanks(2, overNccl(4000), [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> data(context, 8, 1);
    commrt_graph *graph;
    finish(startSum(group, data));
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    finish(startSum(group, data));
    ASSERT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
    ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
    if (commrt_rank(context) == 0) {
      ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
    }
    while (commrt_last_error(context, nullptr, 0) == COMMRT_OK)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  expectAllFailed(results, COMMRT_ERR_TIMEOUT,
                  {"rank 0: waited 4000 ms; launch 2 of a graph of 1 starts is not complete"});
}

/// Tests that products, named and opaque computations are captured, with the memory that they take.
TEST(NcclGraphs, ComputationsOfTheRuntime) {
  constexpr int64_t size = 8;
  expectAllOk(runRanks(1, overNccl(), [](commrt_context *context) {
    std::vector<float> values(size * size);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i % 7) / 8;
    Memory left(context, values), right(context, values);
    Memory<float> product(context, size * size, 0), hash(context, size * size, 0);
    auto compute = [&](const char *name, const std::vector<float *> &operands) {
      std::vector<int64_t> meta;
      std::vector<void *> pointers(operands.begin(), operands.end());
      for (size_t i = 0; i < operands.size(); ++i)
        meta.insert(meta.end(), {COMMRT_F32, i + 1 == operands.size() ? 3 : 0, 2, size, size});
      meta.push_back(0);
      EXPECT_EQ(commrt_compute(context, name, static_cast<int64_t>(operands.size()), pointers.data(), meta.data(), 0),
                COMMRT_OK);
    };
    float *at[] = {left.data(), right.data(), product.data(), hash.data()};
    auto iterate = [&] { // each iteration reads what the last one left
      compute("mm", {at[0], at[1], at[2]});
      compute("opaque", {at[2], at[0], at[3]});
      compute("add", {at[3], at[2], at[0]});
    };
    for (int i = 0; i < 4; ++i)
      iterate();
    left.data();
    std::vector<float> eager = left.values();
    ASSERT_EQ(commrt_copy(context, at[0], values.data(), size * size * 4, COMMRT_COPY_TO_DEVICE, nullptr), COMMRT_OK);
    iterate();
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    iterate();
    commrt_graph *graph = nullptr;
    ASSERT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
    left.data();
    EXPECT_EQ(left.values(), eager);
    EXPECT_NE(eager, values);
    ASSERT_EQ(commrt_graph_destroy(graph), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
  }));
}
} // namespace
