//===- ScheduleVerifier.cpp - Entry of the independent checker --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The one gate in front of whoever carries a schedule out: the order of the expanded problem is checked first, then the
// answer in terms of the given problem.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "AnswerVerifier.h"
#include "OrderVerifier.h"

using namespace commsched;

std::string commsched::verify(const Problem &problem, const Schedule &schedule,
                              const ScheduleRequirements &requirements) {
  if (!schedule.buckets.empty() && !schedule.isExpanded())
    return "the buckets were not carried out";
  if (!schedule.variants.empty() && !schedule.isExpanded())
    return "the variants were not carried out";
  if (std::string wrong = verifyOrder(schedule.carriedOut(problem), schedule.order, requirements); !wrong.empty())
    return wrong;
  // What the first check has seen is all that there is if nothing was carried out and nothing is claimed.
  if (!schedule.isExpanded() && !schedule.claims)
    return {};
  return verifyAnswer(problem, schedule.buckets, schedule.variants, eventsOf(schedule), requirements, schedule.claims);
}
