//===- ComputationsTest.cpp - commrt_compute on each backend ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every computation with a name, and opaque ones, on the tested backend and on threads: the same bits, for each type.
// Over a device the kernels of lib/Runtime/Kernels/Device are required.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeTestSupport.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <random>

using namespace commsched::test;

namespace {
constexpr int32_t allTypes[] = {COMMRT_F16, COMMRT_BF16, COMMRT_F32, COMMRT_F64, COMMRT_I8,  COMMRT_I16, COMMRT_I32,
                                COMMRT_I64, COMMRT_U8,   COMMRT_U16, COMMRT_U32, COMMRT_U64, COMMRT_I1};
constexpr int32_t floatTypes[] = {COMMRT_F16, COMMRT_BF16, COMMRT_F32, COMMRT_F64};

/// What commrt_compute is told of an operand, and where it begins in its buffer.
struct Tensor {
  int32_t dtype;
  std::vector<int64_t> sizes;
  int64_t flags = 0;
  int64_t offset = 0; ///< bytes

  int64_t bytes() const {
    int64_t elements = 1;
    for (int64_t size : sizes)
      elements *= size;
    return elements * commrt_dtype_size(dtype);
  }
};
Tensor output(int32_t dtype, std::vector<int64_t> sizes) {
  return {dtype, std::move(sizes), COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT};
}
Tensor mutated(int32_t dtype, std::vector<int64_t> sizes) { return {dtype, std::move(sizes), COMMRT_OPERAND_WRITTEN}; }

struct Computation {
  std::string name;
  std::vector<Tensor> operands;
  std::vector<int64_t> extra;
};

constexpr int mantissaBits[] = {10, 7, 23, 52}, exponentBits[] = {5, 8, 8, 11}; ///< indexed by floating-point type

/// Bytes of every value that a type has, without NaN and infinity.
std::vector<char> randomBytes(const Tensor &tensor, std::mt19937_64 &random) {
  std::vector<char> bytes(tensor.offset + tensor.bytes());
  int64_t size = commrt_dtype_size(tensor.dtype);
  for (int64_t at = 0; at + size <= tensor.bytes(); at += size) {
    uint64_t bits = random();
    if (tensor.dtype <= COMMRT_F64) {
      // Between 2^-3 and 2^3, and sometimes 0 or subnormal.
      int mantissa = mantissaBits[tensor.dtype], exponent = exponentBits[tensor.dtype];
      uint64_t bias = (uint64_t(1) << (exponent - 1)) - 1, power = random() % 20 ? bias - 3 + random() % 6 : 0;
      bits = (bits & ((uint64_t(1) << mantissa) - 1)) | power << mantissa | (random() & 1) << (mantissa + exponent);
    } else if (tensor.dtype == COMMRT_I1) {
      bits &= 1;
    }
    std::memcpy(bytes.data() + tensor.offset + at, &bits, size);
  }
  return bytes;
}

/// What the computation leaves in its operands' buffers.
std::vector<std::vector<char>> run(const char *backend, const Computation &what, int32_t expected = COMMRT_OK) {
  std::vector<std::vector<char>> results;
  RunOptions how;
  how.backend = backend;
  auto ends = runRanks(1, how, [&](commrt_context *context) {
    std::mt19937_64 random(what.name.size() * 1000 + what.operands.size());
    std::vector<std::unique_ptr<Memory<char>>> memory;
    std::vector<void *> operands;
    std::vector<int64_t> meta;
    for (const Tensor &tensor : what.operands) {
      memory.push_back(std::make_unique<Memory<char>>(context, randomBytes(tensor, random)));
      operands.push_back(tensor.bytes() ? memory.back()->data() + tensor.offset : nullptr);
      meta.insert(meta.end(), {tensor.dtype, tensor.flags, static_cast<int64_t>(tensor.sizes.size())});
      meta.insert(meta.end(), tensor.sizes.begin(), tensor.sizes.end());
    }
    meta.push_back(static_cast<int64_t>(what.extra.size()));
    meta.insert(meta.end(), what.extra.begin(), what.extra.end());
    EXPECT_EQ(commrt_compute(context, what.name.c_str(), static_cast<int64_t>(operands.size()), operands.data(),
                             meta.data(), 0),
              expected)
        << what.name;
    for (auto &each : memory)
      if (expected == COMMRT_OK)
        results.push_back(each->values());
  });
  EXPECT_EQ(ends[0].status, expected) << what.name << ": " << ends[0].message;
  return results;
}

std::string describe(const Computation &what) {
  std::string text = what.name;
  for (const Tensor &tensor : what.operands) {
    text += std::string(" ") + commrt_dtype_name(tensor.dtype) + "[";
    for (int64_t size : tensor.sizes)
      text += std::to_string(size) + ",";
    text += "]";
  }
  return text;
}

/// Whether kernels run on the host's own processor. A GPU makes NaNs of another sign, and has another mathematics
/// library.
bool isOnHost() {
  const char *library = std::getenv("COMMRT_CUDART_LIBRARY");
  return std::string(defaultBackend()) != "nccl" || (library && std::strstr(library, "cudart_emu"));
}

bool isNan(uint64_t bits, int32_t dtype) {
  uint64_t infinity = ((uint64_t(1) << exponentBits[dtype]) - 1) << mantissaBits[dtype];
  return (bits & ~(uint64_t(1) << (exponentBits[dtype] + mantissaBits[dtype]))) > infinity;
}

/// The largest difference of two elements in units of the last place, for floating-point types.
int64_t ulps(const std::vector<char> &left, const std::vector<char> &right, int32_t dtype) {
  int64_t most = 0, size = commrt_dtype_size(dtype);
  for (size_t at = 0; at + size <= left.size(); at += size) {
    uint64_t a = 0, b = 0;
    std::memcpy(&a, left.data() + at, size);
    std::memcpy(&b, right.data() + at, size);
    if (!isNan(a, dtype) || !isNan(b, dtype))
      most = std::max(most, std::abs(static_cast<int64_t>(a - b)));
  }
  return most;
}

class Computations : public testing::Test {
protected:
  void SetUp() override { setenv("COMMRT_DEVICE_KERNELS", "require", 1); }
  void TearDown() override { unsetenv("COMMRT_DEVICE_KERNELS"); }

