//===- NcclResultsTest.cpp - Results of the emulated NCCL against plain loops -----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every collective, every element type, every reduction. The loops below compute with doubles from small integers,
// which all types hold exactly, so that results are equal in every bit, in whatever order they are added.
//
//===------------------------------------------------------------------------------------------===//

#include "EmulatorTestSupport.h"
#include <cmath>
#include <cstring>

using namespace emulator::test;

namespace {
constexpr int ranks = 3;
constexpr size_t count = 5;

/// An element type, and how a small integer looks in it.
struct Type {
  ncclDataType_t type;
  const char *name;
  size_t bytes;
  void (*store)(double value, void *to);
};

template <typename T> void storePlain(double value, void *to) {
  T plain = T(value);
  memcpy(to, &plain, sizeof(plain));
}
/// The upper half of single precision, which small integers fit.
void storeBfloat(double value, void *to) {
  float single = float(value);
  memcpy(to, reinterpret_cast<const char *>(&single) + 2, 2);
}
/// Small positive integers in a format with so many exponent and mantissa bits, by their definition.
template <typename T, int exponentBits, int mantissaBits> void storeShort(double value, void *to) {
  T bits = 0;
  if (value != 0) {
    int exponent = int(std::floor(std::log2(value)));
    double fraction = value / std::pow(2, exponent) - 1;
    bits = T((exponent + (1 << (exponentBits - 1)) - 1) << mantissaBits | int(fraction * (1 << mantissaBits)));
  }
  memcpy(to, &bits, sizeof(bits));
}

const Type types[] = {{ncclInt8, "i8", 1, storePlain<int8_t>},
                      {ncclUint8, "u8", 1, storePlain<uint8_t>},
                      {ncclInt32, "i32", 4, storePlain<int32_t>},
                      {ncclUint32, "u32", 4, storePlain<uint32_t>},
                      {ncclInt64, "i64", 8, storePlain<int64_t>},
                      {ncclUint64, "u64", 8, storePlain<uint64_t>},
                      {ncclFloat16, "f16", 2, storeShort<uint16_t, 5, 10>},
                      {ncclFloat32, "f32", 4, storePlain<float>},
                      {ncclFloat64, "f64", 8, storePlain<double>},
                      {ncclBfloat16, "bf16", 2, storeBfloat},
                      {ncclFloat8e4m3, "e4m3", 1, storeShort<uint8_t, 4, 3>},
                      {ncclFloat8e5m2, "e5m2", 1, storeShort<uint8_t, 5, 2>}};

/// Element i of a rank's input: 1, 2 or 3, so that sums and products of three ranks fit every type.
double element(int rank, size_t i) { return double((size_t(rank) + i) % 2 + 1); }

std::vector<uint8_t> stored(const Type &type, size_t elements, const std::function<double(size_t)> &value) {
  std::vector<uint8_t> bytes(elements * type.bytes);
  for (size_t i = 0; i < elements; ++i)
    type.store(value(i), bytes.data() + i * type.bytes);
  return bytes;
}

double reduced(ncclRedOp_t op, size_t i) {
  double result = element(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    double value = element(rank, i);
    result = op == ncclSum    ? result + value
             : op == ncclProd ? result * value
             : op == ncclMax  ? std::max(result, value)
                              : std::min(result, value);
  }
  return result;
}

class Results : public testing::TestWithParam<Type> {};

// Tests the collectives that only move elements.
TEST_P(Results, OfMoves) {
  Type type = GetParam();
  onComm(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    constexpr int root = 1;
    size_t all = count * ranks;
    OnDevice<uint8_t> in(stored(type, all, [&](size_t i) { return element(rank, i); }));
    OnDevice<uint8_t> gathered(all * type.bytes), exchanged(all * type.bytes), rooted(all * type.bytes);
    OnDevice<uint8_t> sent(count * type.bytes), scattered(count * type.bytes);
    NCCL(ncclAllGather(in, gathered, count, type.type, comm, stream));
    NCCL(ncclAlltoAll(in, exchanged, count, type.type, comm, stream));
    NCCL(ncclBroadcast(in, sent, count, type.type, root, comm, stream));
    NCCL(ncclScatter(in, scattered, count, type.type, root, comm, stream));
    NCCL(ncclGather(in, rooted, count, type.type, root, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(gathered.read(), stored(type, all, [](size_t i) { return element(int(i / count), i % count); }));
    EXPECT_EQ(exchanged.read(),
              stored(type, all, [&](size_t i) { return element(int(i / count), size_t(rank) * count + i % count); }));
    EXPECT_EQ(sent.read(), stored(type, count, [](size_t i) { return element(root, i); }));
    EXPECT_EQ(scattered.read(), stored(type, count, [&](size_t i) { return element(root, size_t(rank) * count + i); }));
    if (rank == root)
      EXPECT_EQ(rooted.read(), gathered.read());
    else
      EXPECT_EQ(rooted.read(), std::vector<uint8_t>(all * type.bytes, 0xA5)); // untouched
  });
}

// Tests the collectives that reduce, apart and in place.
TEST_P(Results, OfReductions) {
  Type type = GetParam();
  onComm(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    for (ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin}) {
      size_t all = count * ranks;
      auto input = stored(type, all, [&](size_t i) { return element(rank, i); });
      auto expected = stored(type, all, [&](size_t i) { return reduced(op, i); });
      std::vector<uint8_t> part(expected.begin() + std::ptrdiff_t(count * type.bytes) * rank,
                                expected.begin() + std::ptrdiff_t(count * type.bytes) * (rank + 1));
      OnDevice<uint8_t> in(input), inPlace(input), out(input.size()), scattered(part.size()), rooted(input);
      NCCL(ncclAllReduce(in, out, all, type.type, op, comm, stream));
      NCCL(ncclReduceScatter(in, scattered, count, type.type, op, comm, stream));
      NCCL(ncclReduce(rooted, rooted, all, type.type, op, 2, comm, stream));
      uint8_t *ownPart = inPlace.data + part.size() * size_t(rank);
      NCCL(ncclReduceScatter(inPlace, ownPart, count, type.type, op, comm, stream));
      NCCL(ncclAllGather(ownPart, inPlace, count, type.type, comm, stream));
      CUDA(cudaStreamSynchronize(stream));
      EXPECT_EQ(out.read(), expected);
      EXPECT_EQ(scattered.read(), part);
      EXPECT_EQ(rooted.read(), rank == 2 ? expected : input);
      EXPECT_EQ(inPlace.read(), expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Results, testing::ValuesIn(types),
                         [](const auto &info) { return std::string(info.param.name); });

// Tests that an average multiplies each input by 1/n rounded to the type, and that the user's factor does likewise.
TEST(Nccl, Averages) {
  onComm(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    float third = 1.0F / 3, value = float(rank + 1), half = 0.5F;
    OnDevice<float> in(std::vector<float>{value}), average(1), scaled(1);
    OnDevice<int> integers(std::vector<int>{rank + 5}), integerAverage(1);
    ncclRedOp_t op;
    NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL(ncclAllReduce(in, average, 1, ncclFloat32, ncclAvg, comm, stream));
    NCCL(ncclAllReduce(in, scaled, 1, ncclFloat32, op, comm, stream));
    NCCL(ncclAllReduce(integers, integerAverage, 1, ncclInt32, ncclAvg, comm, stream));
    EXPECT_EQ(ncclAllReduce(in, scaled, 1, ncclFloat64, op, comm, stream), ncclInvalidArgument);
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(average.read()[0], 1 * third + 2 * third + 3 * third);
    EXPECT_EQ(scaled.read()[0], 3.0F);
    EXPECT_EQ(integerAverage.read()[0], 6);
    NCCL(ncclRedOpDestroy(op, comm));
    EXPECT_EQ(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
  });
}

// Tests that short floating-point sums are rounded once, to the nearest even.
TEST(Nccl, RoundsOnce) {
  onComm(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    // In bf16: 256 + 1 + 1 = 258. Rounded at each step it would be 256, as 257 is between 256 and 258.
    OnDevice<uint16_t> data(std::vector<uint16_t>{uint16_t(rank == 0 ? 0x4380 : 0x3F80)});
    NCCL(ncclAllReduce(data, data, 1, ncclBfloat16, ncclSum, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(data.read()[0], 0x4381);
  });
}

// Tests that a captured collective and grouped messages give, at each launch, what they give when called.
TEST(Nccl, CapturedCollectives) {
  onComm(ranks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    OnDevice<float> data(std::vector<float>{float(rank + 1)}), received(1);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    NCCL(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comm, stream));
    NCCL(ncclGroupStart());
    NCCL(ncclSend(data, 1, ncclFloat32, (rank + 1) % ranks, comm, stream));
    NCCL(ncclRecv(received, 1, ncclFloat32, (rank + 2) % ranks, comm, stream));
    NCCL(ncclGroupEnd());
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (float expected : {6.0F, 18.0F, 54.0F}) {
      CUDA(cudaGraphLaunch(exec, stream));
      CUDA(cudaStreamSynchronize(stream));
      EXPECT_EQ(data.read()[0], expected);
      EXPECT_EQ(received.read()[0], expected);
    }
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
  });
}

// Tests that a communicator ends only after the graphs with its calls, as with NCCL.
TEST(Nccl, FinalizeWaitsForGraphs) {
  onComm(1, [&](int, ncclComm_t, cudaStream_t stream) {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = {};
    config.size = offsetof(ncclConfig_t, cgaClusterSize); // `blocking` alone
    config.magic = NCCL_API_MAGIC;
    ncclUniqueId id;
    ncclResult_t state = ncclInProgress;
    auto settle = [&] {
      while (state == ncclInProgress)
        NCCL(ncclCommGetAsyncError(comm, &state));
    };
    NCCL(ncclGetUniqueId(&id));
    ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    settle();
    OnDevice<float> data(1);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, comm, stream);
    state = ncclInProgress;
    settle();
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    ncclCommFinalize(comm);
    constexpr int many = 20;
    for (int i = 0; i < many; ++i)
      NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInProgress);
    CUDA(cudaGraphDestroy(graph));
    NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclInProgress);
    CUDA(cudaGraphExecDestroy(exec));
    settle();
    EXPECT_EQ(state, ncclSuccess);
    NCCL(ncclCommDestroy(comm));
  });
}
} // namespace
