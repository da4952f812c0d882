//===- NumericKernels.cpp - Reference kernels of common operators -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plain kernels: values are computed in double precision in index order and rounded once. The results are equal bit for
// bit on all ranks of a job and for every schedule, as far as the mathematics library gives equal results everywhere:
// the one of glibc chooses variants of exp, log, sin, cos, tanh, erf and pow by the processor.
//
// Operators whose attributes a call does not carry (the dimension of a sum, which dimensions are swapped) have a kernel
// only if the shapes leave one possibility.
//
//===------------------------------------------------------------------------------------------===//

#include "Kernels.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

using namespace commsched::runtime;

/// Elements that are computed at a time.
static constexpr int64_t kBlock = 512;

void commsched::runtime::loadElements(const Operand &operand, int64_t at, int64_t count, double *to) {
  withType(operand.dtype, [&](auto type) {
    // Buckets of mixed types place elements at any byte.
    const char *from = operand.data + at * static_cast<int64_t>(sizeof(type));
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(&type, from + i * static_cast<int64_t>(sizeof(type)), sizeof(type));
      to[i] = static_cast<double>(load(type));
    }
  });
}

void commsched::runtime::storeElements(Operand &operand, int64_t at, int64_t count, const double *from) {
  withType(operand.dtype, [&](auto type) {
    using T = decltype(type);
    using A = decltype(load(type));
    char *to = operand.data + at * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      double value = from[i];
      T element;
      if constexpr (std::is_floating_point_v<A>)
        store(static_cast<A>(value), element);
      else if constexpr (std::is_same_v<T, Bool>)
        store(static_cast<A>(value != 0), element);
      else // out of range has no meaning in C++
        store(
            static_cast<A>(static_cast<int64_t>(std::fmin(std::fmax(std::isnan(value) ? 0 : value, -9.2e18), 9.2e18))),
            element);
      std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
    }
  });
}

//===-----------------------------------------------------------------------------------------===//
// Elementwise
//===-----------------------------------------------------------------------------------------===//

namespace {
/// Reads an operand in the order of an output's elements: dimensions are aligned at the end, and one of size 1 is
/// repeated.
class Broadcast {
public:
  Broadcast(const Operand &operand, const Operand &out) : operand(operand), sizes(out.sizes), index(out.sizes.size()) {
    strides.assign(sizes.size(), 0);
    fits = operand.sizes.size() <= sizes.size();
    int64_t stride = 1;
    for (size_t i = 1; fits && i <= operand.sizes.size(); ++i) {
      int64_t size = operand.sizes[operand.sizes.size() - i];
      fits = size == 1 || size == sizes[sizes.size() - i];
      strides[sizes.size() - i] = size == 1 ? 0 : stride;
      stride *= size;
    }
    isWhole = fits && operand.elements == out.elements;
  }

  bool isPossible() const { return fits; }

  void next(int64_t count, double *to) {
    if (isWhole) {
      loadElements(operand, at, count, to);
      at += count;
      return;
    }
    size_t last = sizes.size() - 1;
    while (count > 0) {
      int64_t run = std::min(count, sizes[last] - index[last]);
      if (strides[last] == 0) {
        loadElements(operand, at, 1, to);
        std::fill(to + 1, to + run, to[0]);
      } else {
        loadElements(operand, at, run, to);
      }
      skip(run);
      to += run;
      count -= run;
    }
  }

private:
  /// Goes on by `run` elements, which end in this row.
  void skip(int64_t run) {
    size_t last = sizes.size() - 1;
    index[last] += run;
    at += run * strides[last];
    for (size_t dim = last; index[dim] == sizes[dim]; --dim) {
      at -= strides[dim] * sizes[dim];
      index[dim] = 0;
      if (dim == 0)
        return;
      ++index[dim - 1];
      at += strides[dim - 1];
    }
  }

  const Operand &operand;
  const std::vector<int64_t> &sizes;
  std::vector<int64_t> strides, index;
  int64_t at = 0;
  bool fits = true, isWhole = false;
};
} // namespace

