//===- Calibrator.cpp - Measures the collectives of a machine ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Warm-up, timed runs until the median is known well enough, agreement of the ranks, and the choice of sizes.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Calibrator.h"
#include "CommSched/Support/Format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace commsched;

/// Runs between two looks at the interval.
static constexpr int64_t kBatch = 20;
/// The most untimed runs of one point, however short they are.
static constexpr int64_t kMostWarmUpRuns = 200;
/// Halvings of the step between two powers of two, at most.
static constexpr size_t kRefinements = 2;

Bench::~Bench() = default;

Calibrator::Calibrator(Bench &bench, const CalibratorOptions &options,
                       llvm::function_ref<void(const std::string &)> progress)
    : bench(bench), options(options), progress(progress), begin(bench.now()) {}

/// The largest value that any rank has.
static llvm::Expected<int64_t> largest(Bench &bench, int64_t own) {
  llvm::Expected<std::vector<std::vector<int64_t>>> all = bench.gather(own);
  if (!all)
    return all.takeError();
  int64_t result = own;
  for (const std::vector<int64_t> &values : *all)
    result = std::max(result, values.front());
  return result;
}

llvm::Expected<bool> Calibrator::isOutOfTime() {
  if (options.budget == 0)
    return false;
  llvm::Expected<int64_t> elapsed = largest(bench, bench.now() - begin);
  if (!elapsed)
    return elapsed.takeError();
  return *elapsed > options.budget;
}

/// Runs without timing. Ranks agree on the number of runs from the slowest first run.
llvm::Expected<int64_t> Calibrator::warmUp() {
  llvm::Expected<ProbeTime> first = bench.run();
  if (!first)
    return first.takeError();
  int64_t runs = 0;
  if (!options.seedRecipe) {
    llvm::Expected<int64_t> slowest = largest(bench, std::max<Ns>(1, first->total));
    if (!slowest)
      return slowest.takeError();
    runs = std::clamp<int64_t>(options.warmUpTime / *slowest, options.warmUpRuns - 1, kMostWarmUpRuns);
  }
  for (int64_t i = 0; i < runs; ++i)
    if (llvm::Expected<ProbeTime> time = bench.run(); !time)
      return time.takeError();
  return runs + 1;
}

/// What all ranks make of the runs so far. The values that a rank contributes are those of its own clock.
llvm::Expected<CalibratedPoint> Calibrator::agree(const CollectiveProbe &probe, llvm::ArrayRef<Ns> totals,
                                                  llvm::ArrayRef<Ns> issues, bool &settled) {
  Estimate own = options.seedRecipe ? meanDuration(totals) : estimateDuration(totals);
  llvm::Expected<std::vector<std::vector<int64_t>>> all =
      bench.gather({own.value, own.lo, own.hi, own.n, own.rejected, medianOf(issues)});
  if (!all)
    return all.takeError();
  CalibratedPoint point;
  point.bytes = probe.bytes;
  std::vector<int64_t> medians, issueTimes;
  settled = true;
  for (int64_t rank = 0; rank < probe.shape.ranks; ++rank) {
    llvm::ArrayRef<int64_t> values = (*all)[rank];
    Estimate theirs{values[0], values[1], values[2], values[3], values[4]};
    settled &= theirs.isSettled(options.settledPermille);
    medians.push_back(theirs.value);
    issueTimes.push_back(values[5]);
    point.time.lo = rank == 0 ? theirs.lo : std::min(point.time.lo, theirs.lo);
    point.time.hi = std::max(point.time.hi, theirs.hi);
    point.time.n = rank == 0 ? theirs.n : std::min(point.time.n, theirs.n);
    point.time.rejected = std::max(point.time.rejected, theirs.rejected);
  }
  point.time.value = std::max<Ns>(1, medianOf(medians));
  point.issue = medianOf(issueTimes);
  point.isSkewed = 10 * (*llvm::max_element(medians) - *llvm::min_element(medians)) > point.time.value;
  return point;
}

llvm::Expected<CalibratedPoint> Calibrator::measure(const CollectiveProbe &probe) {
  if (llvm::Error error = bench.prepare(probe))
    return std::move(error);
  Ns pointBegin = bench.now();
  if (llvm::Expected<int64_t> runs = warmUp(); !runs)
    return runs.takeError();
  std::vector<Ns> totals, issues;
  int64_t most = options.seedRecipe ? 2 : options.maxRuns, batch = options.seedRecipe ? 2 : kBatch;
  while (true) {
    for (int64_t i = 0; i < batch; ++i) {
      llvm::Expected<ProbeTime> time = bench.run();
      if (!time)
        return time.takeError();
      totals.push_back(time->total);
      issues.push_back(time->issue);
    }
    bool settled = false;
    llvm::Expected<CalibratedPoint> point = agree(probe, totals, issues, settled);
    if (!point)
      return point;
    llvm::Expected<int64_t> elapsed = largest(bench, bench.now() - pointBegin);
    if (!elapsed)
      return elapsed.takeError();
    auto runs = static_cast<int64_t>(totals.size());
    if (runs >= most || (runs >= options.minRuns && settled) || *elapsed > options.pointTime) {
      progress(llvm::formatv("{0} on {1} ranks, {2}: {3} (+{4} -{5}), {6} runs{7}", stringify(probe.kind),
                             probe.shape.ranks, formatBytes(probe.bytes), formatNs(point->time.value),
                             formatNs(point->time.hi - point->time.value), formatNs(point->time.value - point->time.lo),
                             runs, point->isSkewed ? ", ranks differ" : "")
                   .str());
      return point;
    }
  }
}

