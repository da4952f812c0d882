//===- Calibrator.cpp - Measures the collectives of a machine ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One size, and the choice of sizes.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Calibrator.h"
#include "CommSched/Support/Format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace commsched;

/// Halvings of the step between two powers of two, at most.
static constexpr size_t kRefinements = 2;
/// Why a curve is not complete.
static constexpr llvm::StringLiteral kOutOfTime = "the time that was given is used up";

Calibrator::Calibrator(Bench &bench, const CalibratorOptions &options,
                       llvm::function_ref<void(const std::string &)> progress)
    : bench(bench), options(options), progress(progress), sampler(bench, this->options) {}

llvm::Expected<std::optional<CalibratedPoint>> Calibrator::measure(const CollectiveProbe &probe) {
  if (llvm::Error error = bench.prepare(probe))
    return std::move(error);
  llvm::Expected<std::optional<Sampled>> sampled = sampler.measure(bench.participants(probe));
  if (!sampled)
    return sampled.takeError();
  if (!*sampled)
    return std::nullopt;
  lastBytes = probe.bytes;
  CalibratedPoint point{probe.bytes,          (*sampled)->time,       (*sampled)->issue,
                        (*sampled)->isSkewed, (*sampled)->operations, (*sampled)->single};
  progress(llvm::formatv("{0} on {1} ranks, {2}: {3} (+{4} -{5}), {6} runs{7}{8}", stringify(probe.kind),
                         probe.shape.ranks, formatBytes(probe.bytes), formatNs(point.time.value),
                         formatNs(point.time.hi - point.time.value), formatNs(point.time.value - point.time.lo),
                         point.time.n + point.time.rejected, point.isSkewed ? ", ranks differ" : "",
                         point.time.isUnstable() ? ", unstable" : "")
               .str());
  return point;
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
  // Larger ones take longer; how much longer at most is known.
  double scale = static_cast<double>(probe.bytes) / static_cast<double>(std::max<Bytes>(1, lastBytes));
  llvm::Expected<bool> hasTime = sampler.hasTimeFor(lastBytes == 0 ? 0 : std::max(1.0, scale));
  if (!hasTime)
    return hasTime.takeError();
  std::optional<CalibratedPoint> point;
  if (*hasTime) {
    llvm::Expected<std::optional<CalibratedPoint>> measured = measure(probe);
    if (!measured)
      return measured.takeError();
    point = *measured;
  }
  if (point)
    curve.points.insert(at, *point);
  else
    curve.skipped = kOutOfTime.str();
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
  for (Bytes middle : middles) {
    if (llvm::Error error = add(curve, middle))
      return error;
    if (!curve.skipped.empty())
      break;
  }
  return llvm::Error::success();
}

llvm::Expected<CalibratedCurve> Calibrator::measureSizes(CollectiveProbe probe, llvm::ArrayRef<Bytes> sizes,
                                                         std::vector<CalibratedPoint> known) {
  CalibratedCurve curve{probe, std::move(known), ""};
  for (Bytes bytes : sizes) {
    if (llvm::Error error = add(curve, bytes))
      return std::move(error);
    if (!curve.skipped.empty())
      break;
  }
  return curve;
}

llvm::Expected<CalibratedCurve> Calibrator::measureCurve(CollectiveProbe probe, Bytes least, Bytes most,
                                                         std::vector<CalibratedPoint> known) {
  CalibratedCurve curve{probe, std::move(known), ""};
  for (Bytes bytes = least; curve.skipped.empty(); bytes *= 4) {
    if (llvm::Error error = add(curve, std::min(bytes, most)))
      return std::move(error);
    if (bytes >= most)
      break;
  }
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
