//===- Session.h - A whole calibration, with what is known already ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Answers a list of questions about collectives from a cache and, if the cache does not have the answer, by measuring.
// Rank 0 alone reads and writes the cache; the other ranks get its bytes. A question that cannot be answered keeps the
// reason, and the others are answered.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_SESSION_H
#define COMMSCHED_CALIBRATION_SESSION_H

#include "CommSched/Calibration/Cache.h"
#include "CommSched/Calibration/Calibrator.h"

namespace commsched {

/// A curve that somebody wants to know.
struct CalibrationQuestion {
  CollectiveProbe probe;
  /// Exactly these sizes. If there are none: a grid from `least` to `most`.
  std::vector<Bytes> sizes;
  Bytes least = 1024, most = Bytes(64) << 20;
  /// The reason why nothing is measured, if it is known before.
  std::string skipped;
};

struct CalibrationSessionOptions {
  CalibratorOptions calibrator;
  /// Where measurements are kept, or null. It is read on rank 0 alone.
  const CalibrationCache *cache = nullptr;
  /// Ignore what the cache and `known` hold.
  bool fresh = false;
  /// What decides the numbers: the machine, the libraries, the ranks and the recipe. Rank 0's holds.
  std::string fingerprint;
  /// What this process measured before, as toCacheText writes it, or "". It is read on rank 0 alone.
  std::string known;
};

struct CalibrationAnswers {
  /// Indexed by question.
  std::vector<CalibratedCurve> curves;
  /// Everything that is known now, for `known` of a later session.
  std::string known;
  /// Points of `curves` that were measured in this session.
  int64_t measured = 0;
  /// What went wrong with the cache. Nothing of it stops a calibration.
  std::vector<std::string> warnings;
};

/// Answers `questions`. Collective over all ranks of `bench`, which ask the same questions; all ranks get the same
/// curves. The error says that ranks could not be reached at all. `progress` gets one line per point.
llvm::Expected<CalibrationAnswers> runCalibration(Bench &bench, llvm::ArrayRef<CalibrationQuestion> questions,
                                                  const CalibrationSessionOptions &options,
                                                  llvm::function_ref<void(const std::string &)> progress);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_SESSION_H
