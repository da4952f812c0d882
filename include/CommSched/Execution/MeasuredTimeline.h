//===- MeasuredTimeline.h - Measured and predicted timeline in one trace ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Writes both timelines into one trace in Chrome's format, which Perfetto reads.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_MEASUREDTIMELINE_H
#define COMMSCHED_EXECUTION_MEASUREDTIMELINE_H

#include "CommSched/Report/Report.h"
#include "CommSched/Runtime/Runtime.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

namespace commsched {

/// One run of one program on one rank, by the clock of its context, ns.
struct MeasuredRun {
  std::string name;
  commrt_context *context;
  int64_t begin, end;
  /// What times count from: the beginning of the run, or, if the ranks share a clock, of the first rank's.
  int64_t origin;
};

/// A timeline as events of one process, from the origin of the run. If the program is straight-line code
/// (one predicted collective per site), a measured collective has its source location and its predicted time.
void addMeasured(const MeasuredRun &run, int64_t process, const std::optional<BlockSnapshot> &predicted,
                 llvm::json::Array &events);
void addPredicted(llvm::StringRef name, int64_t process, const BlockSnapshot &predicted, llvm::json::Array &events);

/// Writes {"displayTimeUnit", "traceEvents"}.
llvm::Error writeTrace(llvm::StringRef path, llvm::json::Array events);

} // namespace commsched

#endif // COMMSCHED_EXECUTION_MEASUREDTIMELINE_H