  /// The bits of threads on the tested backend; floating-point outputs may be off by `most` units in the last place.
  static void compare(const Computation &what, int64_t most = 0) {
    auto expected = run("threads", what), found = run(defaultBackend(), what);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] == expected[i])
        continue;
      int32_t dtype = what.operands[i].dtype;
      bool isFloat = dtype <= COMMRT_F64;
      bool isClose = isFloat && !isOnHost() && ulps(found[i], expected[i], dtype) <= most;
      EXPECT_TRUE(isClose) << describe(what) << ": operand " << i << " differs"
                           << (isFloat ? " by " + std::to_string(ulps(found[i], expected[i], dtype)) : "");
    }
  }
};

/// What a GPU's mathematics library may differ by.
int64_t libraryUlps() { return isOnHost() ? 0 : 2; }

/// Tests the elementwise functions on every type, with operands that are repeated along dimensions.
TEST_F(Computations, Elementwise) {
  for (const char *name : {"relu", "neg", "abs", "cast", "sqrt", "reciprocal", "rsqrt"})
    for (int32_t dtype : allTypes) {
      compare({name, {{dtype, {37}}, output(dtype, {37})}, {}});
      compare({name, {{COMMRT_F32, {3, 1, 5}}, output(dtype, {2, 3, 7, 5})}, {}});
    }
  for (const char *name : {"add", "sub", "mul", "div", "maximum", "minimum", "relu_backward"})
    for (int32_t dtype : allTypes) {
      compare({name, {{dtype, {6, 11}}, {dtype, {6, 11}}, output(dtype, {6, 11})}, {}});
      compare({name, {{dtype, {4, 1}}, {COMMRT_BF16, {9}}, output(COMMRT_F32, {4, 9})}, {}});
    }
}

/// Tests the functions that the mathematics library computes: equal where the host has the same library.
TEST_F(Computations, FunctionsOfTheMathematicsLibrary) {
  for (int32_t dtype : floatTypes) {
    for (const char *name : {"exp", "tanh", "log", "sin", "cos", "sigmoid", "silu", "gelu"})
      compare({name, {{dtype, {300}}, output(dtype, {300})}, {}}, libraryUlps());
    compare({"pow", {{dtype, {50}}, {dtype, {50}}, output(dtype, {50})}, {}}, libraryUlps());
    compare({"softmax", {{dtype, {5, 33}}, output(dtype, {5, 33})}, {}}, libraryUlps());
  }
}

/// Tests rows, sums over any dimensions, and transpositions.
TEST_F(Computations, RowsSumsAndTranspositions) {
  for (int32_t dtype : floatTypes) {
    compare({"softmax_backward", {{dtype, {4, 7}}, {dtype, {4, 7}}, output(dtype, {4, 7})}, {}});
    for (const char *name : {"sum", "mean"}) {
      compare({name, {{dtype, {5, 6, 7}}, output(dtype, {5, 1, 7})}, {}});
      compare({name, {{dtype, {5, 6, 7}}, output(dtype, {6})}, {}});
      compare({name, {{dtype, {5, 6}}, output(dtype, {})}, {}});
      compare({name, {{COMMRT_I32, {4, 1, 3}}, output(dtype, {4})}, {}});
      compare({name, {{dtype, {0, 3}}, output(dtype, {3})}, {}});
    }
  }
  for (int32_t dtype : allTypes) {
    compare({"t", {{dtype, {5, 7}}, output(dtype, {7, 5})}, {}});
    compare({"transpose", {{dtype, {2, 5, 3, 7, 4}}, output(dtype, {2, 7, 3, 5, 4})}, {}});
  }
}

