//===- Sampler.cpp - Repeats a measurement until ranks know its median ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Warm-up, samples until the median is known well enough, agreement of the ranks, and the time that is left.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Sampler.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace commsched;

/// Samples between two looks at the interval.
static constexpr int64_t kBatch = 20;
/// The most untimed runs of one point, however short they are.
static constexpr int64_t kMostWarmUpRuns = 200;
/// The fewest samples that are worth keeping: with fewer, the interval of a median says nothing.
static constexpr int64_t kLeastSamples = 5;
/// The most operations in a row. With more, single outliers would hide in a sample.
static constexpr int64_t kMostOperations = 64;
/// "No limit", with room for sums.
static constexpr Ns kForever = std::numeric_limits<Ns>::max() / 4;

Bench::~Bench() = default;
int64_t Bench::participants(const CollectiveProbe &probe) const { return probe.shape.ranks; }

Sampler::Sampler(Bench &bench, const CalibratorOptions &options) : bench(bench), options(options), begin(bench.now()) {}

/// The largest value of any rank.
static llvm::Expected<int64_t> largest(Bench &bench, int64_t own) {
  llvm::Expected<std::vector<std::vector<int64_t>>> all = bench.gather(own);
  if (!all)
    return all.takeError();
  int64_t result = own;
  for (const std::vector<int64_t> &values : *all)
    result = std::max(result, values.front());
  return result;
}

Ns Sampler::left(Ns used) const { return options.budget == 0 ? kForever : options.budget - used; }

llvm::Expected<Ns> Sampler::remaining() {
  if (options.budget == 0)
    return kForever;
  llvm::Expected<int64_t> used = largest(bench, elapsed());
  if (!used)
    return used.takeError();
  return left(*used);
}

llvm::Expected<bool> Sampler::hasTimeFor(double scale) {
  llvm::Expected<Ns> time = remaining();
  if (!time)
    return time.takeError();
  // One run to learn the time, and the fewest samples.
  double needed = scale * static_cast<double>(lastCost) * (1 + kLeastSamples);
  return *time > 0 && needed <= static_cast<double>(*time);
}

llvm::Expected<bool> Sampler::hasTimeForCost(Ns cost) {
  if (options.budget == 0)
    return true;
  llvm::Expected<int64_t> end = largest(bench, elapsed() + cost);
  if (!end)
    return end.takeError();
  return *end <= options.budget;
}

/// What all ranks know after a round of samples.
struct Sampler::Round {
  Sampled sampled;
  bool isSettled = true;
  /// On the slowest rank: the time of one sample on the host's clock, and time since the beginning of the point and of
  /// everything. ns
  Ns cost = 0, pointTime = 0, used = 0;
};

/// Runs one operation; the result is what the host's clock says on this rank.
llvm::Expected<Ns> Sampler::runAlone(Ns &time) {
  Ns before = bench.now();
  llvm::Expected<ProbeTime> run = bench.run(1);
  if (!run)
    return run.takeError();
  time = run->total;
  return std::max<Ns>(1, bench.now() - before);
}

/// Runs without keeping the times. Ranks agree on the number of runs from the slowest first one. The result's value is
/// the time of the last run, on the slowest rank.
llvm::Expected<Sampler::Round> Sampler::warmUp() {
  Ns time = 0;
  llvm::Expected<Ns> own = runAlone(time);
  if (!own)
    return own.takeError();
  Round round;
  auto agreeOn = [&]() -> llvm::Error {
    llvm::Expected<std::vector<std::vector<int64_t>>> all = bench.gather({time, *own, elapsed()});
    if (!all)
      return all.takeError();
    round = {};
    for (const std::vector<int64_t> &values : *all) {
      round.sampled.time.value = std::max(round.sampled.time.value, values[0]);
      round.cost = std::max(round.cost, values[1]);
      round.used = std::max(round.used, values[2]);
    }
    return llvm::Error::success();
  };
  if (llvm::Error error = agreeOn())
    return std::move(error);
  if (options.seedRecipe)
    return round;
  int64_t runs = std::clamp<int64_t>(options.warmUpTime / round.cost, options.warmUpRuns - 1, kMostWarmUpRuns);
  // At most a quarter of the time that is left goes into runs that do not count.
  runs = std::min(runs, std::max<Ns>(0, left(round.used)) / 4 / round.cost);
  for (int64_t i = 0; i < runs; ++i) {
    own = runAlone(time);
    if (!own)
      return own.takeError();
  }
  if (runs > 0)
    if (llvm::Error error = agreeOn())
      return std::move(error);
  return round;
}

