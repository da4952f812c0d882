//===- QuantiseKernels.h - Kernels that pack elements into 8 bits -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A block of 128 elements becomes 129 bytes: a number of f8E4M3FN for each element, and the scale by which they are
// multiplied, a power of two in the format E8M0 (OCP Microscaling Formats, version 1.0, section 5.4.1).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_REWRITES_QUANTISEKERNELS_H
#define COMMSCHED_LIB_TRANSFORMS_REWRITES_QUANTISEKERNELS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace commsched {

/// Returns true if the kernels know the element type: f32, f16 and bf16.
bool isQuantisable(mlir::Type element);

/// The type that a tensor of static shape is packed into: one row of 129 bytes for each block of 128 consecutive
/// elements, of which the last may be shorter.
mlir::RankedTensorType packedTypeOf(mlir::RankedTensorType shard);

/// Builds the operations that pack `shard`. Each element is divided by the scale of its block and rounded to nearest,
/// ties to even. The scale is the smallest power of two with which the block fits, and a NaN if an element is infinite
/// or NaN.
mlir::Value buildPacking(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value shard);

/// Builds the operations that unpack `gathered`, which holds the packed tensors of type `shard` of all ranks one after
/// the other, and concatenate them along `dim`. All elements of a block whose scale is a NaN are NaN.
mlir::Value buildUnpacking(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value gathered,
                           mlir::RankedTensorType shard, int64_t ranks, int64_t dim);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_REWRITES_QUANTISEKERNELS_H
