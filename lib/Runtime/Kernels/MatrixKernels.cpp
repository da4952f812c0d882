//===- MatrixKernels.cpp - Matrix products ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A blocked product after Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication"): operands are
// packed into panels, and a tile of the result stays in vector registers while it goes through a panel.
//
// Each element of the result is one sum in order of k, whatever the blocks and the width of the vectors: the bits do
// not depend on the processor, on threads or on where an operand lies. f16, bf16 and f32 are summed in f32, f64 in f64,
// and rounded once. Only products of f16 and bf16, which are exact in f32, use fused multiply-add: there it changes no
// bit (short of underflow).
//
//===------------------------------------------------------------------------------------------===//

#include "Kernels.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

using namespace commsched::runtime;

namespace {

/// Rows and columns of a block of the result, and how much of k is packed of the left operand: together they fit the
/// second-level cache of current processors (0.4 MiB for f32).
constexpr int64_t kBlockRows = 384, kBlockDepth = 256;
/// Columns of the right operand that are packed at a time, for all of k.
constexpr int64_t kBlockColumns = 1024;

/// A matrix somewhere in memory; strides in elements.
struct Matrix {
  char *data;
  int32_t dtype;
  int64_t rowStride, columnStride;
};

//===-----------------------------------------------------------------------------------------===//
// Tiles
//===-----------------------------------------------------------------------------------------===//

/// result += left * right for a tile of `rows` x 2 * `lanes` elements. The panels are [depth][rows] and
/// [depth][2 * lanes].
template <typename T, int lanes, int rows, bool fused>
[[gnu::always_inline]] inline void computeTile(int64_t depth, const T *left, const T *right, T *result,
                                               int64_t stride) {
  typedef T Vector __attribute__((vector_size(lanes * sizeof(T))));
  Vector sums[rows][2];
#pragma clang loop unroll(full)
  for (int row = 0; row < rows; ++row)
    std::memcpy(sums[row], result + row * stride, sizeof(sums[row]));
  for (int64_t k = 0; k < depth; ++k) {
    Vector b[2];
    std::memcpy(b, right + k * 2 * lanes, sizeof(b));
#pragma clang loop unroll(full)
    for (int row = 0; row < rows; ++row) {
      T a = left[k * rows + row];
      if constexpr (fused) {
#pragma clang fp contract(fast)
        sums[row][0] = sums[row][0] + a * b[0];
        sums[row][1] = sums[row][1] + a * b[1];
      } else {
        sums[row][0] = sums[row][0] + a * b[0];
        sums[row][1] = sums[row][1] + a * b[1];
      }
    }
  }
#pragma clang loop unroll(full)
  for (int row = 0; row < rows; ++row)
    std::memcpy(result + row * stride, sums[row], sizeof(sums[row]));
}

template <typename T> struct TileKernel {
  int64_t rows, columns;
  void (*run)(int64_t depth, const T *left, const T *right, T *result, int64_t stride);
};

template <typename T, bool fused> struct Tiles {
  /// Registers of 16 bytes: 16 of them.
  static void narrow(int64_t depth, const T *left, const T *right, T *result, int64_t stride) {
    computeTile<T, 16 / sizeof(T), 4, fused>(depth, left, right, result, stride);
  }
#if defined(__x86_64__)
  /// 16 registers of 32 bytes.
  __attribute__((target("avx2,fma"))) static void avx2(int64_t depth, const T *left, const T *right, T *result,
                                                       int64_t stride) {
    computeTile<T, 32 / sizeof(T), 6, fused>(depth, left, right, result, stride);
  }
  /// 32 registers of 64 bytes.
  __attribute__((target("avx512f,fma"))) static void avx512(int64_t depth, const T *left, const T *right, T *result,
                                                            int64_t stride) {
    computeTile<T, 64 / sizeof(T), 12, fused>(depth, left, right, result, stride);
  }
#endif

  static TileKernel<T> choose() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma"))
      return {12, 2 * 64 / int64_t(sizeof(T)), avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      return {6, 2 * 32 / int64_t(sizeof(T)), avx2};
#endif
    return {4, 2 * 16 / int64_t(sizeof(T)), narrow};
  }
};

//===-----------------------------------------------------------------------------------------===//
// Packing
//===-----------------------------------------------------------------------------------------===//

/// Copies `count` lines of `depth` elements into panels of `width` lines, [panel][depth][width], with zeros for lines
/// that are missing.
template <typename T, typename E>
void packLines(const E *from, int64_t lineStride, int64_t depthStride, int64_t count, int64_t depth, int64_t width,
               T *to) {
  for (int64_t first = 0; first < count; first += width, to += width * depth) {
    int64_t lines = std::min(width, count - first);
    const E *begin = from + first * lineStride;
    if (lines < width)
      std::fill(to, to + width * depth, T(0));
    if (lineStride == 1) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t line = 0; line < lines; ++line)
          to[k * width + line] = static_cast<T>(load(begin[k * depthStride + line]));
    } else {
      for (int64_t line = 0; line < lines; ++line)
        for (int64_t k = 0; k < depth; ++k)
          to[k * width + line] = static_cast<T>(load(begin[line * lineStride + k * depthStride]));
    }
  }
}

