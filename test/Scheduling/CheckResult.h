//===- CheckResult.h - Checks of every answer of the solver -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_SCHEDULING_CHECKRESULT_H
#define COMMSCHED_TEST_SCHEDULING_CHECKRESULT_H

#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "gtest/gtest.h"

namespace commsched::test {

/// Checks everything that a result promises, with the models and the verifier.
inline void checkResult(const Problem &problem, const ScheduleOptions &options, const Schedule &result) {
  ASSERT_EQ(result.defect, "");
  ASSERT_EQ(result.expanded.problem.validate(), "");
  ScheduleRequirements requirements;
  requirements.collectiveOrder = options.collectiveOrder;
  requirements.peakLimit = result.peak;
  ASSERT_TRUE(result.claims);
  ASSERT_EQ(result.claims->peak, result.peak);
  ASSERT_EQ(verify(problem, result, requirements), "");
  ASSERT_EQ(simulate(result.expanded.problem, result.order).makespan, result.makespan);
  ASSERT_EQ(peakOf(result.expanded.problem, result.order), result.peak);
  ASSERT_EQ(simulate(problem, identityOrder(problem)).makespan, result.inputMakespan);
  ASSERT_EQ(peakOf(problem, identityOrder(problem)), result.inputPeak);
  ASSERT_EQ(result.isWithinLimit(), result.peak <= result.limit);
  if (result.inputPeak <= result.limit) {
    ASSERT_TRUE(result.isWithinLimit());
    ASSERT_LE(result.makespan, result.inputMakespan);
  } else {
    ASSERT_LE(result.peak, result.inputPeak);
  }
  BoundOptions limited;
  limited.limit = std::max(result.limit, result.peak);
  LowerBound bound = options.bucketing ? jointLowerBound(problem, limited) : lowerBound(problem, limited);
  ASSERT_GE(result.makespan, bound.withLimit);
}

} // namespace commsched::test

#endif // COMMSCHED_TEST_SCHEDULING_CHECKRESULT_H
