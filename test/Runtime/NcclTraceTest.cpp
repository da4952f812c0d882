//===- NcclTraceTest.cpp - Times on the device ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The emulated device has a virtual clock on which each operation takes a time by a formula. The trace has to give
// exactly these times, on one clock for all ranks. The tests know the formulas' defaults, and are left out where the
// environment changes them or where the libraries are real.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <dlfcn.h>
#include <mutex>

using namespace commsched::test;

namespace {
constexpr int64_t count = 30000, bytes = count * 4;

/// The emulator's formulas (Durations.cpp, NcclRun.cpp).
constexpr int64_t copyNs = 2000 + bytes * 1000 / 1500000;
constexpr int64_t hostCopyNs = 2000 + bytes * 1000 / 25000, kernelNs = 2000;
constexpr int64_t reduceNs = 10000 + 2 * bytes * 1000 / 300000;
constexpr int64_t barrierNs = 10000;

/// Why the times are not those of the formulas; null if they are.
const char *whyNotModelled() {
  const char *library = std::getenv("COMMRT_CUDART_LIBRARY");
  void *handle = library ? dlopen(library, RTLD_LAZY) : nullptr;
  bool isEmulated = handle && dlsym(handle, "emulatorTakes");
  return isEmulated ? nullptr : "needs the virtual clock of the emulated device";
}

struct Record {
  commrt_trace_record fields;
  std::string name; ///< the record's lives as long as its context
  int64_t lastBegin = 0;
  int32_t lastStatus = 0;
  int64_t duration() const { return fields.end_ns - fields.begin_ns; }
};

std::vector<Record> readRecords(commrt_context *context) {
  std::vector<Record> records(commrt_trace_size(context));
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(commrt_trace_get(context, static_cast<int64_t>(i), &records[i].fields), COMMRT_OK);
    records[i].name = records[i].fields.name;
    records[i].lastStatus = commrt_trace_last_begin(context, static_cast<int64_t>(i), &records[i].lastBegin);
  }
  return records;
}

std::vector<Record> ofKind(const std::vector<Record> &all, int32_t kind) {
  std::vector<Record> result;
  for (const Record &record : all)
    if (record.fields.kind == kind)
      result.push_back(record);
  return result;
}

RunOptions traced(const char *fault = nullptr) {
  RunOptions how;
  how.backend = "nccl";
  how.trace = true;
  how.poison = false;
  how.fault = fault;
  return how;
}

/// A copy on the device: a computation whose duration is known.
void compute(commrt_context *context, Memory<float> &to, Memory<float> &from, commrt_stream *stream = nullptr) {
  ASSERT_EQ(commrt_copy(context, to.data(), from.data(), bytes, COMMRT_COPY_ON_DEVICE, stream), COMMRT_OK);
}

/// Rank r computes 1 + 2 r copies, starts a sum, computes three more, and waits.
void step(commrt_context *context, commrt_group *group, Memory<float> &in, Memory<float> &out, Memory<float> &other) {
  for (int32_t i = 0; i < 1 + 2 * commrt_rank(context); ++i)
    compute(context, in, other);
  commrt_token *token;
  ASSERT_EQ(commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, 0, &token),
            COMMRT_OK);
  for (int i = 0; i < 3; ++i)
    compute(context, other, in);
  ASSERT_EQ(finish(token), COMMRT_OK);
  ASSERT_EQ(commrt_trace_mark(context), COMMRT_OK);
}

constexpr commrt_site sites[] = {{COMMRT_ALL_REDUCE, COMMRT_F32, count, "world", "step.mlir:3:8", 0}};

