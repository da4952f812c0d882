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

bool commsched::runtime::findBroadcast(const Operand &operand, const Operand &out, std::vector<int64_t> &strides) {
  size_t rank = out.sizes.size();
  strides.assign(rank, 0);
  if (operand.sizes.size() > rank)
    return false;
  int64_t stride = 1;
  for (size_t i = 1; i <= operand.sizes.size(); ++i) {
    int64_t size = operand.sizes[operand.sizes.size() - i];
    if (size != 1 && size != out.sizes[rank - i])
      return false;
    strides[rank - i] = size == 1 ? 0 : stride;
    stride *= size;
  }
  return true;
}

namespace {
/// Reads an operand in the order of an output's elements.
class Broadcast {
public:
  Broadcast(const Operand &operand, const Operand &out)
      : operand(operand), sizes(out.sizes), index(out.sizes.size()), fits(findBroadcast(operand, out, strides)) {
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
  bool fits, isWhole = false;
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

//===-----------------------------------------------------------------------------------------===//
// Rows
//===-----------------------------------------------------------------------------------------===//

bool commsched::runtime::isSoftmax(const Call &call) {
  return call.inputs.size() == 1 && call.outputs.size() == 1 && call.inputs[0]->sizes == call.outputs[0]->sizes &&
         !call.inputs[0]->sizes.empty() && call.outputs[0]->isFloat();
}

bool commsched::runtime::isSoftmaxBackward(const Call &call) {
  return call.inputs.size() == 2 && call.outputs.size() == 1 && call.inputs[0]->sizes == call.outputs[0]->sizes &&
         call.inputs[1]->sizes == call.outputs[0]->sizes && !call.inputs[0]->sizes.empty() &&
         call.outputs[0]->isFloat();
}

/// Over the last dimension.
static Outcome softmax(Call &call) {
  if (!isSoftmax(call))
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
  if (!isSoftmaxBackward(call))
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

bool commsched::runtime::findKeptDims(const Operand &in, const Operand &out, std::vector<bool> &kept) {
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

bool commsched::runtime::findExchange(const Call &call, Exchange &exchange) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1)
    return false;
  const Operand &in = *call.inputs[0], &out = *call.outputs[0];
  size_t rank = in.sizes.size(), first = 0, second = 0;
  if (rank < 2 || out.dtype != in.dtype || out.sizes.size() != rank)
    return false;
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
    return false;
  auto product = [&](size_t begin, size_t end) {
    int64_t result = 1;
    for (size_t dim = begin; dim < end; ++dim)
      result *= in.sizes[dim];
    return result;
  };
  exchange = {product(0, first), in.sizes[first], product(first + 1, second), in.sizes[second],
              product(second + 1, rank)};
  return true;
}

/// Swaps two dimensions.
static Outcome transpose(Call &call) {
  Exchange exchange;
  if (!findExchange(call, exchange))
    return Outcome::notApplicable;
  const Operand &in = *call.inputs[0];
  Operand &out = *call.outputs[0];
  auto [outer, rows, middle, cols, inner] = exchange;
  int64_t bytes = inner * commrt_dtype_size(in.dtype);
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

template <double (*F)(double)> static constexpr NamedKernel unaryKernel(device::Function function) {
  return {unary<F>, planElementwise, function};
}
template <double (*F)(double, double)> static constexpr NamedKernel binaryKernel(device::Function function) {
  return {binary<F>, planElementwise, function};
}

using KernelTable = std::unordered_map<std::string_view, NamedKernel>;
static const NamedKernel *find(const KernelTable &kernels, std::string_view name) {
  auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : &found->second;
}

const NamedKernel *commsched::runtime::findNumericKernel(std::string_view name) {
#define UNARY(function) unaryKernel<device::function>(device::Function::function)
#define BINARY(function) binaryKernel<device::function>(device::Function::function)
  static const NamedKernel product = {multiplyMatrices, planMatrices}, forward = {softmax, planSoftmax},
                           backward = {softmaxBackward, planSoftmaxBackward}, exchange = {transpose, planTranspose};
  static const KernelTable kernels = {
      {"mm", product},
      {"bmm", product},
      {"matmul", product},
      {"addmm", product},
      {"relu", UNARY(relu)},
      {"neg", UNARY(negate)},
      {"exp", UNARY(exponential)},
      {"tanh", UNARY(hyperbolicTangent)},
      {"sqrt", UNARY(squareRoot)},
      {"reciprocal", UNARY(reciprocal)},
      {"abs", UNARY(magnitude)},
      {"log", UNARY(logarithm)},
      {"sin", UNARY(sine)},
      {"cos", UNARY(cosine)},
      {"rsqrt", UNARY(reciprocalRoot)},
      {"sigmoid", UNARY(sigmoid)},
      {"silu", UNARY(silu)},
      {"gelu", UNARY(gelu)},
      {"copy", UNARY(same)},
      {"clone", UNARY(same)},
      {"_to_copy", UNARY(same)},
      {"convert_element_type", UNARY(same)},
      {"cast", UNARY(same)},
      {"add", BINARY(add)},
      {"sub", BINARY(subtract)},
      {"mul", BINARY(multiply)},
      {"div", BINARY(divide)},
      {"maximum", BINARY(maximum)},
      {"minimum", BINARY(minimum)},
      {"pow", BINARY(power)},
      {"relu_backward", BINARY(reluBackward)},
      {"threshold_backward", BINARY(reluBackward)},
      {"softmax", forward},
      {"_softmax", forward},
      {"softmax_backward", backward},
      {"_softmax_backward_data", backward},
      {"sum", {reduction<false>, planSum}},
      {"mean", {reduction<true>, planMean}},
      {"t", exchange},
      {"transpose", exchange},
  };
#undef UNARY
#undef BINARY
  return find(kernels, name);
}

const NamedKernel *commsched::runtime::findReservedKernel(std::string_view name) {
  static const KernelTable kernels = {
      {"comm.pack", {copyPieces<planPack>, planPieces<planPack>}},
      {"comm.chunk_cat", {copyPieces<planChunkCat>, planPieces<planChunkCat>}},
      {"comm.split_copy", {copyPieces<planSplitCopy>, planPieces<planSplitCopy>}},
      {"comm.contract", {contract, planContraction}},
  };
  return find(kernels, name);
}
