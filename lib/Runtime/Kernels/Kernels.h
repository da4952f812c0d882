//===- Kernels.h - Common declarations of the reference kernels ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A kernel takes the operands of one computation. It checks every shape and size that it relies on: names and operands
// come from programs.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_RUNTIME_KERNELS_KERNELS_H
#define COMMSCHED_LIB_RUNTIME_KERNELS_KERNELS_H

#include "CommSched/Runtime/Runtime.h"
#include "Core/Support/Formats.h"
#include "Kernels/Device/Arguments.h"
#include <string>
#include <string_view>
#include <vector>

namespace commsched::runtime {

/// A dense tensor in row-major order.
struct Operand {
  char *data;
  int32_t dtype;
  int64_t flags;
  std::vector<int64_t> sizes;
  int64_t elements; ///< the product of the sizes

  int64_t bytes() const { return elements * commrt_dtype_size(dtype); }
  bool isOutput() const { return flags & COMMRT_OPERAND_OUTPUT; }
  bool isOnHost() const { return flags & COMMRT_OPERAND_HOST; }
  bool isWritten() const { return flags & COMMRT_OPERAND_WRITTEN; }
  bool isFloat() const { return dtype <= COMMRT_F64; }
};

/// The operands of one call, inputs and outputs apart. What is mutated is among the inputs, too.
struct Call {
  std::string_view name;
  std::vector<Operand *> inputs, outputs, mutated;
  std::vector<int64_t> extra;
};

enum class Outcome {
  ran,
  notApplicable, ///< the operands are not those of the kernel; nothing was written
  invalid,       ///< the operands contradict each other; nothing was written
  noMemory,
  failed,   ///< on a device: the context has latched an error
  needsHost ///< on a device: no kernel of the device takes these operands
};

class DeviceLauncher;

/// What a name stands for: the same computation on host memory and on a device.
struct NamedKernel {
  Outcome (*onHost)(Call &call);
  Outcome (*onDevice)(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
  device::Function function = device::Function::same; ///< of elementwise kernels
};

/// The kernel of an operator's name without prefix and overload ("add", "mm"), or null.
const NamedKernel *findNumericKernel(std::string_view name);
/// The kernel of a name that the lowering reserves ("comm.pack"), or null.
const NamedKernel *findReservedKernel(std::string_view name);
/// Outputs that depend on the name and on every bit of the inputs.
void runOpaque(Call &call);
/// The hash of an opaque computation's name, after which those of its inputs are chained.
uint64_t hashOfName(std::string_view name);

//===- What kernels of the host and of devices ask about operands ----------------------------===//

/// The operand's strides in the order of the output's dimensions: these are aligned at the end, and one of size 1 is
/// repeated. False if the operand cannot be repeated so.
bool findBroadcast(const Operand &operand, const Operand &out, std::vector<int64_t> &strides);
/// Whether the operands are those of a softmax over the last dimension, or of its backward.
bool isSoftmax(const Call &call);
bool isSoftmaxBackward(const Call &call);
/// The input's dimensions that a sum to `out` leaves; false if `out` is no such sum, or if several sets of dimensions
/// give its shape.
bool findKeptDims(const Operand &in, const Operand &out, std::vector<bool> &kept);
/// The two dimensions whose exchange alone gives the output's shape: sizes [outer][first][middle][second][inner].
struct Exchange {
  int64_t outer, first, middle, second, inner;
};
bool findExchange(const Call &call, Exchange &exchange);
/// The copies that a computation of comm.fsdp is.
using FsdpPlan = Outcome (*)(Call &call, std::vector<device::Piece> &pieces);
Outcome planPack(Call &call, std::vector<device::Piece> &pieces);
Outcome planChunkCat(Call &call, std::vector<device::Piece> &pieces);
Outcome planSplitCopy(Call &call, std::vector<device::Piece> &pieces);
/// [..., M, K] x [..., K, N], and with `addmm` plus a first operand of N or M x N elements.
struct MatrixShape {
  bool hasBias;
  int64_t m, n, k, batches;
};
bool findMatrices(const Call &call, MatrixShape &shape);
/// A product of strided operands that a lowering found in a program; see the definition. Indexed by operand: left,
/// right, result.
struct Contraction {
  int64_t batchDims;
  const int64_t *sizes;      ///< batch..., m, n, k
  const int64_t *strides[3]; ///< batch..., rows, columns
};
Outcome readContraction(const Call &call, Contraction &contraction);
/// Whether a product of such operands is summed in f64.
bool isWideProduct(int32_t left, int32_t right, int32_t result);

// On host memory: MatrixKernels.cpp, FsdpKernels.cpp.
Outcome multiplyMatrices(Call &call);
Outcome contract(Call &call);
template <FsdpPlan plan> Outcome copyPieces(Call &call);

// On a device: DevicePlans.cpp.
Outcome planElementwise(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planSoftmax(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planSoftmaxBackward(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planSum(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planMean(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planTranspose(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planMatrices(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planContraction(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
template <FsdpPlan plan> Outcome planPieces(Call &call, const NamedKernel &kernel, DeviceLauncher &device);
Outcome planOpaque(Call &call, DeviceLauncher &device);

/// Elements [at, at + count) as doubles: exact for all floating-point types and for integers below 2^53.
void loadElements(const Operand &operand, int64_t at, int64_t count, double *to);
/// Rounds once; integers are truncated, and clamped to what an int64_t holds.
void storeElements(Operand &operand, int64_t at, int64_t count, const double *from);

/// Calls `body` with a value of the element type.
template <typename F> void withType(int32_t dtype, F body) {
  switch (dtype) {
  case COMMRT_F16:
    return body(Half());
  case COMMRT_BF16:
    return body(BFloat());
  case COMMRT_F32:
    return body(float());
  case COMMRT_F64:
    return body(double());
  case COMMRT_I8:
    return body(int8_t());
  case COMMRT_I16:
    return body(int16_t());
  case COMMRT_I32:
    return body(int32_t());
  case COMMRT_I64:
    return body(int64_t());
  case COMMRT_U8:
    return body(uint8_t());
  case COMMRT_U16:
    return body(uint16_t());
  case COMMRT_U32:
    return body(uint32_t());
  case COMMRT_U64:
    return body(uint64_t());
  default:
    return body(Bool());
  }
}

} // namespace commsched::runtime

#endif // COMMSCHED_LIB_RUNTIME_KERNELS_KERNELS_H
