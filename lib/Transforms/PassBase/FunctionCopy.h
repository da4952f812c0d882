//===- FunctionCopy.h - A copy of a function to try something on ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Passes that decide between several rewrites carry each of them out on a copy, and the best one on the function.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_PASSBASE_FUNCTIONCOPY_H
#define COMMSCHED_LIB_TRANSFORMS_PASSBASE_FUNCTIONCOPY_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"

namespace commsched {

/// A copy of a function beside the original, where its symbols resolve; erased in the end. Only passes on what contains
/// the function may make one.
class FunctionCopy {
public:
  explicit FunctionCopy(mlir::Operation *function) : copy(function->clone()) {
    function->getBlock()->getOperations().insertAfter(function->getIterator(), copy);
  }
  FunctionCopy(const FunctionCopy &) = delete;
  FunctionCopy &operator=(const FunctionCopy &) = delete;
  ~FunctionCopy() { copy->erase(); }

  mlir::Operation *function() { return copy; }
  mlir::Block &block() { return copy->getRegion(0).front(); }

private:
  mlir::Operation *copy;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_PASSBASE_FUNCTIONCOPY_H
