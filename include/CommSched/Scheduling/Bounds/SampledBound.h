//===- SampledBound.h - Lower bounds under noise ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The sample-average bound: what no fixed schedule can beat over a set of scenarios (Bounds.md, Lemma 16).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_SAMPLEDBOUND_H
#define COMMSCHED_SCHEDULING_BOUNDS_SAMPLEDBOUND_H

#include "CommSched/Scheduling/Answer/Scenarios.h"
#include "CommSched/Scheduling/Bounds/BoundOptions.h"

namespace commsched {

/// Bounds from below the mean and the 95 % quantile that a schedule has over all scenarios of `noise`, of which there
/// is at least one: without merging, or with any bucketing. As many bounds as there are scenarios, in windows of at
/// most kSampledBoundWindow nodes.
SampledMakespan sampledLowerBound(const Problem &problem, const Noise &noise, bool bucketing);

/// Windows of the bounds of scenarios, in nodes: small, because there are many scenarios.
inline constexpr NodeId kSampledBoundWindow = 2048;

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_SAMPLEDBOUND_H
