//===- SplitModels.h - The rules of upstream operations ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One function per dialect, each in a file of its own.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_SPLIT_SPLITMODELS_H
#define COMMSCHED_LIB_ANALYSIS_SPLIT_SPLITMODELS_H

#include "CommSched/Analysis/Split/SplitInterface.h"
#include "mlir/IR/DialectRegistry.h"

namespace commsched::detail {

using SplitAxes = llvm::SmallVector<SplitAxis>;

/// An external model: a function of the operation gives the axes.
template <typename Op, SplitAxes (*axes)(mlir::Operation *)>
struct SplitModel : SplittableOpInterface::ExternalModel<SplitModel<Op, axes>, Op> {
  SplitAxes getSplitAxes(mlir::Operation *op) const { return axes(op); }
};

/// Attaches `axes` to all operations `Ops`.
template <SplitAxes (*axes)(mlir::Operation *), typename... Ops> void attachAxes(mlir::MLIRContext *context) {
  (Ops::template attachInterface<SplitModel<Ops, axes>>(*context), ...);
}

/// The static shape of a value that getSplitType() knows, or none.
std::optional<llvm::ArrayRef<int64_t>> shapeOf(mlir::Value value);

/// An axis of `op` on which nothing is split yet.
SplitAxis makeAxis(mlir::Operation *op);

/// Each element of each result depends on the element of each operand at the same place, counted from the last
/// dimension; operands of size 1 are repeated. Empty if the shapes are not of this form.
SplitAxes elementwiseAxes(mlir::Operation *op);

/// The elements of the only result are those of operand 0 in the same row-major order.
SplitAxes reshapeAxes(mlir::Operation *op);

/// Splits every dimension in which all operands and results have the same size. The operation must act on each of
/// these slices alone.
SplitAxes sameSizeAxes(mlir::Operation *op);

/// The axes of a `comm.compute`, by its name. Unknown names have none.
SplitAxes computeAxes(mlir::Operation *op);

void registerArithSplitModels(mlir::DialectRegistry &registry);
void registerCommSplitModels(mlir::DialectRegistry &registry);
void registerLinalgSplitModels(mlir::DialectRegistry &registry);
void registerTensorSplitModels(mlir::DialectRegistry &registry);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_SPLIT_SPLITMODELS_H
