//===- Statistics.cpp - Statistics of repeated measurements -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Medians, median absolute deviations and order statistics.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Statistics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cmath>
#include <numeric>

using namespace commsched;

/// 3.5 x 1.4826, in ten-thousandths.
static constexpr int64_t kOutlierTenThousandths = 51891;
/// The two-sided 95 % quantile of the normal distribution, with which order statistics are approximated.
static constexpr double kQuantile = 1.96;

/// The median of sorted values.
static int64_t middle(llvm::ArrayRef<int64_t> sorted) {
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : sorted[half - 1] + (sorted[half] - sorted[half - 1]) / 2;
}

int64_t commsched::medianOf(llvm::ArrayRef<int64_t> values) {
  if (values.empty())
    return 0;
  llvm::SmallVector<int64_t, 64> sorted(values);
  llvm::sort(sorted);
  return middle(sorted);
}

/// Sets the interval of the median of `sorted`: the samples at n/2 -+ 1.96 sqrt(n)/2.
static void setInterval(Estimate &estimate, llvm::ArrayRef<int64_t> sorted) {
  double n = static_cast<double>(sorted.size()), spread = kQuantile * std::sqrt(n) / 2;
  auto low = static_cast<int64_t>(std::floor(n / 2 - spread)), high = static_cast<int64_t>(std::ceil(n / 2 + spread));
  int64_t last = static_cast<int64_t>(sorted.size()) - 1;
  estimate.lo = sorted[std::clamp<int64_t>(low, 0, last)];
  estimate.hi = sorted[std::clamp<int64_t>(high, 0, last)];
}

Estimate commsched::estimateDuration(llvm::ArrayRef<Ns> samples) {
  Estimate result;
  if (samples.empty())
    return result;
  int64_t median = medianOf(samples);
  llvm::SmallVector<int64_t, 64> deviations;
  for (Ns sample : samples)
    deviations.push_back(std::abs(sample - median));
  int64_t deviation = medianOf(deviations);
  int64_t most = std::max<int64_t>(median / 10, deviation / 10000 * kOutlierTenThousandths +
                                                    deviation % 10000 * kOutlierTenThousandths / 10000);
  llvm::SmallVector<int64_t, 64> kept;
  for (Ns sample : samples)
    if (std::abs(sample - median) <= most)
      kept.push_back(sample);
  llvm::sort(kept);
  result.n = static_cast<int64_t>(kept.size());
  result.rejected = static_cast<int64_t>(samples.size() - kept.size());
  result.value = middle(kept);
  setInterval(result, kept);
  return result;
}

Estimate commsched::meanDuration(llvm::ArrayRef<Ns> samples) {
  Estimate result;
  if (samples.empty())
    return result;
  result.n = static_cast<int64_t>(samples.size());
  result.value = std::accumulate(samples.begin(), samples.end(), int64_t(0)) / result.n;
  result.lo = *llvm::min_element(samples);
  result.hi = *llvm::max_element(samples);
  return result;
}