template <double (*F)(double)> static Outcome unary(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1)
    return Outcome::notApplicable;
  Operand &out = *call.outputs[0];
  Broadcast input(*call.inputs[0], out);
  if (!input.isPossible())
    return Outcome::notApplicable;
  double block[kBlock];
  for (int64_t at = 0; at < out.elements; at += kBlock) {
    int64_t count = std::min(kBlock, out.elements - at);
    input.next(count, block);
    for (int64_t i = 0; i < count; ++i)
      block[i] = F(block[i]);
    storeElements(out, at, count, block);
  }
  return Outcome::ran;
}

template <double (*F)(double, double)> static Outcome binary(Call &call) {
  if (call.inputs.size() != 2 || call.outputs.size() != 1)
    return Outcome::notApplicable;
  Operand &out = *call.outputs[0];
  Broadcast left(*call.inputs[0], out), right(*call.inputs[1], out);
  if (!left.isPossible() || !right.isPossible())
    return Outcome::notApplicable;
  double a[kBlock], b[kBlock];
  for (int64_t at = 0; at < out.elements; at += kBlock) {
    int64_t count = std::min(kBlock, out.elements - at);
    left.next(count, a);
    right.next(count, b);
    for (int64_t i = 0; i < count; ++i)
      a[i] = F(a[i], b[i]);
    storeElements(out, at, count, a);
  }
  return Outcome::ran;
}

static double relu(double x) { return x < 0 ? 0 : x; }
static double negate(double x) { return -x; }
static double exponential(double x) { return std::exp(x); }
static double hyperbolicTangent(double x) { return std::tanh(x); }
static double squareRoot(double x) { return std::sqrt(x); }
static double reciprocal(double x) { return 1 / x; }
static double magnitude(double x) { return std::fabs(x); }
static double logarithm(double x) { return std::log(x); }
static double sine(double x) { return std::sin(x); }
static double cosine(double x) { return std::cos(x); }
static double reciprocalRoot(double x) { return 1 / std::sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
static double silu(double x) { return x / (1 + std::exp(-x)); }
static double gelu(double x) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752)); }
static double same(double x) { return x; }
static double add(double x, double y) { return x + y; }
static double subtract(double x, double y) { return x - y; }
static double multiply(double x, double y) { return x * y; }
static double divide(double x, double y) { return x / y; }
static double maximum(double x, double y) { return x < y ? y : x; }
static double minimum(double x, double y) { return y < x ? y : x; }
static double power(double x, double y) { return std::pow(x, y); }
static double reluBackward(double gradient, double x) { return x > 0 ? gradient : 0; }

//===-----------------------------------------------------------------------------------------===//
// Rows
//===-----------------------------------------------------------------------------------------===//

/// Over the last dimension.
static Outcome softmax(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1 || call.inputs[0]->sizes != call.outputs[0]->sizes ||
      call.inputs[0]->sizes.empty() || !call.outputs[0]->isFloat())
    return Outcome::notApplicable;
  const Operand &in = *call.inputs[0];
  int64_t n = in.sizes.back(), rows = n ? in.elements / n : 0;
  std::vector<double> row(n);
  for (int64_t r = 0; r < rows; ++r) {
    loadElements(in, r * n, n, row.data());
    double largest = row[0], sum = 0;
    for (double value : row)
      largest = std::fmax(largest, value);
    for (double &value : row)
      sum += value = std::exp(value - largest);
    for (double &value : row)
      value /= sum;
    storeElements(*call.outputs[0], r * n, n, row.data());
  }
  return Outcome::ran;
}

/// From the gradient of the result and the result: r * (g - sum of g * r over the last dimension).
static Outcome softmaxBackward(Call &call) {
  if (call.inputs.size() != 2 || call.outputs.size() != 1 || call.inputs[0]->sizes != call.outputs[0]->sizes ||
      call.inputs[1]->sizes != call.outputs[0]->sizes || call.inputs[0]->sizes.empty() || !call.outputs[0]->isFloat())
    return Outcome::notApplicable;
  int64_t n = call.inputs[1]->sizes.back(), rows = n ? call.inputs[1]->elements / n : 0;
  std::vector<double> gradient(n), result(n);
  for (int64_t r = 0; r < rows; ++r) {
    loadElements(*call.inputs[0], r * n, n, gradient.data());
    loadElements(*call.inputs[1], r * n, n, result.data());
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
      sum += gradient[i] * result[i];
    for (int64_t i = 0; i < n; ++i)
      gradient[i] = result[i] * (gradient[i] - sum);
    storeElements(*call.outputs[0], r * n, n, gradient.data());
  }
  return Outcome::ran;
}

