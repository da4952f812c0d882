//===- TimeBudget.cpp - The lowest peak for a given time --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Bisects between limits on the peak. A search at a limit may miss what one at a smaller limit finds, so the result is
// the best of the answers, not what the last one is.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/CostScale.h"
#include "Lens.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

/// At most so many searches beside the first one, which end when the limits are this close to each other, in
/// thousandths of the peak.
static constexpr int32_t kMaxPeakSearches = 10;
static constexpr int64_t kClosePermille = 2;

namespace {

/// The answer with the lowest peak within a time.
class PeakSearch {
public:
  PeakSearch(const Problem &problem, const ScheduleOptions &options, InnerSolver inner)
      : problem(problem), options(options), inner(inner), best(inner(problem, options)),
        most(longest(best.makespan, *options.timeBudgetRatio)), scales(best.scales), regret(best.regretPpm) {}

  Schedule run() {
    const Bytes limit = best.limit;
    if (!best.isWithinLimit())
      return std::move(best);
    // A limit that nothing meets gives the lowest peak that a search reaches.
    Bytes low = tryLimit(0);
    for (int32_t count = 1; count < kMaxPeakSearches && low < best.peak && !options.isStopped(); ++count) {
      if (best.peak - low <= mulDiv(best.peak, kClosePermille, kPermille))
        break;
      low = std::max(low, tryLimit(low + (best.peak - low) / 2));
    }
    best.limit = limit;
    compareScales();
    return std::move(best);
  }

private:
  /// A makespan and the part of it that may be added.
  static Ns longest(Ns makespan, double ratio) {
    return static_cast<Ns>(std::min(static_cast<double>(makespan) * (1 + ratio), static_cast<double>(kMaxTotalNs)));
  }

  /// Searches within a limit below the best peak. Returns a peak below which nothing was found, or 0.
  Bytes tryLimit(Bytes limit) {
    ScheduleOptions limited = options;
    limited.memory.limit = limit;
    Schedule found = inner(problem, limited);
    const Bytes peak = found.peak;
    const bool isBetter = found.makespan <= most && peak < best.peak;
    if (isBetter) {
      found.leastOrder = best.leastOrder;
      found.leastSchedule = best.leastSchedule;
      found.leastPeak = std::nullopt;
      std::swap(found, best);
    }
    addEffort(best, found);
    if (peak > limit)
      return peak;
    return isBetter ? 0 : limit;
  }

  /// Compares the answer with the bounds for all answers within the limit that the user gave.
  void compareScales() {
    llvm::SmallVector<CostScale> played;
    for (const ScaledTimes &times : scales)
      played.push_back(times.scale);
    std::vector<Ns> makespans = playAtScales(best.carriedOut(problem), best.order, played);
    best.scales = scales;
    for (auto [times, makespan] : llvm::zip_equal(best.scales, makespans))
      times.makespan = makespan;
    best.regretPpm = regret ? regretPpm(best.scales) : std::nullopt;
  }

  const Problem &problem;
  const ScheduleOptions &options;
  InnerSolver inner;
  Schedule best;
  /// The longest makespan that may be taken, ns.
  Ns most;
  /// Of the fastest answer.
  std::vector<ScaledTimes> scales;
  std::optional<int64_t> regret;
};

} // namespace

bool commsched::hasTimeBudget(const Problem &, const ScheduleOptions &options) {
  return options.timeBudgetRatio.has_value();
}

Schedule commsched::scheduleWithinTime(const Problem &problem, const ScheduleOptions &options, InnerSolver inner) {
  return PeakSearch(problem, options, inner).run();
}
