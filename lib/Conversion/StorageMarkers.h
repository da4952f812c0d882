//===- StorageMarkers.h - What bufferization cannot see of collectives ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upstream's in-place analysis follows tensors. A future is none, so the analysis sees neither that a collective uses
// its inputs until its wait nor that the wait's results are the destinations. Markers say so: computations that read
// what was in flight at the wait, and whose results share the destinations' storage. Bufferization leaves nothing of
// them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CONVERSION_STORAGEMARKERS_H
#define COMMSCHED_LIB_CONVERSION_STORAGEMARKERS_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace commsched {

/// A computation of this name reads its operands; result i has the storage of operand i.
inline constexpr llvm::StringLiteral kInFlightMarker = "comm.in_flight";
/// The result of a computation of this name has the storage of every operand, and is operand 0.
inline constexpr llvm::StringLiteral kSharedMarker = "comm.shared_storage";
/// A computation of this name makes storage without contents.
inline constexpr llvm::StringLiteral kStorageMarker = "comm.storage";

inline bool isStorageMarker(comm::ComputeOp op) {
  return op.getName() == kInFlightMarker || op.getName() == kSharedMarker || op.getName() == kStorageMarker;
}

/// Why the in-place analysis cannot be used on `module`, in which case a copy goes before every tensor write: a future
/// leaves its block, or a tensor is taken from a buffer that others may write. Empty where it can. O(operations).
std::string findObstacleToAnalysis(mlir::ModuleOp module);

/// Inserts the markers, gives undefined destinations (`tensor.empty`) storage that counts as defined, and protects the
/// arguments of public functions, `comm.donated` ones apart, from being written. O(operations + uses).
void insertStorageMarkers(mlir::ModuleOp module);

/// Whether results of `wait` may be written in place by what follows: no other wait gives them too.
bool areResultsWritable(comm::WaitOp wait);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_STORAGEMARKERS_H