//===- Sizes ----------------------------------------------------------------------------------===//

/// Measures a size that the curve does not have yet. A size that cannot be measured is passed over.
llvm::Error Calibrator::add(CalibratedCurve &curve, Bytes bytes) {
  CollectiveProbe probe = curve.probe;
  probe.bytes = bytes;
  probe.bytes = bench.feasibleBytes(probe);
  auto at = llvm::lower_bound(curve.points, probe.bytes,
                              [](const CalibratedPoint &point, Bytes value) { return point.bytes < value; });
  if (at != curve.points.end() && at->bytes == probe.bytes)
    return llvm::Error::success();
  llvm::Expected<bool> late = isOutOfTime();
  if (!late)
    return late.takeError();
  if (*late) {
    curve.skipped = "the time that was given is used up";
    return llvm::Error::success();
  }
  llvm::Expected<CalibratedPoint> point = measure(probe);
  if (!point)
    return point.takeError();
  curve.points.insert(at, *point);
  return llvm::Error::success();
}

/// By how much the profile's interpolation between the neighbours of point `i` misses it, in permille; 0 at the ends.
static int64_t missPermille(const CalibratedCurve &curve, size_t i) {
  if (i == 0 || i + 1 >= curve.points.size())
    return 0;
  MachineModel machine;
  CollectiveTable table;
  table.kind = curve.probe.kind;
  table.ranks = curve.probe.shape.ranks;
  table.nodes = curve.probe.shape.nodes;
  for (size_t j : {i - 1, i + 1})
    table.points.push_back({curve.points[j].bytes, curve.points[j].time.value});
  machine.collectives.push_back(std::move(table));
  Ns predicted =
      CollectiveCurve::get(machine, curve.probe.kind, curve.probe.shape, curve.probe.element)(curve.points[i].bytes);
  Ns measured = std::max<Ns>(1, curve.points[i].time.value);
  return std::abs(predicted - measured) * 1000 / measured;
}

/// Adds a point between neighbours: in the first round between all of them, at a power of two; later in the middle, and
/// only beside a point that interpolation misses.
llvm::Error Calibrator::refine(CalibratedCurve &curve, size_t round) {
  std::vector<Bytes> middles;
  for (size_t i = 0; i + 1 < curve.points.size(); ++i) {
    Bytes a = curve.points[i].bytes, b = curve.points[i + 1].bytes;
    bool missed = round == 0 || missPermille(curve, i) > options.refinePermille ||
                  missPermille(curve, i + 1) > options.refinePermille;
    Bytes middle = round == 0 ? static_cast<Bytes>(llvm::NextPowerOf2(std::max<Bytes>(1, a))) : a + (b - a) / 2;
    if (missed && middle > a && middle < b)
      middles.push_back(middle);
  }
  for (Bytes middle : middles)
    if (llvm::Error error = add(curve, middle))
      return error;
  return llvm::Error::success();
}

llvm::Expected<CalibratedCurve> Calibrator::measureSizes(CollectiveProbe probe, llvm::ArrayRef<Bytes> sizes,
                                                         std::vector<CalibratedPoint> known) {
  CalibratedCurve curve{probe, std::move(known), ""};
  for (Bytes bytes : sizes)
    if (llvm::Error error = add(curve, bytes))
      return std::move(error);
  return curve;
}

llvm::Expected<CalibratedCurve> Calibrator::measureCurve(CollectiveProbe probe, Bytes least, Bytes most,
                                                         std::vector<CalibratedPoint> known) {
  CalibratedCurve curve{probe, std::move(known), ""};
  for (Bytes bytes = least; bytes < most; bytes *= 4)
    if (llvm::Error error = add(curve, bytes))
      return std::move(error);
  if (llvm::Error error = add(curve, most))
    return std::move(error);
  for (size_t round = 0; round <= kRefinements && curve.skipped.empty() && !options.seedRecipe; ++round)
    if (llvm::Error error = refine(curve, round))
      return std::move(error);
  return curve;
}

std::vector<int64_t> commsched::interpolationErrors(const CalibratedCurve &curve) {
  std::vector<int64_t> errors;
  for (size_t i = 1; i + 1 < curve.points.size(); ++i)
    errors.push_back(missPermille(curve, i));
  llvm::sort(errors);
  return errors;
}