/// Tests the computations of the fsdp operations, with conversions, padding and bytes at odd addresses.
TEST_F(Computations, FsdpCopies) {
  for (int32_t dtype : allTypes) {
    compare({"comm.pack", {{dtype, {3, 5}}, {COMMRT_F32, {7}}, {dtype, {0}}, output(dtype, {22})}, {}});
    compare({"comm.chunk_cat", {{dtype, {7, 3}}, {dtype, {2}}, {COMMRT_F32, {}}, output(dtype, {4 * 8})}, {4}});
    compare(
        {"comm.split_copy", {{dtype, {2 * 9}}, output(dtype, {2 * 5}), output(dtype, {2 * 3})}, {3, 5, 1, 3, 0, 2}});
  }
  // A bucket of bytes: one u8, then f32 and f64 at odd addresses.
  compare({"comm.pack",
           {{COMMRT_U8, {1}}, {COMMRT_F64, {3}}, {COMMRT_F64, {2}}, output(COMMRT_U8, {1 + 3 * 4 + 2 * 8})},
           {COMMRT_U8, COMMRT_F32, COMMRT_F64}});
  compare({"add", {{COMMRT_F32, {9}, 0, 3}, {COMMRT_F64, {9}, 0, 5}, output(COMMRT_BF16, {9})}, {}});
  // More pieces than one launch takes.
  Computation many = {"comm.pack", {}, {}};
  for (int64_t i = 0; i < 100; ++i)
    many.operands.push_back({COMMRT_I32, {i % 7}});
  many.operands.push_back(output(COMMRT_I32, {14 * 21 + 1}));
  compare(many);
}

/// Products of every kind, each with its last size of k.
std::vector<std::pair<Computation, int64_t>> products() {
  std::vector<std::pair<Computation, int64_t>> all;
  for (int32_t dtype : floatTypes) {
    all.push_back({{"mm", {{dtype, {13, 40}}, {dtype, {40, 9}}, output(dtype, {13, 9})}, {}}, 40});
    all.push_back({{"mm", {{dtype, {1, 40}}, {dtype, {40, 1}}, output(dtype, {1, 1})}, {}}, 40});
    all.push_back({{"bmm", {{dtype, {3, 4, 5}}, {dtype, {3, 5, 6}}, output(dtype, {3, 4, 6})}, {}}, 5});
    all.push_back({{"addmm", {{dtype, {9}}, {dtype, {13, 40}}, {dtype, {40, 9}}, output(dtype, {13, 9})}, {}}, 40});
    all.push_back({{"addmm", {{dtype, {13, 9}}, {dtype, {13, 40}}, {dtype, {40, 9}}, output(dtype, {13, 9})}, {}}, 40});
    // Two batch dimensions, the right operand transposed, the result added to; then the result by columns.
    std::vector<Tensor> operands = {{dtype, {2 * 3 * 4 * 5}}, {dtype, {2 * 6 * 5}}, mutated(dtype, {2 * 3 * 4 * 6})};
    all.push_back({{"comm.contract", operands, {2, 2, 3, 4, 6, 5, 60, 20, 5, 1, 30, 0, 1, 5, 72, 24, 6, 1}}, 5});
    all.push_back({{"comm.contract", operands, {2, 2, 3, 4, 6, 5, 60, 20, 1, 4, 30, 0, 6, 1, 72, 24, 1, 4}}, 5});
  }
  all.push_back({{"mm", {{COMMRT_BF16, {5, 17}}, {COMMRT_BF16, {17, 3}}, output(COMMRT_F32, {5, 3})}, {}}, 17});
  return all;
}

/// Tests products in the order of k: in f32 and f64, with and without a bias, in batches, and of strided operands.
TEST_F(Computations, MatrixProducts) {
  setenv("COMMRT_NCCL_EXACT", "1", 1);
  for (const auto &[product, k] : products())
    compare(product);
  for (int32_t dtype : floatTypes)
    compare({"mm", {{COMMRT_BF16, {5, 17}}, {dtype, {17, 3}}, output(COMMRT_F32, {5, 3})}, {}});
  compare({"mm", {{COMMRT_I32, {4, 5}}, {COMMRT_I64, {5, 6}}, output(COMMRT_F64, {4, 6})}, {}});
  // Rows of the left operand two apart, which no library takes.
  compare({"comm.contract",
           {{COMMRT_F32, {24}}, {COMMRT_F32, {9}}, mutated(COMMRT_F32, {12})},
           {0, 4, 3, 3, 6, 2, 3, 1, 3, 1}});
  unsetenv("COMMRT_NCCL_EXACT");
}

