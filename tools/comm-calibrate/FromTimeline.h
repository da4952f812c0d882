//===- FromTimeline.h - A profile refined by a real run -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// `comm-calibrate --from-timeline`: measures nothing, but reads what comm-run measured.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TOOLS_COMMCALIBRATE_FROMTIMELINE_H
#define COMMSCHED_TOOLS_COMMCALIBRATE_FROMTIMELINE_H

#include "CommSched/Machine/MachineModel.h"
#include "llvm/Support/JSON.h"

namespace commsched {

/// The largest error, in permille, that a held-out point may have in 95 of 100 cases.
inline constexpr int64_t kMostValidationPermille = 50;

/// Reads the timelines at `paths`, refines `base`, writes the profile to `outputPath` and, unless `quiet`, prints a
/// line per table and the validation. `figures` gets the same as JSON (measurement.schema.json). Returns whether the
/// validation is within kMostValidationPermille. The error names the file; nothing is written then.
llvm::Expected<bool> refineFromTimelines(llvm::ArrayRef<std::string> paths, const MachineModel &base,
                                         llvm::StringRef outputPath, bool quiet, llvm::json::Object &figures);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_FROMTIMELINE_H