TEST(NcclTrace, TimesAreThoseOfTheDevice) {
  if (const char *why = whyNotModelled())
    GTEST_SKIP() << why;
  constexpr int32_t ranks = 3, calls = 4;
  std::vector<std::vector<Record>> all(ranks);
  expectAllOk(runRanks(ranks, traced(), [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> in(context, count, 1), out(context, count, 0), other(context, count, 2);
    ASSERT_EQ(commrt_program_begin(context, 1, sites, 1), COMMRT_OK);
    ASSERT_EQ(commrt_trace_mark(context), COMMRT_OK);
    for (int i = 0; i < calls; ++i)
      step(context, group, in, out, other);
    int64_t early = 0;
    EXPECT_EQ(commrt_trace_last_begin(context, 1, &early), COMMRT_ERR_UNSUPPORTED);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    EXPECT_EQ(commrt_trace_clock_error_ns(context), commrt_rank(context) == 0 ? 0 : barrierNs);
    all[commrt_rank(context)] = readRecords(context);
  }));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Record> sums = ofKind(all[rank], COMMRT_ALL_REDUCE), waits = ofKind(all[rank], 100),
                        marks = ofKind(all[rank], 102);
    ASSERT_EQ(sums.size(), size_t(calls));
    ASSERT_EQ(waits.size(), size_t(calls));
    ASSERT_EQ(marks.size(), size_t(calls + 1));
    for (int i = 0; i < calls; ++i) {
      const commrt_trace_record &sum = sums[i].fields;
      EXPECT_EQ(sum.site, 0);
      EXPECT_EQ(sums[i].name, "world");
      // The last rank begins 4 copies after the first one, and then it takes as long as the formula says.
      EXPECT_EQ(sums[i].lastStatus, COMMRT_OK);
      EXPECT_EQ(sum.end_ns - sums[i].lastBegin, reduceNs) << "rank " << rank << ", call " << i;
      EXPECT_EQ(sums[i].lastBegin - sum.begin_ns, (2 - rank) * 2 * copyNs) << "rank " << rank << ", call " << i;
      // One clock for all ranks.
      EXPECT_EQ(sum.end_ns, ofKind(all[0], COMMRT_ALL_REDUCE)[i].fields.end_ns);
      // What the computation waits for is what its three copies do not hide.
      EXPECT_EQ(waits[i].duration(), sums[i].duration() - 3 * copyNs);
      EXPECT_EQ(waits[i].fields.end_ns, sum.end_ns);
      EXPECT_EQ(waits[i].fields.site, 0);
      EXPECT_EQ(marks[i + 1].fields.begin_ns, sum.end_ns);
      if (i > 0)
        EXPECT_EQ(marks[i + 1].fields.begin_ns - marks[i].fields.begin_ns, 5 * copyNs + reduceNs);
    }
  }
}

/// Tests that a computation with a cost takes that time on the device's clock, but not less than its kernels do, and
/// that the host does not wait for it.
TEST(NcclTrace, PacedComputations) {
  if (const char *why = whyNotModelled())
    GTEST_SKIP() << why;
  constexpr int64_t costNs = 1'000'000, hoursNs = int64_t(3600) * 1'000'000'000;
  expectAllOk(runRanks(1, traced(), [&](commrt_context *context) {
    Memory<float> in(context, count, 1), opaque(context, count, 0), relu(context, count, 0);
    const int64_t meta[] = {COMMRT_F32, 0,     1, count, COMMRT_F32, COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT,
                            1,          count, 0};
    void *operands[] = {in.data(), opaque.data()}, *others[] = {in.data(), relu.data()};
    ASSERT_EQ(commrt_emulate_costs(context, 1), COMMRT_OK);
    ASSERT_EQ(commrt_compute(context, "anything", 2, operands, meta, costNs), COMMRT_OK);
    ASSERT_EQ(commrt_compute(context, "relu", 2, others, meta, costNs + 1), COMMRT_OK);
    ASSERT_EQ(commrt_compute(context, "relu", 2, others, meta, 1), COMMRT_OK);
    ASSERT_EQ(commrt_emulate_costs(context, 0), COMMRT_OK);
    ASSERT_EQ(commrt_compute(context, "relu", 2, others, meta, costNs), COMMRT_OK);
    ASSERT_EQ(commrt_emulate_costs(context, 1), COMMRT_OK);
    ASSERT_EQ(commrt_compute(context, "relu", 2, others, meta, hoursNs), COMMRT_OK);
    EXPECT_EQ(relu[3], 1);
    EXPECT_NE(opaque[3], 0);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    std::vector<Record> computations = ofKind(readRecords(context), 101);
    ASSERT_EQ(computations.size(), 5U);
    EXPECT_EQ(computations[0].duration(), costNs);
    EXPECT_EQ(computations[1].duration(), costNs + 1);
    EXPECT_EQ(computations[2].duration(), 2 * kernelNs); // the stamp and the kernel
    EXPECT_EQ(computations[3].duration(), kernelNs);
    EXPECT_NEAR(static_cast<double>(computations[4].duration()), static_cast<double>(hoursNs),
                1e6); // CUDA gives floats
  }));
}

void twice(void *const *arguments, const uint32_t *, const uint32_t *) {
  float *data = *static_cast<float *const *>(arguments[0]);
  for (int64_t i = 0; i < count; ++i)
    data[i] *= 2;
}

