//===- Questions.h - What comm-calibrate measures ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The collectives of programs, or a grid of kinds.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TOOLS_COMMCALIBRATE_QUESTIONS_H
#define COMMSCHED_TOOLS_COMMCALIBRATE_QUESTIONS_H

#include "CommSched/Calibration/Bench.h"
#include <string>

namespace commsched {

/// One curve to measure: a collective, and its sizes (none: a grid).
struct Question {
  CollectiveProbe probe;
  std::vector<Bytes> sizes;
};

/// What the command line says.
struct QuestionOptions {
  /// Paths of programs. Where there are any, they say what is measured.
  std::vector<std::string> programs;
  /// Names of kinds and element types; the usual ones where empty.
  std::vector<std::string> kinds, elements;
};

/// The questions, ordered by kind, shape and element type. `machine` says how many ranks a node has. The error names
/// the option or the file. O(operations log operations).
llvm::Expected<std::vector<Question>> makeQuestions(const QuestionOptions &options, const MachineModel &machine,
                                                    int64_t ranks);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_QUESTIONS_H
