//===- Summary.h - Summary of a calibration ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The lines that comm-calibrate prints after it has measured, and the same figures as JSON.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TOOLS_COMMCALIBRATE_SUMMARY_H
#define COMMSCHED_TOOLS_COMMCALIBRATE_SUMMARY_H

#include "CommSched/Calibration/Profile.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace commsched {

/// Prints a line per curve, rate and count. O(curves).
void printSummary(const Calibration &calibration, llvm::raw_ostream &os);

/// The same figures as JSON (measurement.schema.json). O(curves).
llvm::json::Object describeSummary(const Calibration &calibration);

} // namespace commsched

#endif // COMMSCHED_TOOLS_COMMCALIBRATE_SUMMARY_H
