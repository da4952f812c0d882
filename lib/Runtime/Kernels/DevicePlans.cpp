//===- DevicePlans.cpp - Computations as launches on a device ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Which kernel of Device/Kernels.h carries a computation out, and with which sizes and strides. Whether the operands
// fit is asked of the same functions as on the host.
//
//===------------------------------------------------------------------------------------------===//

#include "DeviceLauncher.h"
#include <algorithm>
#include <numeric>

using namespace commsched::runtime;
using device::mostDims;

namespace {
/// Dimensions with strides for up to two inputs, of which those that lie together are merged. Size 1 is left out.
struct Dims {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides; ///< indexed by dimension, then by input

  /// The next inner dimension.
  void add(int64_t size, const std::vector<int64_t> &steps) {
    if (size == 1)
      return;
    bool isTogether = !sizes.empty();
    for (size_t k = 0; isTogether && k < steps.size(); ++k)
      isTogether = strides.back()[k] == steps[k] * size;
    if (isTogether) {
      sizes.back() *= size;
      strides.back() = steps;
    } else {
      sizes.push_back(size);
      strides.push_back(steps);
    }
  }
  bool fits() const { return sizes.size() <= mostDims; }
  int32_t rank() const { return static_cast<int32_t>(sizes.size()); }
  void writeSizes(int64_t *to) const { std::copy(sizes.begin(), sizes.end(), to); }
  void writeStrides(size_t input, int64_t *to) const {
    for (size_t dim = 0; dim < strides.size(); ++dim)
      to[dim] = strides[dim][input];
  }
};
} // namespace

//===-----------------------------------------------------------------------------------------===//
// Elementwise
//===-----------------------------------------------------------------------------------------===//

static Outcome launchElementwise(const std::vector<Operand *> &inputs, const Operand &out, device::Function function,
                                 DeviceLauncher &device) {
  device::Elementwise a = {};
  std::vector<std::vector<int64_t>> strides(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!findBroadcast(*inputs[k], out, strides[k]))
      return Outcome::notApplicable;
    a.inputs[k] = inputs[k]->data;
    a.types[k] = inputs[k]->dtype;
  }
  Dims dims;
  for (size_t dim = 0; dim < out.sizes.size(); ++dim) {
    std::vector<int64_t> steps;
    for (const auto &each : strides)
      steps.push_back(each[dim]);
    dims.add(out.sizes[dim], steps);
  }
  if (!dims.fits())
    return Outcome::needsHost;
  a.out = out.data;
  a.outType = out.dtype;
  a.elements = out.elements;
  a.rank = dims.rank();
  dims.writeSizes(a.sizes);
  for (size_t k = 0; k < inputs.size(); ++k)
    dims.writeStrides(k, a.strides[k]);
  a.numInputs = static_cast<int32_t>(inputs.size());
  a.function = function;
  device.launch("runElementwise", a, out.elements);
  return device.outcome();
}

Outcome commsched::runtime::planElementwise(Call &call, const NamedKernel &kernel, DeviceLauncher &device) {
  size_t inputs = kernel.function >= device::Function::add ? 2 : 1;
  if (call.inputs.size() != inputs || call.outputs.size() != 1)
    return Outcome::notApplicable;
  return launchElementwise(call.inputs, *call.outputs[0], kernel.function, device);
}

//===-----------------------------------------------------------------------------------------===//
// Rows, sums, transposition
//===-----------------------------------------------------------------------------------------===//

static Outcome launchRows(const Call &call, const char *kernel, DeviceLauncher &device) {
  const Operand &out = *call.outputs[0];
  int64_t length = out.sizes.back(), rows = length ? out.elements / length : 0;
  device::Rows a = {{}, out.data, rows, length, {}, out.dtype, 0};
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    a.inputs[k] = call.inputs[k]->data;
    a.types[k] = call.inputs[k]->dtype;
  }
  device.launch(kernel, a, rows);
  return device.outcome();
}

Outcome commsched::runtime::planSoftmax(Call &call, const NamedKernel &, DeviceLauncher &device) {
  return isSoftmax(call) ? launchRows(call, "softmaxRows", device) : Outcome::notApplicable;
}

Outcome commsched::runtime::planSoftmaxBackward(Call &call, const NamedKernel &, DeviceLauncher &device) {
  return isSoftmaxBackward(call) ? launchRows(call, "softmaxBackwardRows", device) : Outcome::notApplicable;
}

