//===- CertainWait.h - Where a collective is certainly complete -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A wait under a condition, or in a loop that may not run, says nothing about what comes after the branch or the loop:
// the collective may still be in flight there. Whoever ends a life, frees memory or allows a write has to ask for a
// wait that every path runs.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_CERTAINWAIT_H
#define COMMSCHED_ANALYSIS_CERTAINWAIT_H

#include "CommSched/Dialect/Comm/CommDialect.h"

namespace commsched {

/// The operations of `block`, in no particular order, behind which `future` is certainly complete: its waits in the
/// block itself, and operations with regions that wait for it whichever way control takes through them (an `scf.if`
/// with a wait on both sides). Null entries do not occur. O(waits * depth * regions of an operation).
llvm::SmallVector<mlir::Operation *> findCertainWaits(mlir::Value future, mlir::Block &block);

/// The first of `findCertainWaits` in the block of `start`; null if the collective may be in flight at the block's end.
mlir::Operation *findCertainWait(comm::CollectiveOpInterface start);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_CERTAINWAIT_H
