//===- JournalRecords.h - Journal records of a pass -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Read off the orders before and after, whatever found them, so that all passes report alike.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_SCHEDULING_JOURNALRECORDS_H
#define COMMSCHED_LIB_TRANSFORMS_SCHEDULING_JOURNALRECORDS_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Answer/Explain.h"

namespace commsched {

/// The journal that a report in this context collects, or null where none does.
PassJournal *journalOf(mlir::MLIRContext *context);

/// What a reordering pass did to a block whose nodes were loaded in their given order. `reasons` is indexed by node:
/// why compute waits for a start, in words. O((N + E) log N).
PassRecord makeRecord(llvm::StringRef pass, const LoadedBlock &block, const Schedule &result,
                      llvm::ArrayRef<std::string> reasons);

/// The same for the solver's answer and what explain() says of it.
PassRecord makeRecord(llvm::StringRef pass, const LoadedBlock &block, const Schedule &result,
                      llvm::ArrayRef<StartOutcome> outcomes);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_SCHEDULING_JOURNALRECORDS_H
