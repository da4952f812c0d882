//===- SymmetricMemory.h - Put buffers into symmetric memory ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// On buffers, the memory space marks symmetric memory. On tensors, the attribute `comm.symmetric` of a collective marks
// its inputs and outputs, and bufferization applies it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_REWRITES_SYMMETRICMEMORY_H
#define COMMSCHED_TRANSFORMS_REWRITES_SYMMETRICMEMORY_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include <string>

namespace commsched {

/// Moves the allocation of `buffer`, which may be a view of it, into the symmetric memory of `group`, with all values
/// derived from it. On failure, changes nothing and returns the reason: there is no allocation, the allocation is in
/// another memory space, or it reaches an operation whose types cannot change (a call, a terminator, control flow, an
/// unknown operation). Returns an empty string on success. Linear in the uses.
std::string makeSymmetric(mlir::Value buffer, mlir::FlatSymbolRefAttr group);

/// Applies and removes `comm.symmetric` on the collectives in `root`, which are on buffers. Buffers that cannot move
/// stay in plain memory, with a remark of category `pass` at the collective.
void applySymmetricMarks(mlir::Operation *root, llvm::StringRef pass);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_SYMMETRICMEMORY_H
