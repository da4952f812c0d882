//===- MatrixProducts.h - Which operations are matrix products --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The passes after PyTorch Inductor treat matrix products apart: they are the kernels that hide collectives, and the
// ones whose measured times differ from rank to rank. Inductor tells them by the call of an external kernel; here the
// cost model tells them, and a closed list of names where the cost model knows nothing.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_MATRIXPRODUCTS_H
#define COMMSCHED_ANALYSIS_COSTS_MATRIXPRODUCTS_H

#include "CommSched/Analysis/Costs/OperationCosts.h"

namespace commsched {

/// Tells matrix products, convolutions and attention from other operations. Not thread-safe, and only for as long as
/// the module does not change: it remembers what functions contain.
class MatrixProducts {
public:
  /// Keeps a reference to `costs`.
  explicit MatrixProducts(const OperationCosts &costs) : costs(costs) {}

  /// Whether `op` is a matrix product or its like, or contains one in a region or in the function that it calls. An
  /// operation is one if its cost model puts its work on the matrix units, if it has no cost model and `comm.cost`
  /// gives its flops (which then count as a matrix product's), or if its name is one of a closed list. Of the comm
  /// dialect, only `comm.compute` can be one. O(nested operations).
  bool contains(mlir::Operation *op);

private:
  bool isProduct(mlir::Operation *op) const;
  bool calleeContains(mlir::CallOpInterface call);

  const OperationCosts &costs;
  mlir::SymbolTableCollection symbols;
  /// Of a function: whether its body contains one; false while that is being found out.
  llvm::DenseMap<mlir::Operation *, bool> callees;
};

/// Whether the name of an operation or of a `comm.compute` says that it is a matrix product or its like: whether one of
/// its parts between dots and colons, without a number at its end and without "_backward", is in a closed list of
/// names ("aten.mm.default", "extern_kernels.addmm", "matmul_3").
bool isMatrixProductName(llvm::StringRef name);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_COSTS_MATRIXPRODUCTS_H
