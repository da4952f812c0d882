//===- Computations.cpp - Measures computations -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One computation, and grids of sizes to which lines are fitted.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Computations.h"
#include "CommSched/Calibration/Contention.h"
#include "CommSched/Calibration/RuntimeBench.h"
#include "CommSched/Support/Format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace commsched;

/// Sides of the smallest and the largest square product of a grid.
static constexpr int64_t kLeastSide = 32, kMostSide = 16384;
/// Bytes of the smallest and the largest copy of a grid.
static constexpr Bytes kLeastCopy = 4 << 10, kMostCopy = 1 << 30;
/// How much more the next product of a grid computes, whose side is twice as long, and the next copy copies.
static constexpr int64_t kCube = 8, kCopyStep = 4;
/// A grid ends where one more step gains less than this, in permille, or where one operation takes longer than this.
static constexpr int64_t kGainPermille = 30;
static constexpr Ns kLongest = 100'000'000;
/// Samples of the times of calls.
static constexpr int64_t kCallSamples = 21;

FittedLine commsched::fitLine(llvm::ArrayRef<std::pair<double, Ns>> points) {
  // Least squares of (fixed + amount x slope - time) / time.
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (auto [amount, ns] : points) {
    double time = std::max<double>(1, static_cast<double>(ns)), weight = 1 / (time * time);
    w += weight;
    wx += weight * amount;
    wy += weight * time;
    wxx += weight * amount * amount;
    wxy += weight * amount * time;
  }
  double determinant = w * wxx - wx * wx;
  double slope = determinant > 1e-9 * w * wxx ? (w * wxy - wx * wy) / determinant : 0;
  double fixed = (wy - slope * wx) / w;
  if (slope <= 0 || fixed < 0) {
    fixed = 0;
    slope = wxy / wxx;
  }
  return {fixed, 1e9 / slope};
}

/// Prepares a computation on all ranks. The result says why one of them cannot; empty if all can.
llvm::Expected<std::string> ComputeCalibrator::prepare(const ComputeProbe &probe) {
  std::string own;
  Ns begin = bench.now();
  if (llvm::Error error = bench.prepare(probe))
    own = llvm::toString(std::move(error));
  if (probe.compile)
    compileCost = bench.now() - begin;
  llvm::Expected<std::vector<std::vector<int64_t>>> all = bench.gather(own.empty() ? 0 : 1);
  if (!all)
    return all.takeError();
  auto failed = llvm::find_if(*all, [](const std::vector<int64_t> &rank) { return rank.front() != 0; });
  if (failed == all->end() || !own.empty())
    return own;
  return "rank " + std::to_string(failed - all->begin()) + " cannot run it";
}

llvm::Expected<CalibratedOp> ComputeCalibrator::measure(const ComputeProbe &probe, double scale) {
  CalibratedOp result;
  result.probe = probe;
  std::string key = "computation " + probe.key();
  if (std::optional<StoredEstimate> known = store.find(key)) {
    result.time = known->time;
    result.isSkewed = known->isSkewed;
    if (std::optional<StoredEstimate> cost = store.find("cost of " + key))
      result.cost = cost->time.value;
    return result;
  }
  llvm::Expected<bool> hasTime = sampler.hasTimeFor(scale);
  if (hasTime && *hasTime && probe.compile)
    hasTime = sampler.hasTimeForCost(compileCost);
  if (!hasTime)
    return hasTime.takeError();
  std::optional<Sampled> sampled;
  if (*hasTime) {
    llvm::Expected<std::string> obstacle = prepare(probe);
    if (!obstacle)
      return obstacle.takeError();
    result.skipped = *obstacle;
    if (!result.skipped.empty())
      return result;
    llvm::Expected<std::optional<Sampled>> taken = sampler.measure(bench.ranks());
    if (!taken)
      return taken.takeError();
    sampled = *taken;
  }
  if (!sampled) {
    result.skipped = "the time that was given is used up";
    return result;
  }
  result.time = sampled->time;
  result.isSkewed = sampled->isSkewed;
  result.cost = sampler.costOfRun();
  store.put("cost of " + key, {{result.cost, result.cost, result.cost, 1, 0}, false});
  store.put(key, {result.time, result.isSkewed});
  progress(llvm::formatv("{0} ({1}): {2} (+{3} -{4}), {5} runs", probe.name, llvm::join(probe.shapes, ", "),
                         formatNs(result.time.value), formatNs(result.time.hi - result.time.value),
                         formatNs(result.time.value - result.time.lo), result.time.n + result.time.rejected)
               .str());
  return result;
}

