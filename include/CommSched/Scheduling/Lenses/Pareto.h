//===- Pareto.h - Time against peak -----------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// How much time does memory buy? The makespans that the solver reaches for limits from the lowest peak that it can come
// down to up to no limit at all.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_PARETO_H
#define COMMSCHED_SCHEDULING_LENSES_PARETO_H

#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace commsched {

/// What one answer costs, in both currencies.
struct ParetoPoint {
  Bytes peak = 0;
  Ns makespan = 0;
  /// Collectives that are left after merging.
  int32_t collectives = 0;
};

/// A curve of time against peak.
struct ParetoCurve {
  /// Peaks strictly ascending, makespans strictly descending: what is no better than a cheaper point is left out.
  std::vector<ParetoPoint> points;
  /// The given order, for comparison; it is on the curve only where nothing beats it.
  ParetoPoint input;
  /// Limits that were solved for, and steps that this took.
  int32_t limits = 0;
  int64_t steps = 0;
  /// See Schedule::defect.
  std::string defect;
};

/// Calls body(0) ... body(count - 1), in any order and on any threads.
using ParallelFor = llvm::function_ref<void(size_t count, llvm::function_ref<void(size_t)> body)>;

/// The curve from `limits` answers, at least 3: the lowest peak that was reached, the given order's peak, no limit, and
/// others evenly between these. `options` are those of each single answer, but for its limit. The result does not
/// depend on what `parallelFor` does. Costs `limits` times schedule().
ParetoCurve paretoCurve(const Problem &problem, const ScheduleOptions &options, int32_t limits,
                        ParallelFor parallelFor);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_PARETO_H