/// The number that bytes of a floating-point type are.
double numberOf(const char *bytes, int32_t dtype) {
  double wide = 0;
  float single = 0;
  uint16_t bits = 0;
  switch (dtype) {
  case COMMRT_F64:
    std::memcpy(&wide, bytes, sizeof(wide));
    return wide;
  case COMMRT_F32:
    std::memcpy(&single, bytes, sizeof(single));
    return single;
  default:
    std::memcpy(&bits, bytes, sizeof(bits));
    int width = mantissaBits[dtype], mantissa = bits & ((1 << width) - 1);
    int exponent = (bits & 0x7fff) >> width, bias = dtype == COMMRT_F16 ? 15 : 127;
    double value = exponent ? std::ldexp(mantissa + (1 << width), exponent - bias - width)
                            : std::ldexp(mantissa, 1 - bias - width);
    return bits & 0x8000 ? -value : value;
  }
}

/// How many products the emulated library was asked for; -1 without it.
int64_t countProducts() {
  const char *path = std::getenv("COMMRT_CUBLASLT_LIBRARY");
  void *library = path ? dlopen(path, RTLD_NOW) : nullptr;
  auto *count = library ? reinterpret_cast<int64_t (*)()>(dlsym(library, "emulatorProducts")) : nullptr;
  return count ? count() : -1;
}

/// Tests products by the backend's library: near those of the host, whatever their order of sums.
TEST_F(Computations, MatrixProductsOfTheLibrary) {
  for (const auto &[product, k] : products()) {
    int64_t before = countProducts();
    auto found = run(defaultBackend(), product), expected = run("threads", product);
    const Tensor &result = product.operands.back();
    int64_t size = commrt_dtype_size(result.dtype);
    // The factors are at most 8: one rounding of the result, and those of the sum.
    for (int64_t at = 0; at < result.bytes(); at += size) {
      double right = numberOf(expected.back().data() + at, result.dtype);
      ASSERT_NEAR(numberOf(found.back().data() + at, result.dtype), right,
                  std::fabs(right) / 128 + 1e-5 * 64 * double(k))
          << describe(product) << " at byte " << at;
    }
    if (before >= 0)
      EXPECT_GT(countProducts(), before) << describe(product);
  }
}

/// Tests that the library is not asked for what it does not do, nor where the order matters.
TEST_F(Computations, ProductsThatTheLibraryDoesNotTake) {
  if (countProducts() < 0)
    GTEST_SKIP() << "needs the emulated cuBLASLt: RuntimeTests.nccl.products runs it";
  int64_t before = countProducts();
  compare({"mm", {{COMMRT_BF16, {5, 17}}, {COMMRT_F32, {17, 3}}, output(COMMRT_F32, {5, 3})}, {}});
  compare({"mm", {{COMMRT_F32, {5, 0}}, {COMMRT_F32, {0, 3}}, output(COMMRT_F32, {5, 3})}, {}});
  setenv("CUBLASLT_EMU_UNSUPPORTED", "1", 1);
  compare({"mm", {{COMMRT_F32, {5, 7}}, {COMMRT_F32, {7, 3}}, output(COMMRT_F32, {5, 3})}, {}});
  unsetenv("CUBLASLT_EMU_UNSUPPORTED");
  setenv("COMMRT_NCCL_EXACT", "1", 1);
  compare(products()[0].first);
  unsetenv("COMMRT_NCCL_EXACT");
  EXPECT_EQ(countProducts(), before);
}

/// Tests that opaque computations depend on every bit, and what does not fit a name is opaque.
TEST_F(Computations, Opaque) {
  for (int32_t dtype : allTypes)
    compare({"anything", {{dtype, {13}}, mutated(COMMRT_F32, {7}), {COMMRT_U8, {0}}, output(dtype, {100})}, {}});
  compare({"mm", {{COMMRT_F32, {3, 4}}, {COMMRT_F32, {5, 6}}, output(COMMRT_F32, {3, 6})}, {}});
  compare({"no operands", {}, {}});
}

/// Tests that what contradicts itself is an error on devices, too.
TEST_F(Computations, WrongOperands) {
  for (const char *backend : {"threads", defaultBackend()})
    run(backend, {"comm.pack", {{COMMRT_F32, {3}}, output(COMMRT_F32, {4})}, {}}, COMMRT_ERR_INVALID);
}
} // namespace