/// Lines [first, first + count) of a matrix whose lines are rows, or columns, from `at` on along the other dimension.
template <typename T>
void pack(const Matrix &matrix, bool linesAreRows, int64_t first, int64_t count, int64_t at, int64_t depth,
          int64_t width, T *to) {
  int64_t lineStride = linesAreRows ? matrix.rowStride : matrix.columnStride;
  int64_t depthStride = linesAreRows ? matrix.columnStride : matrix.rowStride;
  withType(matrix.dtype, [&](auto type) {
    auto *data = reinterpret_cast<const decltype(type) *>(matrix.data) + first * lineStride + at * depthStride;
    packLines(data, lineStride, depthStride, count, depth, width, to);
  });
}

template <typename T>
void loadBlock(const Matrix &matrix, int64_t row, int64_t column, int64_t rows, int64_t columns, T *to,
               int64_t stride) {
  withType(matrix.dtype, [&](auto type) {
    auto *data =
        reinterpret_cast<const decltype(type) *>(matrix.data) + row * matrix.rowStride + column * matrix.columnStride;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        to[i * stride + j] = static_cast<T>(load(data[i * matrix.rowStride + j * matrix.columnStride]));
  });
}

template <typename T>
void storeBlock(const T *from, int64_t stride, const Matrix &matrix, int64_t row, int64_t column, int64_t rows,
                int64_t columns) {
  withType(matrix.dtype, [&](auto type) {
    using A = decltype(load(type));
    auto *data =
        reinterpret_cast<decltype(type) *>(matrix.data) + row * matrix.rowStride + column * matrix.columnStride;
    if constexpr (std::is_floating_point_v<A>)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          store(static_cast<A>(from[i * stride + j]), data[i * matrix.rowStride + j * matrix.columnStride]);
  });
}

//===-----------------------------------------------------------------------------------------===//
// Products
//===-----------------------------------------------------------------------------------------===//

struct FreeMemory {
  void operator()(void *memory) const { std::free(memory); }
};

template <typename T> std::unique_ptr<T[], FreeMemory> makeSpace(int64_t elements) {
  constexpr size_t alignment = 64;
  size_t bytes = (elements * sizeof(T) + alignment - 1) / alignment * alignment;
  return std::unique_ptr<T[], FreeMemory>(static_cast<T *>(std::aligned_alloc(alignment, std::max(bytes, alignment))));
}

int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// What `multiply` works on.
struct Product {
  Matrix left, right, result;
  int64_t m, n, k;
  bool accumulates; ///< adds to what the result holds
};

