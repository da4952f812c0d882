//===- Calibrator.h - Measures the collectives of a machine -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides at which sizes collectives are timed. Sampler decides how often.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_CALIBRATOR_H
#define COMMSCHED_CALIBRATION_CALIBRATOR_H

#include "CommSched/Calibration/Sampler.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>

namespace commsched {

/// What was measured at one size.
struct CalibratedPoint {
  Bytes bytes = 0;
  Estimate time;
  /// Median time of the call that starts the collective, ns.
  Ns issue = 0;
  /// Medians of the ranks lay more than a tenth apart.
  bool isSkewed = false;
  /// Collectives in a row of which a sample consisted, and the time of one that runs alone, ns. On CPU backends 1, and
  /// the same as `time`.
  int64_t operations = 1;
  Ns single = 0;
};

/// The points of one kind on one group, or the reason why there are none.
struct CalibratedCurve {
  CollectiveProbe probe;
  std::vector<CalibratedPoint> points;
  std::string skipped;
};

class Calibrator {
public:
  /// `progress` is called on every rank with one line per point, and outlives this.
  Calibrator(Bench &bench, const CalibratorOptions &options, llvm::function_ref<void(const std::string &)> progress);

  /// Times one size. None if the time that everything may take ends before there are enough samples. Collective over
  /// all ranks.
  llvm::Expected<std::optional<CalibratedPoint>> measure(const CollectiveProbe &probe);

  /// Times the sizes in `known` that are missing and powers of four from `least` to `most` bytes, then powers of two
  /// and finer steps where interpolation misses. `known` holds points of an earlier run. What cannot be measured is
  /// said in `skipped`; it is no error. Collective over all ranks.
  llvm::Expected<CalibratedCurve> measureCurve(CollectiveProbe probe, Bytes least, Bytes most,
                                               std::vector<CalibratedPoint> known = {});

  /// Times exactly these sizes.
  llvm::Expected<CalibratedCurve> measureSizes(CollectiveProbe probe, llvm::ArrayRef<Bytes> sizes,
                                               std::vector<CalibratedPoint> known = {});

  Sampler &getSampler() { return sampler; }

private:
  llvm::Error add(CalibratedCurve &curve, Bytes bytes);
  llvm::Error refine(CalibratedCurve &curve, size_t round);

  Bench &bench;
  CalibratorOptions options;
  llvm::function_ref<void(const std::string &)> progress;
  Sampler sampler;
  /// Of the last point that was measured; 0 before the first.
  Bytes lastBytes = 0;
};

/// By how much interpolation between the neighbours of a point misses it, in permille, ascending; the ends are left
/// out. O(n log n) for n points.
std::vector<int64_t> interpolationErrors(const CalibratedCurve &curve);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_CALIBRATOR_H
