//===- ModuleMemory.h - Places of a module's globals and stack buffers ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Ranks may be threads of one process, and a device has memory of its own. So a global that the program writes is
// memory of the runtime, one for each rank. Constants that only the host loads stay in the compiled code.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_COMMTOLLVM_MODULEMEMORY_H
#define COMMSCHED_LIB_CONVERSION_COMMTOLLVM_MODULEMEMORY_H

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched {

/// Symmetric memory that persists between calls.
llvm::SmallVector<mlir::memref::GlobalOp> getArenas(mlir::ModuleOp module);

/// The other globals that the runtime has for each rank, in the order of the module: those that may be written, and, on
/// devices, the constants that anything else than a load of the host uses. O(uses).
llvm::SmallVector<mlir::memref::GlobalOp> getGlobalsOfRuntime(mlir::ModuleOp module, bool onDevice);

/// Returns true if the program keeps buffers in buffers.
bool storesBuffers(mlir::ModuleOp module);

/// On devices: moves the buffers on the stack that kernels, collectives or callees may use to the device, and what only
/// the host uses to the host's stack.
void placeStackBuffers(mlir::ModuleOp module);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_COMMTOLLVM_MODULEMEMORY_H