static Outcome launchSum(Call &call, bool isMean, DeviceLauncher &device) {
  if (call.inputs.size() != 1 || call.outputs.size() != 1 || !call.outputs[0]->isFloat())
    return Outcome::notApplicable;
  const Operand &in = *call.inputs[0], &out = *call.outputs[0];
  std::vector<bool> isKept;
  if (!findKeptDims(in, out, isKept))
    return Outcome::notApplicable;
  // A mean of nothing divides by zero, which the kernel would take for no division.
  if (in.elements == 0 && isMean)
    return Outcome::needsHost;
  std::vector<int64_t> strides(in.sizes.size());
  int64_t stride = 1;
  for (size_t dim = in.sizes.size(); dim-- > 0; stride *= in.sizes[dim])
    strides[dim] = stride;
  Dims kept, reduced;
  for (size_t dim = 0; dim < in.sizes.size(); ++dim)
    (isKept[dim] ? kept : reduced).add(in.sizes[dim], {strides[dim]});
  if (!kept.fits() || !reduced.fits())
    return Outcome::needsHost;
  device::Sum a = {};
  a.in = in.data;
  a.out = out.data;
  a.outputs = out.elements;
  a.inputsPerOutput = out.elements ? in.elements / out.elements : 0;
  a.divisor = isMean ? static_cast<double>(in.elements) / static_cast<double>(std::max<int64_t>(1, out.elements)) : 0;
  a.keptRank = kept.rank();
  a.reducedRank = reduced.rank();
  kept.writeSizes(a.keptSizes);
  kept.writeStrides(0, a.keptStrides);
  reduced.writeSizes(a.reducedSizes);
  reduced.writeStrides(0, a.reducedStrides);
  a.inType = in.dtype;
  a.outType = out.dtype;
  device.launch("sumDims", a, out.elements);
  return device.outcome();
}

Outcome commsched::runtime::planSum(Call &call, const NamedKernel &, DeviceLauncher &device) {
  return launchSum(call, false, device);
}
Outcome commsched::runtime::planMean(Call &call, const NamedKernel &, DeviceLauncher &device) {
  return launchSum(call, true, device);
}

Outcome commsched::runtime::planTranspose(Call &call, const NamedKernel &, DeviceLauncher &device) {
  Exchange exchange;
  if (!findExchange(call, exchange))
    return Outcome::notApplicable;
  auto [outer, first, middle, second, inner] = exchange;
  device::Strided a = {};
  a.in = call.inputs[0]->data;
  a.out = call.outputs[0]->data;
  a.elements = call.inputs[0]->elements;
  a.width = static_cast<int32_t>(commrt_dtype_size(call.inputs[0]->dtype));
  // In the order of the output.
  Dims dims;
  dims.add(outer, {first * middle * second * inner});
  dims.add(second, {inner});
  dims.add(middle, {second * inner});
  dims.add(first, {middle * second * inner});
  dims.add(inner, {1});
  a.rank = dims.rank();
  dims.writeSizes(a.sizes);
  dims.writeStrides(0, a.strides);
  device.launch("copyStrided", a, a.elements);
  return device.outcome();
}

//===-----------------------------------------------------------------------------------------===//
// Copies
//===-----------------------------------------------------------------------------------------===//

/// Copies without conversion move words as large as every row begins and ends with.
static void widen(device::Piece &piece) {
  if (piece.fromType != piece.toType)
    return;
  int64_t size = commrt_dtype_size(piece.toType);
  auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(piece.from) | reinterpret_cast<uintptr_t>(piece.to));
  for (int64_t elements : {piece.rowElements, piece.fromPitch, piece.toPitch, piece.fromElements})
    bits |= static_cast<uint64_t>(elements * size);
  for (auto [width, type] : {std::pair<int64_t, int32_t>(8, COMMRT_U64), {4, COMMRT_U32}, {2, COMMRT_U16}}) {
    if (width <= size || bits % width != 0)
      continue;
    for (int64_t *elements : {&piece.rowElements, &piece.fromPitch, &piece.toPitch, &piece.fromElements})
      *elements = *elements * size / width;
    piece.fromType = piece.toType = type;
    return;
  }
}

template <FsdpPlan plan>
Outcome commsched::runtime::planPieces(Call &call, const NamedKernel &, DeviceLauncher &device) {
  std::vector<device::Piece> pieces;
  if (Outcome outcome = plan(call, pieces); outcome != Outcome::ran)
    return outcome;
  device::Pieces a = {};
  for (size_t i = 0; i < pieces.size(); ++i) {
    device::Piece &piece = pieces[i];
    widen(piece);
    a.pieces[a.count] = piece;
    a.first[a.count + 1] = a.first[a.count] + piece.rows * piece.rowElements;
    if (++a.count < device::mostPieces && i + 1 < pieces.size())
      continue;
    device.launch("copyPieces", a, a.first[a.count]);
    a.count = 0;
  }
  return device.outcome();
}
template Outcome commsched::runtime::planPieces<planPack>(Call &, const NamedKernel &, DeviceLauncher &);
template Outcome commsched::runtime::planPieces<planChunkCat>(Call &, const NamedKernel &, DeviceLauncher &);
template Outcome commsched::runtime::planPieces<planSplitCopy>(Call &, const NamedKernel &, DeviceLauncher &);

