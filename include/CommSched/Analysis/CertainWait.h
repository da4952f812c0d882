//===- CertainWait.h - Waits that are certain to run ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A wait in a condition, or in a loop that may not run, does not complete the collective on every path. Code that ends
// a buffer's life, frees memory or allows a write needs a wait that runs on every path.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_CERTAINWAIT_H
#define COMMSCHED_ANALYSIS_CERTAINWAIT_H

#include "CommSched/Dialect/Comm/CommDialect.h"

namespace commsched {

/// The operations of `block`, in unspecified order, after which `future` is certainly complete. These are its waits in
/// the block itself, and operations with regions that wait for it on every path (an `scf.if` with a wait on both
/// sides). No entry is null. O(waits * depth * regions of an operation).
llvm::SmallVector<mlir::Operation *> findCertainWaits(mlir::Value future, mlir::Block &block);

/// The first of `findCertainWaits` in the block of `start`; null if the collective may be in flight at the end of the
/// block.
mlir::Operation *findCertainWait(comm::CollectiveOpInterface start);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_CERTAINWAIT_H