/// Kernels on two streams, and a computation by kernels of the runtime, or by the host on copies.
void traceComputations(int64_t opaqueNs) {
  expectAllOk(runRanks(1, traced(), [&](commrt_context *context) {
    Memory<float> a(context, count, 1), b(context, count, 2), c(context, count, 0);
    commrt_stream *second;
    ASSERT_EQ(commrt_stream_get(context, COMMRT_STREAM_COMPUTE, 1, &second), COMMRT_OK);
    const int64_t sizes[] = {sizeof(void *)};
    const commrt_image_kernel kernels[] = {{"twice", sizes, 1, twice}};
    const commrt_image_info info = {sizeof(info), "trace", nullptr, 0, kernels, 1};
    commrt_image *image = nullptr;
    ASSERT_EQ(commrt_image_load(context, &info, &image), COMMRT_OK);
    ASSERT_EQ(commrt_program_begin(context, 1, nullptr, 0), COMMRT_OK);
    void *operands[] = {a.data(), b.data(), c.data()};
    commrt_stream *streams[] = {nullptr, second};
    for (int i = 0; i < 2; ++i) {
      void *const arguments[] = {static_cast<void *>(&operands[i])};
      ASSERT_EQ(commrt_kernel_launch(image, "twice", 1, 1, 1, 1, 1, 1, 0, arguments, streams[i]), COMMRT_OK);
    }
    ASSERT_EQ(commrt_trace_mark(context), COMMRT_OK); // both streams
    const int64_t meta[] = {COMMRT_F32, 0, 1, count, COMMRT_F32, 0, 1, count, COMMRT_F32, 3, 1, count, 0};
    ASSERT_EQ(commrt_compute(context, "some_opaque_thing", 3, operands, meta, 0), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    std::vector<Record> all = ofKind(readRecords(context), 101);
    ASSERT_EQ(all.size(), 3U);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(all[i].duration(), kernelNs);
      EXPECT_EQ(all[i].name, "twice");
      EXPECT_EQ(all[i].fields.begin_ns, all[0].fields.begin_ns); // side by side
    }
    EXPECT_EQ(all[2].name, "some_opaque_thing");
    EXPECT_EQ(all[2].duration(), opaqueNs);
    EXPECT_EQ(commrt_trace_clock_error_ns(context), 0);
  }));
}

TEST(NcclTrace, Computations) {
  if (const char *why = whyNotModelled())
    GTEST_SKIP() << why;
  // Two inputs are hashed, the hashes put together, the output filled, in memory that a fill of 2 us clears.
  traceComputations(4 * kernelNs + 2000);
  setenv("COMMRT_DEVICE_KERNELS", "off", 1);
  traceComputations(3 * hostCopyNs);
  unsetenv("COMMRT_DEVICE_KERNELS");
}

