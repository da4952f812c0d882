//===- Profile.h - A machine profile with what was measured -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Writes measured curves into a copy of a base profile, in the format of MachineModel.md, and reads them back.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_PROFILE_H
#define COMMSCHED_CALIBRATION_PROFILE_H

#include "CommSched/Calibration/Calibrator.h"
#include "CommSched/Calibration/Contention.h"

namespace commsched {

/// What a calibration found, apart from the base profile.
struct Calibration {
  std::vector<CalibratedCurve> curves;
  /// Where and how it was measured: texts for the profile's `calibration` object.
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<CalibratedOp> ops = {};
  Roofline roofline = {};
  std::vector<ContentionPoint> contention = {};
  /// Collectives beside collectives.
  std::vector<PairPoint> pairs = {};
  /// Other things that could not be measured, and why.
  std::vector<std::pair<std::string, std::string>> skipped = {};
};

/// The base profile with the measured tables in the place of its own of the same kind, shape and element type, the
/// measured operations in the place of those of the same name and shapes, and the measured rates and costs of calls.
/// What was not measured leaves the base's numbers in force. The error names a field of the base that is no profile's.
llvm::Expected<MachineModel> mergeCalibration(const MachineModel &base, const Calibration &calibration,
                                              llvm::StringRef name);

/// The curves as JSON and back, for the cache. Reading refuses anything that toCacheText does not write.
std::string toCacheText(llvm::ArrayRef<CalibratedCurve> curves, llvm::StringRef fingerprint);
llvm::Expected<std::vector<CalibratedCurve>> parseCacheText(llvm::StringRef text, llvm::StringRef fingerprint);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_PROFILE_H
