//===- TensorParts.h - Tensors that are parts of others ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A function takes a buffer that is contiguous and begins where its memory begins. So bufferization passes a copy of
// any other part of a buffer, and what the function writes is lost.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_STORAGE_TENSORPARTS_H
#define COMMSCHED_LIB_ANALYSIS_STORAGE_TENSORPARTS_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"

namespace commsched {

/// Returns true if a tensor may be another part of its storage than the first elements. `names`: all names of the
/// storage. O(views that lead to it), and if control flow chooses it, O(names times views that lead to them).
bool mayBePart(mlir::Value tensor, llvm::ArrayRef<mlir::Value> names);

} // namespace commsched

#endif // COMMSCHED_LIB_ANALYSIS_STORAGE_TENSORPARTS_H
