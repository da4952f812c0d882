//===- RewriteRemarks.h - How the rewrites say what they did and why not ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every rewrite remarks at the operation that it changed, or left alone and why. The category is the pass.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_REWRITES_REWRITEREMARKS_H
#define COMMSCHED_LIB_TRANSFORMS_REWRITES_REWRITEREMARKS_H

#include "mlir/IR/Operation.h"
#include "mlir/IR/Remarks.h"

namespace commsched {

/// `pass` left `op` alone because of `reason`.
inline void remarkMissed(mlir::Location loc, llvm::StringRef pass, const std::string &reason) {
  mlir::remark::missed(loc, mlir::remark::RemarkOpts::name("refused").category(pass))
      << mlir::remark::metric("Reason", reason);
}

/// `pass` changed `op`: `what`, which saves (or moves) `bytes`.
inline void remarkPassed(mlir::Location loc, llvm::StringRef pass, const std::string &what, int64_t bytes) {
  mlir::remark::passed(loc, mlir::remark::RemarkOpts::name("rewritten").category(pass))
      << mlir::remark::metric("What", what) << mlir::remark::metric("Bytes", bytes);
}

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_REWRITES_REWRITEREMARKS_H
