//===- StorageMarkers.h - Facts about futures for bufferization -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Upstream's in-place analysis follows tensors. Futures are not tensors, so the analysis does not see that a collective
// uses its inputs until its wait, or that the wait's results are the destinations. Markers express this: they are
// computations that read the tensors in flight at the wait, and whose results share the destinations' storage.
// Bufferization removes them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_CONVERSION_BUFFERIZATION_STORAGEMARKERS_H
#define COMMSCHED_LIB_CONVERSION_BUFFERIZATION_STORAGEMARKERS_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace commsched {

/// A computation of this name reads its operands; result i shares the storage of operand i.
inline constexpr llvm::StringLiteral kInFlightMarker = "comm.in_flight";
/// The result of a computation of this name shares the storage of every operand, and is operand 0.
inline constexpr llvm::StringLiteral kSharedMarker = "comm.shared_storage";
/// A computation of this name allocates storage without contents.
inline constexpr llvm::StringLiteral kStorageMarker = "comm.storage";
/// The result of a computation of this name is the destination of one operation: the storage of the operand, or new
/// storage if the analysis finds that somebody still needs the contents of the operand.
inline constexpr llvm::StringLiteral kDestinationMarker = "comm.destination";
/// The result of a computation of this name is the operand, which a branch passes to its basic block. It counts as a
/// definition.
inline constexpr llvm::StringLiteral kArgumentMarker = "comm.block_argument";
/// On a destination marker of a collective: the numbers of its inputs that are part of the destination.
inline constexpr llvm::StringLiteral kInPlaceInputsAttrName = "in_place_inputs";

inline bool isStorageMarker(comm::ComputeOp op) {
  return op.getName() == kInFlightMarker || op.getName() == kSharedMarker || op.getName() == kStorageMarker ||
         op.getName() == kDestinationMarker || op.getName() == kArgumentMarker;
}

/// Returns true if a tensor is made without contents.
bool isUndefined(mlir::Value tensor);

/// Returns true if `read` reads an input of a collective that runs in place, and `write` is the destination marker of
/// that collective. The collective reads the input itself before it overwrites it.
bool isReadInPlace(mlir::OpOperand &read, mlir::OpOperand &write);

/// Returns why the in-place analysis cannot be used on `module`, or an empty string if it can. The reasons are a future
/// that leaves its block, and a tensor from a buffer that other operations may write. Bufferization then copies before
/// every tensor write. O(operations).
std::string findObstacleToAnalysis(mlir::ModuleOp module);

/// Inserts a destination marker in front of each operation of the dialect that has destinations of tensor type, except
/// for destinations that certainly nobody else uses. O(operations + uses).
void markSharedDestinations(mlir::ModuleOp module);

/// Inserts the markers, gives undefined destinations (`tensor.empty`) storage that counts as defined, and protects the
/// arguments of public functions, except `comm.donated` ones, from writes. O(operations + uses).
void insertStorageMarkers(mlir::ModuleOp module);

/// Returns true if later operations may write results of `wait` in place: no other wait returns them.
bool areResultsWritable(comm::WaitOp wait);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_BUFFERIZATION_STORAGEMARKERS_H