template <typename T, bool fused> Outcome multiply(const Product &product) {
  static const TileKernel<T> tile = Tiles<T, fused>::choose();
  const auto &[left, right, result, m, n, k, accumulates] = product;
  int64_t mostRows = roundUp(std::min(m, kBlockRows), tile.rows);
  int64_t mostColumns = roundUp(std::min(n, kBlockColumns), tile.columns);
  auto rightPanels = makeSpace<T>(k * mostColumns), leftPanels = makeSpace<T>(mostRows * std::min(k, kBlockDepth));
  auto block = makeSpace<T>(mostRows * mostColumns);
  if (!rightPanels || !leftPanels || !block)
    return Outcome::noMemory;
  for (int64_t column = 0; column < n; column += kBlockColumns) {
    int64_t columns = std::min(kBlockColumns, n - column), stride = roundUp(columns, tile.columns);
    // By depth first, so that the panels of one step of k lie together.
    for (int64_t at = 0; at < k; at += kBlockDepth)
      pack(right, /*linesAreRows=*/false, column, columns, at, std::min(kBlockDepth, k - at), tile.columns,
           rightPanels.get() + at * stride);
    for (int64_t row = 0; row < m; row += kBlockRows) {
      int64_t rows = std::min(kBlockRows, m - row), paddedRows = roundUp(rows, tile.rows);
      std::fill(block.get(), block.get() + paddedRows * stride, T(0));
      if (accumulates)
        loadBlock(result, row, column, rows, columns, block.get(), stride);
      for (int64_t at = 0; at < k; at += kBlockDepth) {
        int64_t depth = std::min(kBlockDepth, k - at);
        pack(left, /*linesAreRows=*/true, row, rows, at, depth, tile.rows, leftPanels.get());
        for (int64_t j = 0; j < stride; j += tile.columns)
          for (int64_t i = 0; i < paddedRows; i += tile.rows)
            tile.run(depth, leftPanels.get() + i * depth, rightPanels.get() + at * stride + j * depth,
                     block.get() + i * stride + j, stride);
      }
      storeBlock(block.get(), stride, result, row, column, rows, columns);
    }
  }
  return Outcome::ran;
}

bool isSmallFloat(int32_t dtype) { return dtype == COMMRT_F16 || dtype == COMMRT_BF16; }

/// Whether f32 does not hold every value.
bool isWide(int32_t dtype) {
  return dtype == COMMRT_F64 || (dtype > COMMRT_F64 && dtype != COMMRT_I1 && commrt_dtype_size(dtype) > 2);
}

Outcome multiplyTyped(const Product &product) {
  int32_t left = product.left.dtype, right = product.right.dtype;
  if (isWideProduct(left, right, product.result.dtype))
    return multiply<double, false>(product);
  if (isSmallFloat(left) && isSmallFloat(right))
    return multiply<float, true>(product);
  return multiply<float, false>(product);
}

} // namespace

bool commsched::runtime::isWideProduct(int32_t left, int32_t right, int32_t result) {
  return isWide(left) || isWide(right) || result == COMMRT_F64;
}

bool commsched::runtime::findMatrices(const Call &call, MatrixShape &shape) {
  if (call.inputs.size() < 2 || call.inputs.size() > 3 || call.outputs.size() != 1)
    return false;
  bool hasBias = call.inputs.size() == 3;
  const Operand &a = *call.inputs[hasBias], &b = *call.inputs[hasBias + 1], &out = *call.outputs[0];
  size_t rank = a.sizes.size();
  if (rank < 2 || b.sizes.size() != rank || out.sizes.size() != rank || !out.isFloat())
    return false;
  int64_t m = a.sizes[rank - 2], k = a.sizes[rank - 1], n = b.sizes[rank - 1], batches = 1;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (a.sizes[i] != b.sizes[i] || a.sizes[i] != out.sizes[i])
      return false;
    batches *= a.sizes[i];
  }
  if (b.sizes[rank - 2] != k || out.sizes[rank - 2] != m || out.sizes[rank - 1] != n || out.elements == 0)
    return false;
  shape = {hasBias, m, n, k, batches};
  return !hasBias || (batches == 1 && (call.inputs[0]->elements == n || call.inputs[0]->elements == m * n));
}

