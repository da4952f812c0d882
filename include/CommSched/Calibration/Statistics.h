//===- Statistics.h - Statistics of repeated measurements -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A duration from samples: the median of those that are no outliers, and an interval that holds the true median with a
// probability of 95 %. Medians and order statistics assume nothing about the noise's distribution.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_STATISTICS_H
#define COMMSCHED_CALIBRATION_STATISTICS_H

#include "CommSched/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include <cstdint>

namespace commsched {

/// A measured duration. All times are in ns.
struct Estimate {
  /// The median of the samples that were kept; 0 without samples.
  Ns value = 0;
  /// The interval of the median: order statistics (Conover, Practical Nonparametric Statistics, section 3.2).
  Ns lo = 0, hi = 0;
  /// Samples that were kept, and samples that were rejected as outliers.
  int64_t n = 0, rejected = 0;

  /// Whether more than a tenth of the samples were outliers.
  bool isUnstable() const { return 10 * rejected > n + rejected; }
  /// Whether the interval is at most `permille` of the value wide.
  bool isSettled(int64_t permille) const { return n > 0 && 1000 * (hi - lo) <= permille * value; }
};

/// The estimate from `samples` (ns, not negative). A sample is an outlier if it is further from the median than 3.5 x
/// 1.4826 median absolute deviations (Iglewicz and Hoaglin, 1993), and further than a tenth of the median, so that
/// samples of a quiet machine are not rejected for a few ns. O(n log n).
Estimate estimateDuration(llvm::ArrayRef<Ns> samples);

/// The mean of `samples` without any rejection, for the recipe of PyTorch's runtime estimation; 0 without samples.
Estimate meanDuration(llvm::ArrayRef<Ns> samples);

/// The value at the middle of `values`, the mean of both where their number is even; 0 if there are none. O(n log n).
int64_t medianOf(llvm::ArrayRef<int64_t> values);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_STATISTICS_H
