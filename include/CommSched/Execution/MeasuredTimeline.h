//===- MeasuredTimeline.h - Measured beside predicted timelines -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Writes both timelines into one trace in Chrome's format, which Perfetto reads, or gives both to the page that
// Report.h writes.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_EXECUTION_MEASUREDTIMELINE_H
#define COMMSCHED_EXECUTION_MEASUREDTIMELINE_H

#include "CommSched/Execution/PredictionTable.h"
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

/// The prediction's operations with the times of one call of the program on one rank, from the call's beginning. A
/// computation is the next one of its name that the prediction has. What the run recorded and the prediction lacks is
/// an operation of its own, and an operation without a record takes no time. The bytes are those of the prediction, at
/// the measured moments. None if the program is no straight-line code, so that a site of the run is no operation.
/// O(records log records + operations).
///
/// Args:
///   call: the records of the call alone, between two marks.
std::optional<BlockSnapshot> measuredSnapshot(const RankTrace &call, const BlockSnapshot &predicted);

/// Writes {"displayTimeUnit", "traceEvents"}.
llvm::Error writeTrace(llvm::StringRef path, llvm::json::Array events);

} // namespace commsched

#endif // COMMSCHED_EXECUTION_MEASUREDTIMELINE_H
