//===- MatrixProducts.h - Recognition of matrix products --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The passes after PyTorch Inductor treat matrix products separately: these kernels hide collectives, and their
// measured times differ between ranks. Inductor recognizes them by the call of an external kernel. Here the cost model
// recognizes them, and a closed list of names if the cost model knows nothing.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_MATRIXPRODUCTS_H
#define COMMSCHED_ANALYSIS_COSTS_MATRIXPRODUCTS_H

#include "CommSched/Analysis/Costs/OperationCosts.h"

namespace commsched {

/// Distinguishes matrix products, convolutions and attention from other operations. Not thread-safe. It remembers the
/// contents of functions, so it is valid only while the module does not change.
class MatrixProducts {
public:
  /// Keeps a reference to `costs`.
  explicit MatrixProducts(const OperationCosts &costs) : costs(costs) {}

  /// Returns true if `op` is a matrix product or a similar operation, or contains one in a region or in its callee. An
  /// operation is one if its cost model assigns its work to the matrix units, if it has no cost model and `comm.cost`
  /// gives its flops (which then count as those of a matrix product), or if its name is in a closed list. In the comm
  /// dialect, only `comm.compute` can be one. O(nested operations).
  bool contains(mlir::Operation *op);

private:
  bool isProduct(mlir::Operation *op) const;
  bool calleeContains(mlir::CallOpInterface call);

  const OperationCosts &costs;
  mlir::SymbolTableCollection symbols;
  /// Indexed by function: true if its body contains one; false while the search is in progress.
  llvm::DenseMap<mlir::Operation *, bool> callees;
};

/// Returns true if the name of an operation or of a `comm.compute` denotes a matrix product or a similar operation. The
/// name is split at dots and colons. A number at the end of a part is ignored, and a part with "_backward" does not
/// match. A match is a part in a closed list ("aten.mm.default", "extern_kernels.addmm", "matmul_3").
bool isMatrixProductName(llvm::StringRef name);

/// The shape of the matrix product that an operation without a cost model is by its name (isMatrixProductName); not
/// known if the name says nothing of the shape of the result (convolutions, einsum), or if a size is dynamic. The first
/// result tells it: its last two dimensions are the rows and the columns. The others are batches, or rows as well if an
/// operand is a matrix that all of them share. Attention is one product per batch and head, whose columns are the width
/// of a head. O(operands).
ProductShape getProductShape(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_COSTS_MATRIXPRODUCTS_H
