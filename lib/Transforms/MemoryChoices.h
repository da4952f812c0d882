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
#ifndef COMMSCHED_LIB_TRANSFORMS_MEMORYCHOICES_H
#define COMMSCHED_LIB_TRANSFORMS_MEMORYCHOICES_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace commsched {

/// What the values of one block, nested regions included, are chosen from.
class MemoryChoices {
public:
  /// O(operations of the block).
  explicit MemoryChoices(mlir::Block &block);

  /// Returns true if `value` may be memory that `start` still uses. `mayOverlap` says whether a value may have a byte
  /// in common with that memory; it may hold for values that do not. O(values that lead to `value`).
  bool mayBeInUse(mlir::Value value, comm::CollectiveOpInterface start,
                  llvm::function_ref<bool(mlir::Value)> mayOverlap) const;

private:
  bool visit(mlir::Value value, comm::CollectiveOpInterface start, llvm::function_ref<bool(mlir::Value)> mayOverlap,
             llvm::SmallPtrSetImpl<mlir::Value> &visited) const;

  /// Indexed by result or argument of a region operation: the operands from which control flow takes its value.
  mlir::RegionBranchInverseSuccessorMapping operands;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_MEMORYCHOICES_H
