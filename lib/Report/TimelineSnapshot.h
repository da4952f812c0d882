//===- TimelineSnapshot.h - Timeline part of a block's snapshot -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Fills in the part of a BlockSnapshot that only a timeline needs.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_REPORT_TIMELINESNAPSHOT_H
#define COMMSCHED_LIB_REPORT_TIMELINESNAPSHOT_H

#include "CommSched/Report/Report.h"
#include "CommSched/Scheduling/Memory/Memory.h"

namespace commsched {

/// Adds the spans, the live bytes over time and their details to a snapshot that has its rows and lanes, and names the
/// streams as further lanes. `timeline` and `memory` are those of the block's own order. O((N + touches) log N).
void addTimeline(BlockSnapshot &snapshot, const LoadedBlock &block, const OperationCosts &costs,
                 const Timeline &timeline, const MemoryProfile &memory);

} // namespace commsched

#endif // COMMSCHED_LIB_REPORT_TIMELINESNAPSHOT_H