//===-----------------------------------------------------------------------------------------===//
// Sums
//===-----------------------------------------------------------------------------------------===//

/// Counts, up to two, the ways to drop dimensions of `sizes` so that `kept` is left, and gives the first of them. No
/// size is 1. O(product of the ranks).
static int countWays(const std::vector<int64_t> &sizes, const std::vector<int64_t> &kept, std::vector<bool> &way) {
  // ways[i][j]: of the dimensions from i on to those of `kept` from j on.
  size_t n = sizes.size(), m = kept.size();
  std::vector<std::vector<int>> ways(n + 1, std::vector<int>(m + 1, 0));
  for (size_t i = n + 1; i-- > 0;)
    for (size_t j = m + 1; j-- > 0;) {
      if (i == n)
        ways[i][j] = j == m;
      else
        ways[i][j] = std::min(2, ways[i + 1][j] + (j < m && sizes[i] == kept[j] ? ways[i + 1][j + 1] : 0));
    }
  way.assign(n, false);
  if (ways[0][0] == 0)
    return 0;
  for (size_t i = 0, j = 0; i < n; ++i)
    if (j < m && sizes[i] == kept[j] && ways[i + 1][j + 1] > 0) {
      way[i] = true;
      ++j;
    }
  return ways[0][0];
}

/// The input's dimensions that a sum to `out` leaves; false if `out` is no such sum, or if several sets of dimensions
/// give its shape.
static bool findKeptDims(const Operand &in, const Operand &out, std::vector<bool> &kept) {
  size_t rank = in.sizes.size();
  kept.assign(rank, false);
  if (out.sizes.size() == rank) { // the others are 1
    for (size_t dim = 0; dim < rank; ++dim) {
      kept[dim] = out.sizes[dim] == in.sizes[dim];
      if (!kept[dim] && out.sizes[dim] != 1)
        return false;
    }
    return true;
  }
  // Dimensions of size 1 make no difference.
  std::vector<int64_t> from, to;
  std::vector<size_t> dims;
  for (size_t dim = 0; dim < rank; ++dim)
    if (in.sizes[dim] != 1) {
      from.push_back(in.sizes[dim]);
      dims.push_back(dim);
    }
  std::copy_if(out.sizes.begin(), out.sizes.end(), std::back_inserter(to), [](int64_t size) { return size != 1; });
  std::vector<bool> way;
  if (out.sizes.size() > rank || countWays(from, to, way) != 1)
    return false;
  for (size_t i = 0; i < dims.size(); ++i)
    kept[dims[i]] = way[i];
  return true;
}

/// Sum or mean, each in order of the input's elements.
template <bool isMean> static Outcome reduction(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1 || !call.outputs[0]->isFloat())
    return Outcome::notApplicable;
  const Operand &in = *call.inputs[0];
  Operand &out = *call.outputs[0];
  std::vector<bool> kept;
  if (!findKeptDims(in, out, kept))
    return Outcome::notApplicable;
  size_t rank = in.sizes.size();
  std::vector<int64_t> strides(rank, 0), index(rank, 0);
  int64_t stride = 1, at = 0;
  for (size_t dim = rank; dim-- > 0;)
    if (kept[dim]) {
      strides[dim] = stride;
      stride *= in.sizes[dim];
    }
  std::vector<double> sums(out.elements, 0.0);
  double block[kBlock];
  for (int64_t begin = 0; begin < in.elements; begin += kBlock) {
    int64_t count = std::min(kBlock, in.elements - begin);
    loadElements(in, begin, count, block);
    for (int64_t i = 0; i < count; ++i) {
      sums[at] += block[i];
      for (size_t dim = rank; dim-- > 0;) {
        at += strides[dim];
        if (++index[dim] < in.sizes[dim])
          break;
        at -= strides[dim] * in.sizes[dim];
        index[dim] = 0;
      }
    }
  }
  if (isMean && out.elements > 0) {
    double count = static_cast<double>(in.elements) / static_cast<double>(out.elements);
    for (double &sum : sums)
      sum /= count;
  }
  storeElements(out, 0, out.elements, sums.data());
  return Outcome::ran;
}

