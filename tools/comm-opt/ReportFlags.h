//===- ReportFlags.h - The flags that say where a report goes ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// --comm-report, --comm-timeline, --comm-search-log and --comm-pareto, whatever is run: they become options of
// reorder-comm-overlap if the command line names that pipeline; otherwise the whole run is measured before and after.
// --comm-machine holds for every pass that is not given a machine of its own. They are taken out of the command line
// before LLVM parses it, because `comm-report` and `comm-pareto` are names of passes too: `--comm-report=FILE` is the
// flag, and a value with a
// '=' in it, or none, is the pass with its options.
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
  /// Takes the flags out of the command line.
  ReportFlags(int argc, char **argv);

  /// The rest of the command line, ended by a null pointer.
  std::vector<char *> &arguments() { return rest; }

  /// Makes the machine that was named the one of all passes. Fails if there is no such machine.
  llvm::Error setMachine(mlir::DialectRegistry &registry) const;

  /// Lets `config`'s passes be measured, unless the pipeline does that itself or nobody asked.
  void apply(mlir::MlirOptMainConfig &config) const;

private:
  bool any() const {
    return !reportFile.empty() || !timelineFile.empty() || !searchLogFile.empty() || !paretoFile.empty();
  }
  std::string asPassOptions() const;
  void addToPipelines();

  llvm::BumpPtrAllocator allocator;
  llvm::StringSaver strings{allocator};
  std::vector<char *> rest;
  std::string machine, reportFile, timelineFile, searchLogFile, paretoFile;
  /// The pipeline reorder-comm-overlap is there and has got the flags as its options.
  bool passedOn = false;
};

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMOPT_REPORTFLAGS_H
