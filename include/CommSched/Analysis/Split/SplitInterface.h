//===- SplitInterface.h - Interface for splitting an operation --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The rules that say which operations may be split into strands, and along which dimensions (Strands.md). A rule
// is a list of axes. An operation without an axis is a barrier.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_SPLIT_SPLITINTERFACE_H
#define COMMSCHED_ANALYSIS_SPLIT_SPLITINTERFACE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/OpDefinition.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace commsched {

/// Of an operand: every part needs all of it.
inline constexpr int64_t kWholeOperand = -1;
/// Of a result: every part gives a tensor of the whole size, and the result is the sum of these. An operation in
/// destination-passing style adds to its destination: the first part gets that of the whole, every other one the
/// result of the part before it.
inline constexpr int64_t kPartialResult = -2;

/// One way to split an operation: part i of every result depends only on part i of the operands that are split, and on
/// all of the other operands.
struct SplitAxis {
  /// Indexed by operand: the dimension that is split, or kWholeOperand. A future has the dimensions of its only tensor.
  llvm::SmallVector<int64_t, 4> operands;
  /// Indexed by result: the dimension that is split, or kPartialResult.
  llvm::SmallVector<int64_t, 2> results;
  /// The number of parts must divide this, in addition to all sizes along the split dimensions.
  int64_t units = 0;
  /// True if a part has to know its place in the whole, as attention with a causal mask does. The part gets the
  /// attribute `comm.rows`.
  bool positional = false;
  /// Sizes that a part must not have along this axis, because the shapes tell the dimensions of the operation apart.
  llvm::SmallVector<int64_t, 2> otherSizes;

  /// Returns true if the operation can be split into `parts` parts along this axis.
  bool dividesInto(int64_t parts) const {
    return units > 0 && units % parts == 0 && !llvm::is_contained(otherSizes, units / parts);
  }

  /// Returns true if a result is a sum over the dimension that is split.
  bool hasPartialResults() const { return llvm::is_contained(results, kPartialResult); }
};

/// The tensor that a value is or, for a future of one tensor, will be; null for other values, and for tensors of
/// dynamic size or without elements.
mlir::RankedTensorType getSplitType(mlir::Type type);

/// The type of one of `parts` parts of a tensor, or of a future of one tensor, along `dim`.
mlir::Type getPartType(mlir::Type type, int64_t dim, int64_t parts);

/// The ways to split `op`: those of `comm.split` if it has this attribute, or else those of its interface. Only tensors
/// of static size are split. Empty for an operation that writes storage. O(operands x dimensions).
llvm::SmallVector<SplitAxis> getSplitAxes(mlir::Operation *op);

/// Returns true if `axis` of `op` gives the same bits in any order of the partial results: there are none, or all are
/// integers, whose sums wrap around.
bool isExact(mlir::Operation *op, const SplitAxis &axis);

/// Makes the part of `op` that computes `types` from `operands`.
mlir::Operation *createStrand(mlir::OpBuilder &builder, mlir::Operation *op, const SplitAxis &axis,
                              mlir::ValueRange operands, mlir::TypeRange types);

/// The same operation with other operands and types.
mlir::Operation *cloneAsStrand(mlir::OpBuilder &builder, mlir::Operation *op, mlir::ValueRange operands,
                               mlir::TypeRange types);

/// Returns true if every element of the result of `op` is the same, or undefined, so that a part of the result can be
/// made anew: tensor.empty, a constant of one value, and linalg.fill of a tensor.empty.
bool isGenerator(mlir::Operation *op);

/// Attaches the rules of arith, comm, linalg, math and tensor operations. A rule attaches when its dialect is loaded.
void registerSplitModels(mlir::DialectRegistry &registry);

} // namespace commsched

#include "CommSched/Analysis/Split/SplitInterface.h.inc"

#endif // COMMSCHED_ANALYSIS_SPLIT_SPLITINTERFACE_H
