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

#include "CommSched/Machine/MachineModel.h"
#include "mlir/IR/DialectRegistry.h"

namespace commsched {

/// Reads the traces at `paths`, writes `base` with their times to `outputPath` and, unless `quiet`, prints what was not
/// matched. With `programs`, that is also each operation of theirs that costs time and is in no trace. The error names
/// the file, or says that the traces have no operation of a program; nothing is written then.
llvm::Error makeProfileFromTraces(llvm::ArrayRef<std::string> paths, llvm::ArrayRef<std::string> programs,
                                  const MachineModel &base, llvm::StringRef outputPath, bool quiet,
                                  const mlir::DialectRegistry &registry);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_FROMTRACE_H
