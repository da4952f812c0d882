//===- ReorderingRemarks.h - What a reordering pass says --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One remark per collective, at its place, with numbers and units, and one per block.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGREMARKS_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGREMARKS_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/Model/Schedule.h"

namespace commsched {

/// Emits the remarks, if anybody listens: passed for what moved, missed for what is exposed and did not, analysis for
/// the rest and for the block. Category: the pass's name.
void emitRemarks(llvm::StringRef passName, const LoadedBlock &block, const Schedule &result);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_REORDERINGREMARKS_H
