//===- CarriedTensors.h - Loop-carried tensors that may be copied -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Bufferization decides whether a loop works on the storage of the tensor that it is given or on a copy. That must make
// no difference.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_STORAGE_CARRIEDTENSORS_H
#define COMMSCHED_LIB_ANALYSIS_STORAGE_CARRIEDTENSORS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/ArrayRef.h"

namespace commsched {

/// Returns true if an operation of the dialect writes the storage of a tensor operand.
bool writesTensor(mlir::OpOperand &operand);

/// The values that `op` carries from one iteration to the next; none if it is no loop. O(values).
llvm::SmallVector<mlir::Value> getCarried(mlir::Operation *op);

/// Returns true if it may matter whether `loop` copies what it carries of one storage. `names`: all names of the
/// storage. `isCallers`: the caller of the function has one, too. O(uses of the names), times their writes after the
/// loop under names from before it.
bool isCopySeen(mlir::Operation *loop, llvm::ArrayRef<mlir::Value> names, bool isCallers);

} // namespace commsched

#endif // COMMSCHED_LIB_ANALYSIS_STORAGE_CARRIEDTENSORS_H
