//===- ReportFlags.h - Command-line flags of reports ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// --comm-report, --comm-scenarios, --comm-timeline, --comm-explain, --comm-print-overlap, --comm-search-log and
// --comm-pareto. If the command line names the pipeline reorder-comm-overlap, they become its options; otherwise the
// whole run is measured before and after.
// --comm-machine applies to every pass without a machine of its own. The flags are removed from the command line before
// LLVM parses it, because `comm-report` and `comm-pareto` are also names of passes: `--comm-report=FILE` is the flag,
// and a missing value, or one that begins with an option of the pass and '=', denotes the pass with its options.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TOOLS_COMMOPT_REPORTFLAGS_H
#define COMMSCHED_TOOLS_COMMOPT_REPORTFLAGS_H

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/StringSaver.h"
#include <string>
#include <vector>

namespace commsched {

class ReportFlags {
public:
  /// Removes the flags from the command line.
  ReportFlags(int argc, char **argv);

  /// The remaining command line, ended by a null pointer.
  std::vector<char *> &arguments() { return rest; }

  /// Makes the named machine the default of all passes. Fails if there is no such machine.
  llvm::Error setMachine(mlir::DialectRegistry &registry) const;

  /// Reads the flags that are numbers. Fails if one is not a number in its range, or if a flag has no value.
  llvm::Error readValues();

  /// Measures the passes of `config`, unless the pipeline does so itself or no flag requests it.
  void apply(mlir::MlirOptMainConfig &config) const;

private:
  bool any() const {
    return !reportFile.empty() || !timelineFile.empty() || !searchLogFile.empty() || !certificateFile.empty() ||
           !paretoFile.empty() || !explained.empty() || !overlapFile.empty();
  }
  std::string asPassOptions() const;
  void addToPipelines();

  llvm::BumpPtrAllocator allocator;
  llvm::StringSaver strings{allocator};
  std::vector<char *> rest;
  std::string machine, reportFile, timelineFile, searchLogFile, certificateFile, paretoFile, explained, scenarios;
  /// Where the listing is written; "-" for standard error.
  std::string overlapFile;
  /// The name of a flag without a value; empty if all have one.
  std::string withoutValue;
  /// The value of `scenarios`.
  int32_t numScenarios = 0;
  /// True if the pipeline reorder-comm-overlap is present and received the flags as its options.
  bool passedOn = false;
};

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMOPT_REPORTFLAGS_H