//===-----------------------------------------------------------------------------------------===//
// Transposition
//===-----------------------------------------------------------------------------------------===//

/// Swaps two dimensions: those two whose exchange alone gives the output's shape.
static Outcome transpose(Call &call) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1)
    return Outcome::notApplicable;
  const Operand &in = *call.inputs[0];
  Operand &out = *call.outputs[0];
  size_t rank = in.sizes.size(), first = 0, second = 0;
  if (rank < 2 || out.dtype != in.dtype || out.sizes.size() != rank)
    return Outcome::notApplicable;
  int ways = 0;
  for (size_t i = 0; i < rank; ++i)
    for (size_t j = i + 1; j < rank; ++j) {
      std::vector<int64_t> swapped = in.sizes;
      std::swap(swapped[i], swapped[j]);
      if (swapped == out.sizes) {
        ++ways;
        first = i;
        second = j;
      }
    }
  if (ways != 1)
    return Outcome::notApplicable;
  // [outer][first][middle][second][inner bytes]
  auto product = [&](size_t begin, size_t end) {
    int64_t result = 1;
    for (size_t dim = begin; dim < end; ++dim)
      result *= in.sizes[dim];
    return result;
  };
  int64_t outer = product(0, first), rows = in.sizes[first], middle = product(first + 1, second);
  int64_t cols = in.sizes[second], bytes = product(second + 1, rank) * commrt_dtype_size(in.dtype);
  if (in.elements == 0)
    return Outcome::ran;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t m = 0; m < middle; ++m)
        for (int64_t c = 0; c < cols; ++c)
          std::memcpy(out.data + (((o * cols + c) * middle + m) * rows + r) * bytes,
                      in.data + (((o * rows + r) * middle + m) * cols + c) * bytes, bytes);
  return Outcome::ran;
}

//===-----------------------------------------------------------------------------------------===//
// Names
//===-----------------------------------------------------------------------------------------===//

Kernel commsched::runtime::findNumericKernel(std::string_view name) {
  static const std::unordered_map<std::string_view, Kernel> kernels = {
      {"mm", multiplyMatrices},
      {"bmm", multiplyMatrices},
      {"matmul", multiplyMatrices},
      {"addmm", multiplyMatrices},
      {"relu", unary<relu>},
      {"neg", unary<negate>},
      {"exp", unary<exponential>},
      {"tanh", unary<hyperbolicTangent>},
      {"sqrt", unary<squareRoot>},
      {"reciprocal", unary<reciprocal>},
      {"abs", unary<magnitude>},
      {"log", unary<logarithm>},
      {"sin", unary<sine>},
      {"cos", unary<cosine>},
      {"rsqrt", unary<reciprocalRoot>},
      {"sigmoid", unary<sigmoid>},
      {"silu", unary<silu>},
      {"gelu", unary<gelu>},
      {"copy", unary<same>},
      {"clone", unary<same>},
      {"_to_copy", unary<same>},
      {"convert_element_type", unary<same>},
      {"cast", unary<same>},
      {"add", binary<add>},
      {"sub", binary<subtract>},
      {"mul", binary<multiply>},
      {"div", binary<divide>},
      {"maximum", binary<maximum>},
      {"minimum", binary<minimum>},
      {"pow", binary<power>},
      {"relu_backward", binary<reluBackward>},
      {"threshold_backward", binary<reluBackward>},
      {"softmax", softmax},
      {"_softmax", softmax},
      {"softmax_backward", softmaxBackward},
      {"_softmax_backward_data", softmaxBackward},
      {"sum", reduction<false>},
      {"mean", reduction<true>},
      {"t", transpose},
      {"transpose", transpose},
  };
  auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second;
}

Kernel commsched::runtime::findReservedKernel(std::string_view name) {
  static const std::unordered_map<std::string_view, Kernel> kernels = {
      {"comm.pack", pack}, {"comm.chunk_cat", chunkCat}, {"comm.split_copy", splitCopy}, {"comm.contract", contract}};
  auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second;
}
