//===- PredictionTable.h - Predicted against measured -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// How far the model of a machine is from what a program did there: the makespan, and each collective. A schedule is
// worth what its predictions are worth.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_EXECUTION_PREDICTIONTABLE_H
#define COMMSCHED_EXECUTION_PREDICTIONTABLE_H

#include "CommSched/Calibration/Statistics.h"
#include "CommSched/Report/Report.h"
#include "CommSched/Runtime/Runtime.h"
#include "llvm/Support/JSON.h"
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// What one rank did, by the clock of its context: records of the trace between the marks, and the moments at which the
/// calls of the program began and ended, ns. n calls have n + 1 marks.
struct RankTrace {
  std::vector<commrt_trace_record> records;
  /// Indexed as `records`: when the last member of its group began the collective, if that is known.
  std::vector<std::optional<int64_t>> lastBegins;
  std::vector<int64_t> marks;
};

/// Reads the records of a context that was opened with trace. Nothing is in flight.
RankTrace readTrace(commrt_context *context, std::vector<int64_t> marks);

/// One collective. Times are medians over the calls, then over the ranks, ns.
struct SiteComparison {
  /// Its index in the program, which is that of its row in the prediction.
  size_t site = 0;
  Ns predicted = 0, measured = 0;
  Ns predictedExposed = 0, measuredExposed = 0;
  /// How long after the first rank the last one starts it. Known if the ranks share a clock.
  Ns lateness = 0;
  /// Of `measured`, what came after the last rank had begun: what the model predicts. Known on devices.
  std::optional<Ns> afterLast = {};
  /// How many other collectives of the rank were in flight during this one, at any time.
  int64_t beside = 0;

  Ns miss() const { return std::abs(afterLast.value_or(measured) - predicted); }
  /// What the difference comes from, in words.
  std::string reason() const;
};

struct PredictionComparison {
  Ns predicted = 0;
  /// The interval of the prediction, if costs have error bars.
  std::optional<TimeInterval> predictedInterval;
  /// The makespan: of the slowest rank in each call.
  Estimate measured;
  /// All collectives, those that are furthest off first.
  std::vector<SiteComparison> sites;

  /// By how much the prediction is too high, in permille of what was measured.
  int64_t errorPermille() const;
};

/// Compares the calls of all ranks in `traces` with `predicted`. The first call is left out where there are others: it
/// also connects and allocates. The error says that the program is not straight-line code, so that sites and rows of
/// the prediction do not correspond. O(records log records).
llvm::Expected<PredictionComparison> compareWithPrediction(const BlockSnapshot &predicted,
                                                           llvm::ArrayRef<RankTrace> traces);

/// What printComparison prints, for other programs. Calibration.md describes the fields.
llvm::json::Object describeComparison(const PredictionComparison &comparison, const BlockSnapshot &predicted,
                                      size_t most);

/// Prints the makespans and the `most` collectives that are furthest off.
void printComparison(const PredictionComparison &comparison, const BlockSnapshot &predicted, size_t most,
                     llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_EXECUTION_PREDICTIONTABLE_H
