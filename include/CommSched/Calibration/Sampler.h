//===- Sampler.h - Repeats a measurement until ranks know its median --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides how often the bench runs what it has prepared: warm-up, operations per sample, samples, and the end of the
// time that everything may take. Every decision is made from gathered values, so that all ranks make the same one and
// none waits for another in a collective that nobody else starts.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_SAMPLER_H
#define COMMSCHED_CALIBRATION_SAMPLER_H

#include "CommSched/Calibration/Bench.h"
#include "CommSched/Calibration/Statistics.h"
#include <optional>

namespace commsched {

struct CalibratorOptions {
  /// Runs that are not timed: at least this many, and for at least this long.
  int64_t warmUpRuns = 5;
  Ns warmUpTime = 20'000'000;
  /// Samples of one point. They end early where the interval of the median has become narrow enough.
  int64_t minRuns = 20, maxRuns = 200;
  /// How wide the interval may be, in permille of the median.
  int64_t settledPermille = 20;
  /// Time that one point may take, ns.
  Ns pointTime = 2'000'000'000;
  /// Time that everything may take, ns; no limit at 0. What would end later is not begun, as far as earlier runs tell
  /// how long a run takes; a point that has too few samples by then is given up.
  Ns budget = 0;
  /// The recipe of PyTorch's node_runtime_estimation: one run to warm up, the mean of two.
  bool seedRecipe = false;
  /// A point between two others is added where interpolation misses what was measured by more than this, in permille.
  int64_t refinePermille = 100;
};

/// What all ranks make of the samples of one thing.
struct Sampled {
  /// Of one operation: the median over the ranks of their medians; the interval spans theirs.
  Estimate time;
  /// Median time of the host's call, ns.
  Ns issue = 0;
  /// Medians of the ranks lay more than a tenth apart.
  bool isSkewed = false;
  /// Operations in a row of which a sample consisted, and the time of one that runs alone, ns.
  int64_t operations = 1;
  Ns single = 0;
};

class Sampler {
public:
  /// Keeps references to both. The time that everything may take begins now.
  Sampler(Bench &bench, const CalibratorOptions &options);

  /// Times what the bench has prepared, on the first `members` ranks. None if the time is used up before there are
  /// enough samples. Collective over all ranks.
  llvm::Expected<std::optional<Sampled>> measure(int64_t members);

  /// The time that is left on the rank that has used most of it, ns; a very large number without a limit. Collective
  /// over all ranks.
  llvm::Expected<Ns> remaining();

  /// Whether a measurement of something that takes `scale` times as long as the one before ends in time. Collective
  /// over all ranks.
  llvm::Expected<bool> hasTimeFor(double scale);

  /// Whether something ends in time that takes `cost` on this rank's clock, ns. Collective over all ranks.
  llvm::Expected<bool> hasTimeForCost(Ns cost);

  /// What follows has nothing to do with what was measured before.
  void beginSeries() { lastCost = 0; }
  /// What one run of the last thing that was measured took on the host's clock, on the slowest rank, ns.
  Ns costOfRun() const { return lastCost; }

  /// Time since the beginning on this rank, ns.
  Ns elapsed() const { return bench.now() - begin; }

private:
  struct Round;

  llvm::Expected<Ns> runAlone(Ns &time);
  llvm::Expected<Round> warmUp();
  llvm::Expected<Round> agree(int64_t members, llvm::ArrayRef<Ns> totals, llvm::ArrayRef<Ns> issues, Ns roundCost,
                              Ns pointBegin);
  llvm::Expected<std::optional<Sampled>> sample(int64_t members, int64_t operations, int64_t least, int64_t most,
                                                Ns cost);
  Ns left(Ns used) const;

  Bench &bench;
  const CalibratorOptions &options;
  Ns begin;
  Ns lastCost = 0;
};

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_SAMPLER_H
