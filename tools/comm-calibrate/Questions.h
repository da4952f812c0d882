//===- Questions.h - Questions that comm-calibrate can measure --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The collectives and computations of programs, or a grid of kinds.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TOOLS_COMMCALIBRATE_QUESTIONS_H
#define COMMSCHED_TOOLS_COMMCALIBRATE_QUESTIONS_H

#include "CommSched/Calibration/Computations.h"
#include "CommSched/Calibration/Session.h"
#include "mlir/IR/DialectRegistry.h"
#include <set>
#include <string>

namespace commsched {

/// What the command line says.
struct QuestionOptions {
  /// Paths of programs. Where there are any, they say what is measured.
  std::vector<std::string> programs;
  /// Names of kinds and element types; the usual ones where empty.
  std::vector<std::string> kinds, elements;
  /// The sizes of the two axes of a mesh, as "2x4"; empty: one axis.
  std::string mesh;
  /// The smallest and the largest size of a grid.
  Bytes least = 0, most = 0;
};

/// What is measured.
struct Questions {
  /// Ordered by kind, shape and element type.
  std::vector<CalibrationQuestion> collectives;
  /// Each shape once, in the order of the programs.
  std::vector<ComputeProbe> computations;
  /// Element types of matrix products.
  std::set<ElementType> products;
  /// Operations that cannot be measured, each once, and why.
  std::vector<std::pair<std::string, std::string>> skipped;
};

class OperationCompiler;

/// `machine` says how many ranks a node has; `ranks` are those of the job. `registry` has all dialects. `compiler`
/// outlives the questions. The error names the option or the file. O(operations log operations).
llvm::Expected<Questions> makeQuestions(const QuestionOptions &options, const MachineModel &machine, int64_t ranks,
                                        const mlir::DialectRegistry &registry, OperationCompiler &compiler);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_QUESTIONS_H
