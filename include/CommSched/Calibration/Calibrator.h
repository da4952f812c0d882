//===- Calibrator.h - Measures the collectives of a machine -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides how often and at which sizes collectives are timed, and what the ranks agree on. Every decision is made from
// gathered values, so that all ranks make the same one and none waits for another in a collective that nobody else
// starts.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_CALIBRATOR_H
#define COMMSCHED_CALIBRATION_CALIBRATOR_H

#include "CommSched/Calibration/Bench.h"
#include "CommSched/Calibration/Statistics.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <string>

namespace commsched {

struct CalibratorOptions {
  /// Runs that are not timed: at least this many, and for at least this long.
  int64_t warmUpRuns = 5;
  Ns warmUpTime = 20'000'000;
  /// Timed runs of one point. They end early where the interval of the median has become narrow enough.
  int64_t minRuns = 20, maxRuns = 200;
  /// How wide the interval may be, in permille of the median.
  int64_t settledPermille = 20;
  /// Time that one point may take, ns.
  Ns pointTime = 2'000'000'000;
  /// Time that everything may take, ns; no limit at 0. A point that has begun is finished.
  Ns budget = 0;
  /// The recipe of PyTorch's node_runtime_estimation: one run to warm up, the mean of two.
  bool seedRecipe = false;
  /// A point between two others is added where interpolation misses what was measured by more than this, in permille.
  int64_t refinePermille = 100;
};

/// What was measured at one size.
struct CalibratedPoint {
  Bytes bytes = 0;
  Estimate time;
  /// Median time of the call that starts the collective, ns.
  Ns issue = 0;
  /// Medians of the ranks lay more than a tenth apart.
  bool isSkewed = false;
};

/// The points of one kind on one group, or the reason why there are none.
struct CalibratedCurve {
  CollectiveProbe probe;
  std::vector<CalibratedPoint> points;
  std::string skipped;
};

class Calibrator {
public:
  /// `progress` is called on every rank with one line per point.
  Calibrator(Bench &bench, const CalibratorOptions &options, llvm::function_ref<void(const std::string &)> progress);

  /// Times one size. The value is the median over the ranks that take part of their medians; the interval spans theirs.
  /// Collective over all ranks.
  llvm::Expected<CalibratedPoint> measure(const CollectiveProbe &probe);

  /// Times the sizes in `known` that are missing and powers of four from `least` to `most` bytes, then powers of two
  /// and finer steps where interpolation misses. `known` holds points of an earlier run. What cannot be measured is
  /// said in `skipped`; it is no error. Collective over all ranks.
  llvm::Expected<CalibratedCurve> measureCurve(CollectiveProbe probe, Bytes least, Bytes most,
                                               std::vector<CalibratedPoint> known = {});

  /// Times exactly these sizes.
  llvm::Expected<CalibratedCurve> measureSizes(CollectiveProbe probe, llvm::ArrayRef<Bytes> sizes,
                                               std::vector<CalibratedPoint> known = {});

  /// Whether the time that everything may take is over. Collective over all ranks.
  llvm::Expected<bool> isOutOfTime();

private:
  llvm::Expected<int64_t> warmUp();
  llvm::Expected<CalibratedPoint> agree(const CollectiveProbe &probe, llvm::ArrayRef<Ns> totals,
                                        llvm::ArrayRef<Ns> issues, bool &settled);
  llvm::Error add(CalibratedCurve &curve, Bytes bytes);
  llvm::Error refine(CalibratedCurve &curve, size_t round);

  Bench &bench;
  CalibratorOptions options;
  llvm::function_ref<void(const std::string &)> progress;
  Ns begin;
};

/// By how much interpolation between the neighbours of a point misses it, in permille, ascending; the ends are left
/// out. O(n log n) for n points.
std::vector<int64_t> interpolationErrors(const CalibratedCurve &curve);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_CALIBRATOR_H
