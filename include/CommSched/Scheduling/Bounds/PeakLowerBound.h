//===- PeakLowerBound.h - Bytes that are live whatever is merged ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// peakLowerBound() of Bounds.h, for searches that merge collectives.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_PEAKLOWERBOUND_H
#define COMMSCHED_SCHEDULING_BOUNDS_PEAKLOWERBOUND_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// No order of the problem with any bucketing by Problem::mergeKeys has a smaller peak (Lemma 12). Without merge keys,
/// equal to peakLowerBound(). Complexity as of that.
Bytes peakLowerBoundWithBuckets(const Problem &problem);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_PEAKLOWERBOUND_H
