//===- StorageLives.h - The end of a buffer's life --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A buffer that a collective has in flight lives until a wait that is certain to run, whatever operations come before
// it. Passes that free buffers or reuse their bytes query these functions.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CONVERSION_BUFFERIZATION_STORAGELIVES_H
#define COMMSCHED_LIB_CONVERSION_BUFFERIZATION_STORAGELIVES_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"

namespace commsched {

/// Completes collectives that may be in flight at the end of their block. If no wait for a start is certain to run and
/// the future does not leave the block, adds a wait before the terminator. It costs nothing if another wait ran before.
/// Linear in the operations.
void waitInEveryBlock(mlir::ModuleOp module);

/// The last operation of the block of `alloc` that needs its storage: a use, or the certain wait of a collective that
/// uses it. Null if the storage may leave the block, or may be in flight at its end. Linear in the uses.
mlir::Operation *findLastUse(mlir::memref::AllocOp alloc);

/// Returns true if a future of the storage of `alloc` leaves the block of its start. The storage must then outlive the
/// block. Linear in the uses.
bool escapesInFlight(mlir::memref::AllocOp alloc);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_BUFFERIZATION_STORAGELIVES_H
