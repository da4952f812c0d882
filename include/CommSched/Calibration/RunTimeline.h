//===- RunTimeline.h - Costs from what a real run took ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// `comm-run --timeline` writes when each collective of a program began and ended. Its durations, together with kinds,
// groups and sizes, are measurements of the very machine and program that matter, and refine a machine profile.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_RUNTIMELINE_H
#define COMMSCHED_CALIBRATION_RUNTIMELINE_H

#include "CommSched/Calibration/Statistics.h"
#include "CommSched/Machine/CollectiveCost.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace commsched {

/// What a run says of collectives of one kind, shape, element type and size.
struct RunPoint {
  CollectiveKind kind = CollectiveKind::AllReduce;
  GroupShape shape;
  ElementType element = ElementType::Other;
  /// As in CollectiveCurve.
  Bytes bytes = 0;
  /// Over the calls of all sites of this size, ns.
  Estimate time;
};

/// A timeline, and the name of its file.
struct TimelineText {
  std::string name, text;
};

/// Reads timelines of one run, one per process of the job. A collective begins when it is started and its group's
/// previous one has ended. If one file has all ranks of the group, whose times are of one clock, a call takes from the
/// last begin to the last end. Otherwise the ranks that start last are taken, since they wait for nobody: the shortest
/// duration, of one rank per group that runs it. The first call is left out where there are others. Collectives without
/// a size (of programs that are no straight-line code), one-shot sums and coalesced collectives are passed over. The
/// points are ordered by kind, shape, element type and bytes. The error names the file and the field. O(events log
/// events).
llvm::Expected<std::vector<RunPoint>> readRunTimelines(llvm::ArrayRef<TimelineText> timelines);

/// How well a profile foretells points that it has not seen.
struct Validation {
  /// Points in all, and points that were held out.
  int64_t points = 0, heldOut = 0;
  /// Errors of the predictions in permille of what was measured: the median, and the 95 % quantile.
  int64_t p50Permille = 0, p95Permille = 0;
};

/// Every tenth of the points, at least one, spread evenly over those that have a smaller and a larger neighbour in
/// `base` or in `points`: outside of its sizes, a table is extrapolated. Empty if there are none. Returns indices in
/// ascending order. O(n log n).
std::vector<size_t> chooseHeldOut(const MachineModel &base, llvm::ArrayRef<RunPoint> points);

/// `base` with the points in its tables; of two points of equal bytes the one with more samples stays, and of equal
/// ones the new one. `validation` becomes part of the profile's `calibration`. The error names a field of the base that
/// is no profile's.
llvm::Expected<MachineModel> refineProfile(const MachineModel &base, llvm::ArrayRef<RunPoint> points,
                                           llvm::StringRef name, const Validation *validation = nullptr);

/// Refines a copy of `base` without the held-out points and compares what it predicts of them.
llvm::Expected<Validation> validateRefinement(const MachineModel &base, llvm::ArrayRef<RunPoint> points);

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_RUNTIMELINE_H
