//===- SeedRuleOracle.h - The reordering rules, word for word ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The rules of the peak-preserving passes and of the list scheduler as they were first stated: one swap of neighbours
// after another, everything recomputed from its definition after each. Quadratic and worse, for small programs; it
// shares nothing with the implementation but the memory sweep and the timeline.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_SCHEDULING_SEEDRULEORACLE_H
#define COMMSCHED_TEST_SCHEDULING_SEEDRULEORACLE_H

#include "CommSched/Scheduling/Inductor/OverlapListScheduler.h"
#include "CommSched/Scheduling/Inductor/PeakPreserving.h"

namespace commsched::test {

/// What the oracles leave out of the records: exposed times.
Schedule oracleReorderPreservingPeak(const Problem &problem, const Order &order,
                                     const ReorderPreservingPeakOptions &options);
Schedule oracleSinkWaitsPreservingPeak(const Problem &problem, const Order &order,
                                       const SinkWaitsPreservingPeakOptions &options);
Order oracleScheduleForOverlap(const Problem &problem, const Order &order, const OverlapListOptions &options);

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_SEEDRULEORACLE_H
