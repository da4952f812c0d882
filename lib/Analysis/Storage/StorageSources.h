//===- StorageSources.h - Sources of the storage of a result ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the analysis: the one rule for results, which StorageMap and RegionAliases follow. A result is new storage
// only if its operation says so. Otherwise it may be any value that the operation is given or that its regions yield.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_ANALYSIS_STORAGE_STORAGESOURCES_H
#define COMMSCHED_LIB_ANALYSIS_STORAGE_STORAGESOURCES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"

namespace commsched::detail {

/// What the storage of a result may be.
struct StorageSources {
  /// The storage of any of these values.
  llvm::SmallVector<mlir::Value, 2> values;
  /// New storage.
  bool fresh = false;
  /// Memory that the operation finds by itself: a global, or what was stored in a buffer of buffers.
  bool unknown = false;
  /// Memory whose address some operation may have kept before (see mayKeepAddress).
  bool loaded = false;
};

/// Whether a value has storage, or holds storage in flight.
bool hasStorage(mlir::Value value);

/// The sources of a tensor, memref or future. Starts and waits are not included: their results depend on what is in
/// flight. O(operands and terminators of the operation).
StorageSources getStorageSources(mlir::OpResult result);

/// Where the storage of a value comes from that a block uses and does not define. Of a future it is all that is in
/// flight. An argument has storage of its own. O(operands).
StorageSources getCapturedSources(mlir::Value value);

/// Returns true for an insertion of a source that is computed in its place.
bool isInPlace(mlir::Operation *op);

/// Returns true if a memref is fresh memory of the operation that returns it.
bool isAllocated(mlir::OpResult result);

/// Returns true if a value is memory that an operation of this function allocates, and only operations that are seen to
/// pass its address on as views or in flight ever get it: no memref of unknown origin is this memory. Looks at a few
/// thousand uses at most.
bool isPrivateAllocation(mlir::Value value);

/// Returns true if an operation of this function with unknown effects gets a tensor, or a view of it, and may keep the
/// address of its buffer for others. Looks at a few thousand uses at most.
bool isGivenAway(mlir::Value tensor);

/// Returns true if the operation may keep the address of a memref: it stores the address, hides it in another value, or
/// nobody knows what it does. Then it may keep that of a tensor's buffer, too.
bool mayKeepAddress(mlir::OpOperand &operand);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_STORAGE_STORAGESOURCES_H
