//===- FlightsAcrossBlocks.h - Collectives in flight where another block begins ---------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A future may leave its block: for the next iteration of a loop, for the code behind a branch, for another basic
// block. What it has in flight is still in use there.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_VERIFY_FLIGHTSACROSSBLOCKS_H
#define COMMSCHED_LIB_TRANSFORMS_VERIFY_FLIGHTSACROSSBLOCKS_H

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace commsched {

/// Reports accesses to memory that a collective of another block, or of another iteration, has in flight on some path
/// to them. Only memrefs: a future of tensors that leaves its block makes bufferization copy. What may be complete, and
/// what is known as part of a memref without its bytes being constants, is not reported. O(operations * depth of
/// loops), and for each block and each operation with regions the collectives of other blocks that are in flight there.
llvm::LogicalResult checkFlightsAcrossBlocks(mlir::FunctionOpInterface function);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_VERIFY_FLIGHTSACROSSBLOCKS_H
