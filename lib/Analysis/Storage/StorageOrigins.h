//===- StorageOrigins.h - Values that loops and branches pass on ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to StorageMap. A loop, and a branch to another basic block, may pass on the tensor that it is given or a copy
// of it. So the tensor that it passes on counts as storage of its own, which may also be one of the tensors found here.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_ANALYSIS_STORAGE_STORAGEORIGINS_H
#define COMMSCHED_LIB_ANALYSIS_STORAGE_STORAGEORIGINS_H

#include "mlir/Interfaces/ControlFlowInterfaces.h"

namespace commsched::detail {

/// Follows values backwards, out of loops and basic blocks.
class StorageOrigins {
public:
  /// Returns true for a tensor, or a future, that a loop or a branch to a block passes on: an argument of a block that
  /// is not the entry of a function, and a tensor that a loop returns.
  static bool isPassed(mlir::Value value);

  /// What a passed value is in the step before. O(operands that are passed to it), and O(operands of its operation)
  /// once.
  llvm::SmallVector<mlir::Value, 4> stepBack(mlir::Value passed);

  /// The values with storage of their own that a passed value may be, in the order in which they are found. O(values on
  /// the ways to them).
  llvm::SmallVector<mlir::Value, 4> find(mlir::Value passed);

private:
  void addUnnamed(mlir::Operation *op, llvm::SmallVectorImpl<mlir::Value> &values);

  llvm::DenseMap<mlir::Operation *, mlir::RegionBranchInverseSuccessorMapping> mappings;
};

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_STORAGE_STORAGEORIGINS_H
