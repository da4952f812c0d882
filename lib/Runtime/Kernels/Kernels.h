//===- Kernels.h - What the reference kernels share -------------------------------------------===//
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
#include "Core/Formats.h"
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
  noMemory
};

using Kernel = Outcome (*)(Call &);

/// The kernel of an operator's name without prefix and overload ("add", "mm"), or null.
Kernel findNumericKernel(std::string_view name);
/// The kernel of a name that the lowering reserves ("comm.pack"), or null.
Kernel findReservedKernel(std::string_view name);
/// Outputs that depend on the name and on every bit of the inputs.
void runOpaque(Call &call);

// NumericKernels.cpp: matrix products in MatrixKernels.cpp.
Outcome multiplyMatrices(Call &call);
/// A product of strided operands that a lowering found in a program; see the definition.
Outcome contract(Call &call);

// FsdpKernels.cpp
Outcome pack(Call &call);
Outcome chunkCat(Call &call);
Outcome splitCopy(Call &call);

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
