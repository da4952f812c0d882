//===- MeasuredKeys.h - Merge keys of collectives with a measured time ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_MEASUREDKEYS_H
#define COMMSCHED_ANALYSIS_MEASUREDKEYS_H

#include "CommSched/Analysis/ProblemLoader.h"

namespace commsched {

/// Returns true if a time in `comm.cost` gives the cost of `start`.
bool isMeasured(comm::CollectiveOpInterface start);

/// A key whose costs are those of `key` times `measured` / `modelled`, rounded up, at most kMaxNs. `modelled` is
/// positive.
MergeKey scaledKey(const MergeKey &key, Ns measured, Ns modelled);

/// Gives mergeable starts with a time in `comm.cost` merge keys of their own, separate from starts that the cost model
/// prices. The starts of one such key took about the same multiple of their modelled cost: the largest multiple is at
/// most a quarter above the smallest. The cost of the key is the model's curve times the largest of these multiples. So
/// a bucket costs at least as much as any of its members, and a merge gains by the shape of the curve, never by a
/// difference between measurement and model. A start with a modelled cost of 0 is not merged. O(n log n).
void separateMeasuredStarts(LoadedBlock &loaded);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_MEASUREDKEYS_H
