//===- MeasuredKeys.h - Merge keys of collectives with a measured time ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_MEASUREDKEYS_H
#define COMMSCHED_ANALYSIS_COSTS_MEASUREDKEYS_H

#include "CommSched/Analysis/ProblemLoader.h"

namespace commsched {

/// Whether a time in `comm.cost` says what `start` costs.
bool isMeasured(comm::CollectiveOpInterface start);

/// A key whose costs are those of `key` times `measured` / `modelled`, rounded up, at most kMaxNs; `modelled` > 0.
MergeKey scaledKey(const MergeKey &key, Ns measured, Ns modelled);

/// Gives the mergeable starts whose `comm.cost` has a time merge keys of their own, apart from those that the cost
/// model prices. The starts of one such key took about the same multiple of what the model says for them (the largest
/// is at most a quarter above the smallest), and the key's cost is the model's curve times the largest of these
/// multiples. A bucket therefore costs no less than any of its members, and a merge pays by the shape of the curve,
/// never by the difference between what was measured and what was modelled. A start that the model says is free is not
/// merged. O(n log n).
void separateMeasuredStarts(LoadedBlock &loaded);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_COSTS_MEASUREDKEYS_H
