//===- SymmetricMemory.h - Put buffers into symmetric memory ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On buffers the memory space says what memory is symmetric. On tensors a collective says it of its inputs and outputs
// (`comm.symmetric`), and bufferization carries it out.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_REWRITES_SYMMETRICMEMORY_H
#define COMMSCHED_TRANSFORMS_REWRITES_SYMMETRICMEMORY_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include <string>

namespace commsched {

/// Moves the allocation that `buffer` is, or is a view of, into the symmetric memory of `group`, with everything that
/// is derived from it. Returns why it cannot be, having changed nothing, or an empty string: no allocation is found, it
/// is in another memory space, or it reaches an operation whose types cannot follow (a call, a terminator, control
/// flow, an unknown one). Linear in the uses.
std::string makeSymmetric(mlir::Value buffer, mlir::FlatSymbolRefAttr group);

/// Does what `comm.symmetric` says of the collectives in `root`, which are on buffers now, and removes it. What cannot
/// be done stays in plain memory, with a remark of category `pass` at the collective.
void applySymmetricMarks(mlir::Operation *root, llvm::StringRef pass);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_SYMMETRICMEMORY_H
