//===- MemoryChoices.h - The values that one of several may be --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The result of a select, a branch or a loop may be one of several values. Storage classes join all of them, although
// some lie apart from a buffer in flight, and others leave a branch behind the wait that completes it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_VERIFY_MEMORYCHOICES_H
#define COMMSCHED_LIB_TRANSFORMS_VERIFY_MEMORYCHOICES_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched {

/// What the values of one block, nested regions included, are chosen from; and values from outside that a branch in
/// front of the block returns. What a loop around the block carries has other values in other iterations.
class MemoryChoices {
public:
  /// O(operations of the block). Branches outside are looked at when one of their results is first asked for.
  explicit MemoryChoices(mlir::Block &block);

  /// Returns true if `value` may be memory that a collective still uses. `mayOverlap` says whether a value may have a
  /// byte in common with that memory; it may hold for values that do not. `isComplete` says whether the collective is
  /// complete when control reaches an operation of a nested region. O(values that lead to `value`).
  bool mayBeInUse(mlir::Value value, llvm::function_ref<bool(mlir::Value)> mayOverlap,
                  llvm::function_ref<bool(mlir::Operation *)> isComplete);

  /// Returns true if `value`, or the value of which it is a view, is one of several.
  bool isChosen(mlir::Value value);

  /// The values that `value`, or the value of which it is a view, is chosen from: `value` alone if it is not chosen.
  /// Empty if there are more than 64. O(values that lead to `value`).
  llvm::SmallVector<mlir::Value> findChoices(mlir::Value value);

private:
  /// The operands from which a select or control flow takes `value`, or the memref of which it is a view. Empty for
  /// other values; a tensor that a loop returns may be a copy of what it was given.
  llvm::SmallVector<mlir::OpOperand *> getPassed(mlir::Value value);
  void addOperands(mlir::RegionBranchOpInterface branch);
  /// For the arguments of a basic block, unless a branch to it makes values of its own.
  void addOperands(mlir::Block &nested);

  mlir::Block &block;
  /// Indexed by result or argument of a region operation, or argument of a basic block: the operands from which control
  /// flow takes its value.
  mlir::RegionBranchInverseSuccessorMapping operands;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_VERIFY_MEMORYCHOICES_H
