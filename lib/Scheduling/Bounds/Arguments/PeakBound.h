//===- PeakBound.h - Bytes that are live at a node in every order -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bytes behind peakLowerBound() (Bounds.md, Lemma 12). Internal to the bounds.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_PEAKBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_PEAKBOUND_H

#include "CommSched/Scheduling/Bounds/BoundOptions.h"

namespace commsched {

/// Returns, indexed by node, the bytes that must be live while the node runs, in any order. With `bucketing`, in any
/// bucketing: a pack may read the inputs of its members before the collective, so that they need not be live during it.
/// Complexity as peakLowerBound().
std::vector<Bytes> mandatoryBytes(const Problem &problem, const BoundOptions &options, bool bucketing);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_PEAKBOUND_H
