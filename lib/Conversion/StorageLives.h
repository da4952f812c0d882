//===- StorageLives.h - Where the life of a buffer ends ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A buffer that a collective has in flight lives until a wait that is certain to run, whatever the operations between
// look like. What frees buffers or gives their bytes to others asks here.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CONVERSION_STORAGELIVES_H
#define COMMSCHED_LIB_CONVERSION_STORAGELIVES_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"

namespace commsched {

/// Completes what may be in flight at the end of its block: where no wait for a start is certain to run and the future
/// does not leave the block, a wait goes before the block's terminator. It costs nothing where another wait ran before.
/// Linear in the operations.
void waitInEveryBlock(mlir::ModuleOp module);

/// The last operation of the block of `alloc` that needs its storage: a use, or the certain wait for what uses it. Null
/// if the storage may leave the block, or may be in flight at its end. Linear in the uses.
mlir::Operation *findLastUse(mlir::memref::AllocOp alloc);

/// Whether a future of the storage of `alloc` leaves the block of its start: then the storage has to outlive what the
/// block knows. Linear in the uses.
bool escapesInFlight(mlir::memref::AllocOp alloc);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_STORAGELIVES_H