Outcome commsched::runtime::multiplyMatrices(Call &call) {
  MatrixShape shape;
  if (!findMatrices(call, shape))
    return Outcome::notApplicable;
  auto [hasBias, m, n, k, batches] = shape;
  const Operand &a = *call.inputs[hasBias], &b = *call.inputs[hasBias + 1];
  Operand &out = *call.outputs[0];
  for (int64_t batch = 0; batch < batches; ++batch) {
    auto at = [batch](const Operand &operand, int64_t elements) {
      return operand.data + batch * elements * commrt_dtype_size(operand.dtype);
    };
    Product product = {{at(a, m * k), a.dtype, k, 1},
                       {at(b, k * n), b.dtype, n, 1},
                       {at(out, m * n), out.dtype, n, 1},
                       m,
                       n,
                       k,
                       hasBias};
    if (hasBias) {
      std::vector<double> row(n);
      for (int64_t i = 0; i < m; ++i) {
        loadElements(*call.inputs[0], call.inputs[0]->elements == n ? 0 : i * n, n, row.data());
        storeElements(out, i * n, n, row.data());
      }
    }
    if (Outcome outcome = multiplyTyped(product); outcome != Outcome::ran)
      return outcome;
  }
  return Outcome::ran;
}

/// Operands: left, right, and the result, to which the product is added. Their sizes say nothing; extra says all:
/// [number of batch dimensions, sizes of (batch..., m, n, k), strides in elements of left (batch..., m, k),
///  right (batch..., k, n) and result (batch..., m, n)].
Outcome commsched::runtime::readContraction(const Call &call, Contraction &contraction) {
  if (call.inputs.size() != 3 || !call.outputs.empty() || call.mutated.size() != 1 ||
      call.mutated[0] != call.inputs[2] || !call.inputs[2]->isFloat() || call.extra.empty())
    return Outcome::invalid;
  int64_t batchDims = call.extra[0], left = call.extra.size();
  if (batchDims < 0 || batchDims > left || left != 1 + batchDims + 3 + 3 * (batchDims + 2))
    return Outcome::invalid;
  const int64_t *sizes = call.extra.data() + 1, *strides = sizes + batchDims + 3;
  for (int64_t i = 0; i < batchDims + 3; ++i)
    if (sizes[i] < 0)
      return Outcome::invalid;
  contraction = {batchDims, sizes, {strides, strides + batchDims + 2, strides + 2 * (batchDims + 2)}};
  return Outcome::ran;
}

Outcome commsched::runtime::contract(Call &call) {
  Contraction contraction;
  if (Outcome outcome = readContraction(call, contraction); outcome != Outcome::ran)
    return outcome;
  auto &[batchDims, sizes, strides] = contraction;
  for (int64_t i = 0; i < batchDims + 2; ++i)
    if (sizes[i] == 0) // without k the result stays
      return Outcome::ran;
  std::vector<int64_t> index(batchDims, 0);
  while (true) {
    Matrix matrices[3];
    for (int i = 0; i < 3; ++i) {
      const Operand &operand = *call.inputs[i];
      int64_t at = 0;
      for (int64_t dim = 0; dim < batchDims; ++dim)
        at += index[dim] * strides[i][dim];
      matrices[i] = {operand.data + at * commrt_dtype_size(operand.dtype), operand.dtype, strides[i][batchDims],
                     strides[i][batchDims + 1]};
    }
    Outcome outcome = multiplyTyped({matrices[0], matrices[1], matrices[2], sizes[batchDims], sizes[batchDims + 1],
                                     sizes[batchDims + 2], /*accumulates=*/true});
    if (outcome != Outcome::ran)
      return outcome;
    int64_t dim = batchDims;
    while (dim-- > 0 && ++index[dim] == sizes[dim])
      index[dim] = 0;
    if (dim < 0)
      return Outcome::ran;
  }
}