/// What all ranks make of the samples so far. The values that a rank contributes are those of its own clock.
llvm::Expected<Sampler::Round> Sampler::agree(int64_t members, llvm::ArrayRef<Ns> totals, llvm::ArrayRef<Ns> issues,
                                              Ns roundCost, Ns pointBegin) {
  Estimate own = options.seedRecipe ? meanDuration(totals) : estimateDuration(totals);
  llvm::Expected<std::vector<std::vector<int64_t>>> all =
      bench.gather({own.value, own.lo, own.hi, own.n, own.rejected, medianOf(issues), roundCost,
                    bench.now() - pointBegin, elapsed()});
  if (!all)
    return all.takeError();
  Round round;
  Estimate &time = round.sampled.time;
  std::vector<int64_t> medians, issueTimes;
  for (const auto &[rank, values] : llvm::enumerate(*all)) {
    round.cost = std::max(round.cost, values[6]);
    round.pointTime = std::max(round.pointTime, values[7]);
    round.used = std::max(round.used, values[8]);
    if (static_cast<int64_t>(rank) >= members)
      continue;
    Estimate theirs{values[0], values[1], values[2], values[3], values[4]};
    round.isSettled &= theirs.isSettled(options.settledPermille);
    medians.push_back(theirs.value);
    issueTimes.push_back(values[5]);
    time.lo = rank == 0 ? theirs.lo : std::min(time.lo, theirs.lo);
    time.hi = std::max(time.hi, theirs.hi);
    time.n = rank == 0 ? theirs.n : std::min(time.n, theirs.n);
    time.rejected = std::max(time.rejected, theirs.rejected);
  }
  time.value = std::max<Ns>(1, medianOf(medians));
  round.sampled.issue = medianOf(issueTimes);
  round.sampled.isSkewed = 10 * (*llvm::max_element(medians) - *llvm::min_element(medians)) > time.value;
  return round;
}

/// Takes samples of `operations` in a row: at least `least`, at most `most`, each of which takes about `cost`.
llvm::Expected<std::optional<Sampled>> Sampler::sample(int64_t members, int64_t operations, int64_t least, int64_t most,
                                                       Ns cost) {
  std::vector<Ns> totals, issues;
  Ns pointBegin = bench.now();
  Round round;
  llvm::Expected<Ns> time = remaining();
  if (!time)
    return time.takeError();
  round.used = options.budget == 0 ? 0 : options.budget - *time;
  while (true) {
    auto taken = static_cast<int64_t>(totals.size());
    int64_t batch = std::min({kBatch, most - taken, std::max<Ns>(0, left(round.used)) / std::max<Ns>(1, cost)});
    if (batch == 0 && taken < std::min(kLeastSamples, least))
      return std::nullopt;
    if (batch == 0 || (taken >= least && round.isSettled) || round.pointTime > options.pointTime) {
      round.sampled.operations = operations;
      return round.sampled;
    }
    Ns roundBegin = bench.now();
    for (int64_t i = 0; i < batch; ++i) {
      llvm::Expected<ProbeTime> run = bench.run(operations);
      if (!run)
        return run.takeError();
      totals.push_back(run->total);
      issues.push_back(run->issue);
    }
    llvm::Expected<Round> next = agree(members, totals, issues, (bench.now() - roundBegin) / batch, pointBegin);
    if (!next)
      return next.takeError();
    round = *next;
    cost = round.cost;
  }
}

llvm::Expected<std::optional<Sampled>> Sampler::measure(int64_t members) {
  llvm::Expected<Round> warm = warmUp();
  if (!warm)
    return warm.takeError();
  lastCost = warm->cost;
  if (options.seedRecipe) {
    llvm::Expected<std::optional<Sampled>> mean = sample(members, 1, 2, 2, warm->cost);
    if (mean && *mean)
      (*mean)->single = (*mean)->time.value;
    return mean;
  }
  Ns once = std::max<Ns>(1, warm->sampled.time.value);
  int64_t operations = std::clamp<int64_t>(llvm::divideCeil(bench.sampleTime(), once), 1, kMostOperations);
  llvm::Expected<std::optional<Sampled>> result =
      sample(members, operations, options.minRuns, options.maxRuns, warm->cost * operations);
  if (!result || !*result)
    return result;
  (*result)->single = (*result)->time.value;
  if (operations == 1)
    return result;
  llvm::Expected<std::optional<Sampled>> alone = sample(members, 1, options.minRuns, options.minRuns, warm->cost);
  if (!alone)
    return alone.takeError();
  if (*alone)
    (*result)->single = (*alone)->time.value;
  return result;
}
