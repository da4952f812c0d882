//===- ParetoReport.h - Time against peak, as JSON and as a picture ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What comm-pareto found out about the blocks of a module, and how it is written.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_PARETOREPORT_H
#define COMMSCHED_REPORT_PARETOREPORT_H

#include "CommSched/Scheduling/Lenses/Pareto.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <vector>

namespace commsched {

/// The curve of one block.
struct ParetoBlock {
  /// The function's name, with ".N" for its Nth inner block.
  std::string name;
  ParetoCurve curve;
  /// No schedule is faster, whatever its peak, ns; and what binds ("compute lane", ...).
  Ns bound = 0;
  std::string boundBy;
  /// No order has a lower peak while nothing is merged, bytes.
  Bytes peakBound = 0;
};

/// The curves of a module.
struct ParetoReport {
  std::string machine;
  std::vector<ParetoBlock> blocks;

  /// {"schema_version": 1, "machine", "functions": [{"name", "lower_bound_ns", "lower_bound_by",
  /// "peak_lower_bound_bytes", "input": POINT, "points": [POINT...], "limits", "steps"}]}, with POINT {"peak_bytes",
  /// "makespan_ns", "gap", "collectives"}: by ascending peak, gaps as fractions of the bound.
  llvm::json::Value toJSON() const;
};

/// One panel per block: makespan over peak as a step curve, the input's point, the bounds. Self-contained SVG.
void writeSvg(const ParetoReport &report, llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_REPORT_PARETOREPORT_H
