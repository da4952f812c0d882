//===- ReadCheck.h - Check that all reads give equal values -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_READCHECK_H
#define COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_READCHECK_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched {

/// Notes the value numbers of all that a block's operations read, and compares them after operations were repeated or
/// repetitions removed. It knows nothing of what was repeated.
class ReadCheck {
public:
  /// O(operations + operands).
  explicit ReadCheck(mlir::Block &block) : reads(readsOf(block)) {}

  /// An operation of `block` that reads another value than before; null if there is none. Operations that were added
  /// count by what reads them. Those that read values of different numbers are unequal even if the values are not.
  mlir::Operation *findChange(mlir::Block &block) const;

private:
  using Reads = llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value, 4>>;
  static Reads readsOf(mlir::Block &block);

  Reads reads;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_READCHECK_H
