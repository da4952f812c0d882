//===- RewriteRemarks.h - Remarks of the rewrites ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every rewrite emits a remark at each operation that it changed, or that it left unchanged for a reason. The category
// is the name of the pass.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_REWRITES_REWRITEREMARKS_H
#define COMMSCHED_LIB_TRANSFORMS_REWRITES_REWRITEREMARKS_H

#include "CommSched/Analysis/Remarks.h"

namespace commsched {

/// Reports at `loc` that `pass` left an operation of kind `kind` unchanged because of `reason`.
inline void remarkMissed(mlir::Location loc, llvm::StringRef kind, llvm::StringRef pass, const std::string &reason) {
  auto remark = mlir::remark::missed(loc, mlir::remark::RemarkOpts::name("refused").category(pass));
  if (remark)
    describeRemark(remark, kind, reason, "unchanged: " + reason);
}

/// Reports that `pass` left `op` unchanged because of `reason`.
inline void remarkMissed(mlir::Operation *op, llvm::StringRef pass, const std::string &reason) {
  remarkMissed(op->getLoc(), remarkKind(op), pass, reason);
}

/// Reports at `loc` that `pass` changed an operation of kind `kind`, in the words of `change`. `bytes` is the size of
/// the data concerned.
inline void remarkPassed(mlir::Location loc, llvm::StringRef kind, llvm::StringRef pass, const std::string &change,
                         int64_t bytes) {
  auto remark = mlir::remark::passed(loc, mlir::remark::RemarkOpts::name("rewritten").category(pass));
  if (!remark)
    return;
  remark << mlir::remark::metric("Bytes", bytes);
  describeRemark(remark, kind, kNoLimitingFactor, change);
}

/// The same for an operation that still exists.
inline void remarkPassed(mlir::Operation *op, llvm::StringRef pass, const std::string &change, int64_t bytes) {
  remarkPassed(op->getLoc(), remarkKind(op), pass, change, bytes);
}

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_REWRITES_REWRITEREMARKS_H