llvm::Error ComputeCalibrator::measureProducts(ElementType element, Roofline &roofline) {
  std::optional<int32_t> dtype = runtimeType(element);
  if (!dtype || !bench.hasKernel("aten.mm")) {
    roofline.skipped.emplace_back("products of " + stringify(element).str(), "the backend has no kernel of them");
    return llvm::Error::success();
  }
  ProductRate rate;
  rate.element = element;
  sampler.beginSeries();
  double best = 0;
  for (int64_t side = kLeastSide; side <= kMostSide; side *= 2) {
    ComputeProbe probe = productProbe(side, element);
    llvm::Expected<CalibratedOp> op = measure(probe, kCube);
    if (!op)
      return op.takeError();
    if (!op->skipped.empty()) {
      roofline.skipped.emplace_back("products of " + stringify(element).str() + " from " + probe.shapes.front(),
                                    op->skipped);
      break;
    }
    double flops = 2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
    rate.points.emplace_back(flops, op->time.value);
    double reached = flops / static_cast<double>(op->time.value);
    bool gains = reached > best * (1 + kGainPermille / 1000.0);
    best = std::max(best, reached);
    if (!gains || kCube * op->cost > kLongest)
      break;
  }
  if (rate.points.empty())
    return llvm::Error::success();
  FittedLine line = fitLine(rate.points);
  rate.flopsPerSecond = line.rate;
  rate.halfFlops = std::max(0.0, line.fixed - static_cast<double>(roofline.launch)) * line.rate / 1e9;
  roofline.products.push_back(std::move(rate));
  return llvm::Error::success();
}

llvm::Error ComputeCalibrator::measureCopies(Roofline &roofline) {
  std::vector<std::pair<double, Ns>> points;
  sampler.beginSeries();
  for (Bytes bytes = kLeastCopy; bytes <= kMostCopy; bytes *= kCopyStep) {
    llvm::Expected<CalibratedOp> op = measure(copyProbe(bytes), kCopyStep);
    if (!op)
      return op.takeError();
    if (!op->skipped.empty()) {
      roofline.skipped.emplace_back("copies from " + formatBytes(bytes), op->skipped);
      break;
    }
    points.emplace_back(2.0 * static_cast<double>(bytes), op->time.value);
    if (kCopyStep * op->cost > kLongest)
      break;
  }
  if (points.empty())
    return llvm::Error::success();
  FittedLine line = fitLine(points);
  roofline.copyLaunch = static_cast<Ns>(line.fixed);
  // Small copies stay within a cache. The largest one says what memory gives.
  roofline.copyBytesPerSecond =
      points.back().first * 1e9 / std::max(1.0, static_cast<double>(points.back().second) - line.fixed);
  return llvm::Error::success();
}

llvm::Error ComputeCalibrator::measureCalls(Roofline &roofline) {
  ProbeTensor one{COMMRT_F32, {1}, 0}, out{COMMRT_F32, {1}, COMMRT_OPERAND_WRITTEN | COMMRT_OPERAND_OUTPUT};
  llvm::Expected<CalibratedOp> op = measure({"aten.neg", {one, out}, {}, false, "kernel of one element", {"1xf32"}});
  if (!op)
    return op.takeError();
  if (op->skipped.empty())
    roofline.launch = op->time.value;
  else
    roofline.skipped.emplace_back("launches", op->skipped);
  const char *names[] = {"record", "wait", "hop"};
  Ns *values[] = {&roofline.calls.record, &roofline.calls.wait, &roofline.calls.hop};
  if (store.find("call record")) {
    for (auto [name, value] : llvm::zip_equal(names, values))
      *value = store.find(std::string("call ") + name)->time.value;
    return llvm::Error::success();
  }
  std::vector<Ns> records, waits, hops;
  for (int64_t i = 0; i < kCallSamples; ++i) {
    llvm::Expected<CallTimes> times = bench.callTimes();
    if (!times)
      return times.takeError();
    records.push_back(times->record);
    waits.push_back(times->wait);
    hops.push_back(times->hop);
  }
  llvm::Expected<std::vector<std::vector<int64_t>>> all =
      bench.gather({medianOf(records), medianOf(waits), medianOf(hops)});
  if (!all)
    return all.takeError();
  for (size_t which = 0; which < std::size(names); ++which) {
    std::vector<int64_t> medians;
    for (const std::vector<int64_t> &rank : *all)
      medians.push_back(rank[which]);
    *values[which] = medianOf(medians);
  }
  for (auto [name, value] : llvm::zip_equal(names, values))
    store.put(std::string("call ") + name, {{*value, *value, *value, kCallSamples, 0}, false});
  return llvm::Error::success();
}

llvm::Expected<Roofline> ComputeCalibrator::measureRoofline(llvm::ArrayRef<ElementType> elements) {
  Roofline roofline;
  if (llvm::Error error = measureCalls(roofline))
    return std::move(error);
  if (llvm::Error error = measureCopies(roofline))
    return std::move(error);
  for (ElementType element : elements)
    if (llvm::Error error = measureProducts(element, roofline))
      return std::move(error);
  return roofline;
}