//===-----------------------------------------------------------------------------------------===//
// Matrix products
//===-----------------------------------------------------------------------------------------===//

static void launchProduct(device::Product a, DeviceLauncher &device) {
  a.isWide = isWideProduct(a.leftType, a.rightType, a.resultType);
  device.multiply(a);
}

Outcome commsched::runtime::planMatrices(Call &call, const NamedKernel &, DeviceLauncher &device) {
  MatrixShape shape;
  if (!findMatrices(call, shape))
    return Outcome::notApplicable;
  auto [hasBias, m, n, k, batches] = shape;
  const Operand &left = *call.inputs[hasBias], &right = *call.inputs[hasBias + 1];
  Operand &out = *call.outputs[0];
  if (hasBias) { // N or M x N elements, whatever the bias's own shape
    Operand bias = *call.inputs[0];
    bias.sizes = bias.elements == n ? std::vector<int64_t>{n} : std::vector<int64_t>{m, n};
    if (Outcome copied = launchElementwise({&bias}, out, device::Function::same, device); copied != Outcome::ran)
      return copied;
  }
  device::Product a = {};
  a.left = left.data;
  a.right = right.data;
  a.result = out.data;
  a.m = m;
  a.n = n;
  a.k = k;
  a.batches = a.batchSizes[0] = batches;
  a.batchRank = 1;
  int64_t steps[3] = {m * k, k * n, m * n};
  for (int i = 0; i < 3; ++i)
    a.batchStrides[i][0] = steps[i];
  a.leftStrides[0] = k;
  a.rightStrides[0] = a.resultStrides[0] = n;
  a.leftStrides[1] = a.rightStrides[1] = a.resultStrides[1] = 1;
  a.leftType = left.dtype;
  a.rightType = right.dtype;
  a.resultType = out.dtype;
  a.accumulates = hasBias;
  launchProduct(a, device);
  return device.outcome();
}

Outcome commsched::runtime::planContraction(Call &call, const NamedKernel &, DeviceLauncher &device) {
  Contraction contraction;
  if (Outcome outcome = readContraction(call, contraction); outcome != Outcome::ran)
    return outcome;
  auto &[batchDims, sizes, strides] = contraction;
  Dims dims;
  for (int64_t dim = 0; dim < batchDims; ++dim)
    dims.add(sizes[dim], {strides[0][dim], strides[1][dim], strides[2][dim]});
  if (!dims.fits())
    return Outcome::needsHost;
  device::Product a = {};
  a.m = sizes[batchDims];
  a.n = sizes[batchDims + 1];
  a.k = sizes[batchDims + 2];
  a.batches = std::accumulate(sizes, sizes + batchDims, int64_t(1), std::multiplies<>());
  a.batchRank = dims.rank();
  dims.writeSizes(a.batchSizes);
  for (int i = 0; i < 3; ++i)
    dims.writeStrides(i, a.batchStrides[i]);
  const Operand &left = *call.inputs[0], &right = *call.inputs[1], &result = *call.inputs[2];
  a.left = left.data;
  a.right = right.data;
  a.result = result.data;
  a.leftType = left.dtype;
  a.rightType = right.dtype;
  a.resultType = result.dtype;
  for (int i = 0; i < 2; ++i) {
    a.leftStrides[i] = strides[0][batchDims + i];
    a.rightStrides[i] = strides[1][batchDims + i];
    a.resultStrides[i] = strides[2][batchDims + i];
  }
  a.accumulates = 1;
  launchProduct(a, device);
  return device.outcome();
}

//===-----------------------------------------------------------------------------------------===//
// Opaque computations
//===-----------------------------------------------------------------------------------------===//

Outcome commsched::runtime::planOpaque(Call &call, DeviceLauncher &device) {
  auto inputs = static_cast<int64_t>(call.inputs.size());
  auto *sums = static_cast<uint64_t *>(device.scratch((inputs + 1) * static_cast<int64_t>(sizeof(uint64_t))));
  if (!sums)
    return Outcome::failed;
  for (int64_t i = 0; i < inputs; ++i) {
    int64_t bytes = call.inputs[i]->bytes(), words = (bytes + 7) / 8;
    device.launch("digestBytes", device::Digest{call.inputs[i]->data, bytes, sums + i}, std::max<int64_t>(1, words));
  }
  device.launch("chainDigests", device::Chain{sums, inputs, hashOfName(call.name)}, 1);
  uint64_t number = 0;
  for (auto *list : {&call.mutated, &call.outputs})
    for (Operand *operand : *list)
      device.launch("fillOpaque",
                    device::Fill{operand->data, sums + inputs, ++number, operand->elements, operand->dtype, 0},
                    operand->elements);
  return device.outcome();
}
