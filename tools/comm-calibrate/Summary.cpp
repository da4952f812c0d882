//===- Summary.cpp - Summary of a calibration -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "Summary.h"
#include "CommSched/Support/Format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace commsched;

/// How many things could not be measured.
static int64_t countSkipped(const Calibration &calibration) {
  return count_if(calibration.ops, [](const CalibratedOp &op) { return !op.skipped.empty(); }) +
         static_cast<int64_t>(calibration.skipped.size() + calibration.roofline.skipped.size());
}

void commsched::printSummary(const Calibration &calibration, raw_ostream &os) {
  for (const CalibratedCurve &curve : calibration.curves) {
    os << stringify(curve.probe.kind) << " on " << curve.probe.shape.ranks << " ranks, "
       << stringify(curve.probe.element) << ": " << curve.points.size() << " points";
    if (std::vector<int64_t> misses = interpolationErrors(curve); !misses.empty())
      os << formatv(", interpolation misses by {0:F1} % (median), {1:F1} % (95 %)", misses[misses.size() / 2] / 10.0,
                    misses[misses.size() * 95 / 100] / 10.0);
    if (!curve.skipped.empty())
      os << (curve.points.empty() ? "; not measured: " : "; incomplete: ") << curve.skipped;
    os << "\n";
  }
  for (const ProductRate &rate : calibration.roofline.products)
    os << formatv("products of {0}: {1:F3} TFLOP/s, half of it at {2:F0} operations\n", stringify(rate.element),
                  rate.flopsPerSecond * 1e-12, rate.halfFlops);
  if (calibration.roofline.copyBytesPerSecond > 0)
    os << formatv("copies: {0:F1} GB/s; a kernel: {1}; a copy: {2}\n", calibration.roofline.copyBytesPerSecond * 1e-9,
                  formatNs(calibration.roofline.launch), formatNs(calibration.roofline.copyLaunch));
  int64_t skipped = countSkipped(calibration);
  if (!calibration.ops.empty() || skipped > 0)
    os << calibration.ops.size() << " computations; " << skipped
       << " not measured (the profile's calibration.skipped says why)\n";
}

static json::Object describeCurve(const CalibratedCurve &curve) {
  json::Object row{{"kind", stringify(curve.probe.kind)},
                   {"ranks", curve.probe.shape.ranks},
                   {"element", stringify(curve.probe.element)},
                   {"points", static_cast<int64_t>(curve.points.size())}};
  if (std::vector<int64_t> misses = interpolationErrors(curve); !misses.empty()) {
    row["median_permille"] = misses[misses.size() / 2];
    row["p95_permille"] = misses[misses.size() * 95 / 100];
  }
  if (!curve.skipped.empty())
    row["skipped"] = json::fixUTF8(curve.skipped);
  return row;
}

json::Object commsched::describeSummary(const Calibration &calibration) {
  const Roofline &roofline = calibration.roofline;
  json::Array curves, products;
  for (const CalibratedCurve &curve : calibration.curves)
    curves.push_back(describeCurve(curve));
  for (const ProductRate &rate : roofline.products)
    products.push_back(json::Object{{"element", stringify(rate.element)},
                                    {"flops_per_second", rate.flopsPerSecond},
                                    {"half_flops", rate.halfFlops}});
  json::Object figures{{"curves", std::move(curves)},
                       {"products", std::move(products)},
                       {"computations", static_cast<int64_t>(calibration.ops.size())},
                       {"not_measured", countSkipped(calibration)}};
  if (roofline.copyBytesPerSecond > 0)
    figures["copies"] = json::Object{{"bytes_per_second", roofline.copyBytesPerSecond},
                                     {"launch_ns", roofline.launch},
                                     {"copy_launch_ns", roofline.copyLaunch}};
  return figures;
}
