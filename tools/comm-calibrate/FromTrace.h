//===- FromTrace.h - A profile from the traces of a framework -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// comm-calibrate --from-trace: reads the traces, compares them with the programs, and writes the profile.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TOOLS_COMMCALIBRATE_FROMTRACE_H
#define COMMSCHED_TOOLS_COMMCALIBRATE_FROMTRACE_H

#include "CommSched/Calibration/Trace.h"
#include "CommSched/Machine/MachineModel.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/JSON.h"
#include <map>

namespace commsched {

/// What --from-trace was asked for.
struct TraceRequest {
  std::vector<std::string> traces, programs;
  /// Empty: the traces decide.
  std::string base;
  std::string output;
  bool quiet = false;
};

/// Operations of programs with one name and operands that are in no trace.
struct MissingOps {
  std::string place;
  int64_t count = 0;
  Ns time = 0;
};

/// What of the traces programs use, and what they lack.
struct TraceMatch {
  int64_t found = 0, costly = 0;
  /// Indexed by name and operands.
  std::map<std::string, MissingOps> missing;
};

/// Reads the traces, writes the profile and, unless it is to be quiet, prints what was not matched. With programs, that
/// is also each operation of theirs that costs time and is in no trace. `figures` gets the same as JSON, with all rows
/// (measurement.schema.json). The error names the file, or says that the
/// traces have no operation of a program; nothing is written then.
llvm::Error makeProfileFromTraces(const TraceRequest &request, const mlir::DialectRegistry &registry,
                                  llvm::json::Object &figures);

/// Replaces times of instructions by what they say of the modules of XLA in the files: of a kernel, an entry for its
/// name and its results; of a collective, a point of a table. What no module has moves to the list of what was not
/// matched.
llvm::Error matchModules(llvm::ArrayRef<std::string> paths, const MachineModel &base, TraceTimes &times,
                         TraceMatch &match);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_FROMTRACE_H