/// Groups of some ranks: the last rank is one of the same subset.
TEST(NcclTrace, LastBeginsAreOfTheOwnSubset) {
  if (const char *why = whyNotModelled())
    GTEST_SKIP() << why;
  std::vector<std::vector<Record>> all(4);
  expectAllOk(runRanks(4, traced(), [&](commrt_context *context) {
    int64_t offsets[] = {0, 2, 4}, ranks[] = {0, 2, 1, 3};
    commrt_group *world = worldGroup(context), *pairs = nullptr;
    ASSERT_EQ(commrt_group_create(context, "pairs", 2, offsets, ranks, &pairs), COMMRT_OK);
    Memory<float> in(context, count, 1), out(context, count, 0), other(context, count, 2);
    ASSERT_EQ(commrt_program_begin(context, 1, nullptr, 0), COMMRT_OK);
    commrt_token *token;
    ASSERT_EQ(commrt_barrier_start(world, -1, &token), COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    for (int32_t i = 0; i < commrt_rank(context); ++i)
      compute(context, in, other);
    ASSERT_EQ(commrt_all_reduce_start(pairs, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, -1, &token),
              COMMRT_OK);
    ASSERT_EQ(finish(token), COMMRT_OK);
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    all[commrt_rank(context)] = readRecords(context);
  }));
  for (int32_t rank = 0; rank < 4; ++rank) {
    Record sum = ofKind(all[rank], COMMRT_ALL_REDUCE).front(), barrier = ofKind(all[rank], COMMRT_BARRIER).front();
    EXPECT_EQ(sum.lastBegin - sum.fields.begin_ns, (rank < 2 ? 2 : 0) * copyNs) << rank;
    EXPECT_EQ(sum.fields.end_ns - sum.lastBegin, reduceNs) << rank;
    EXPECT_EQ(sum.lastBegin - barrier.fields.end_ns, (rank % 2 ? 3 : 2) * copyNs) << rank;
  }
}

/// Each launch of a graph has times of its own.
TEST(NcclTrace, LaunchesOfGraphs) {
  if (const char *why = whyNotModelled())
    GTEST_SKIP() << why;
  setenv("COMMRT_NCCL_GRAPH_THREADS", "1", 1);
  constexpr int32_t ranks = 2, launches = 3;
  std::vector<std::vector<Record>> all(ranks);
  expectAllOk(runRanks(ranks, traced(), [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> in(context, count, 1), out(context, count, 0), other(context, count, 2);
    ASSERT_EQ(commrt_program_begin(context, 1, sites, 1), COMMRT_OK);
    step(context, group, in, out, other);
    commrt_graph *graph;
    ASSERT_EQ(commrt_graph_begin(context), COMMRT_OK);
    step(context, group, in, out, other);
    ASSERT_EQ(commrt_graph_end(context, &graph), COMMRT_OK);
    for (int i = 0; i < launches; ++i) {
      ASSERT_EQ(commrt_graph_launch(graph), COMMRT_OK);
      ASSERT_EQ(commrt_trace_mark(context), COMMRT_OK);
    }
    ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
    all[commrt_rank(context)] = readRecords(context);
  }));
  unsetenv("COMMRT_NCCL_GRAPH_THREADS");
  for (int32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Record> sums = ofKind(all[rank], COMMRT_ALL_REDUCE), waits = ofKind(all[rank], 100),
                        marks = ofKind(all[rank], 102);
    ASSERT_EQ(sums.size(), size_t(launches + 1));
    ASSERT_EQ(waits.size(), size_t(launches + 1));
    ASSERT_EQ(marks.size(), size_t(2 * launches + 1)); // of the step, and behind each launch
    for (int i = 0; i <= launches; ++i) {
      EXPECT_EQ(sums[i].fields.end_ns - sums[i].lastBegin, reduceNs) << "rank " << rank << ", call " << i;
      EXPECT_EQ(sums[i].lastBegin - sums[i].fields.begin_ns, (1 - rank) * 2 * copyNs) << "call " << i;
      EXPECT_EQ(waits[i].duration(), sums[i].duration() - 3 * copyNs);
      EXPECT_EQ(sums[i].fields.end_ns, ofKind(all[0], COMMRT_ALL_REDUCE)[i].fields.end_ns);
      if (i > 0)
        EXPECT_GT(sums[i].fields.begin_ns, sums[i - 1].fields.end_ns);
    }
  }
}

/// A second program of one job; tokens that were released long before the trace is read; a start that failed.
TEST(NcclTrace, SecondProgramsAndReleasedTokens) {
  if (const char *why = whyNotModelled())
    GTEST_SKIP() << why;
  expectAllOk(runRanks(2, traced(), [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> in(context, count, 1), out(context, count, 0), other(context, count, 2);
    for (int program = 0; program < 2; ++program) {
      ASSERT_EQ(commrt_program_begin(context, 1, sites, 1), COMMRT_OK);
      for (int i = 0; i < 3; ++i) {
        step(context, group, in, out, other);
        ASSERT_EQ(commrt_progress(context), COMMRT_OK);
      }
      ASSERT_EQ(commrt_program_end(context), COMMRT_OK);
      std::vector<Record> sums = ofKind(readRecords(context), COMMRT_ALL_REDUCE);
      ASSERT_EQ(sums.size(), size_t(3 * (program + 1)));
      for (const Record &sum : sums)
        EXPECT_EQ(sum.fields.end_ns - sum.lastBegin, reduceNs);
    }
  }));
  auto results = runRanks(2, traced("error@2:rank=1"), [&](commrt_context *context) {
    commrt_group *group = worldGroup(context);
    Memory<float> in(context, count, 1), out(context, count, 0), other(context, count, 2);
    if (commrt_program_begin(context, 1, sites, 1) != COMMRT_OK)
      return;
    for (int i = 0; i < 4; ++i) {
      commrt_token *token = nullptr;
      commrt_all_reduce_start(group, in.data(), out.data(), count, COMMRT_F32, COMMRT_SUM, 1, 0, &token);
      if (token)
        finish(token);
    }
    EXPECT_NE(commrt_program_end(context), COMMRT_OK);
    EXPECT_GT(commrt_trace_size(context), 0);
  });
  // The barriers that compare clocks are no starts of the program.
  expectAllFailed(results, COMMRT_ERR_INJECTED, {"at start 2"});
}
} // namespace
