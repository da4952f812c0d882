//===- ContentionReport.h - Contention in a report --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The part of a report that says how much of a makespan is slow-down by contention, and how much of each resource is in
// use.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_REPORT_CONTENTIONREPORT_H
#define COMMSCHED_LIB_REPORT_CONTENTIONREPORT_H

#include "CommSched/Report/Report.h"

namespace commsched {

/// Measures a block with demands, in the order that `timeline` played; none for a problem without. O(N + events).
std::optional<BlockContention> measureContention(const Problem &problem, const Timeline &timeline);

/// The object "contention" of a block that has some on either side.
llvm::json::Object contentionToJSON(const BlockReport &block);

/// Prints the lines of a block's table.
void printContention(const BlockReport &block, llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_LIB_REPORT_CONTENTIONREPORT_H
