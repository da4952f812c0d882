//===- Variants.cpp - The lens of choices between variants -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A choice may help the order alone more than an answer with buckets, so both are tried, and allowing buckets never
// costs time.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Memory/Memory.h"
#include "Lens.h"
#include "VariantSearch.h"

using namespace commsched;

/// Share of the effort, in percent, that the choice between variants may take in addition, from each beginning.
static constexpr int64_t kVariantPercent = 50;

bool commsched::offersVariants(const Problem &problem, const ScheduleOptions &) { return problem.hasVariants(); }

/// `given`, or a shorter answer with variants.
static Schedule chooseFrom(const Problem &problem, const ScheduleOptions &options, Schedule given, InnerSolver inner) {
  const Schedule earlier = given;
  VariantSearch search(problem, options, std::max(earlier.limit, earlier.peak), std::move(given), inner);
  search.run(mulDiv(options.effortFor(problem.size()), kVariantPercent, 100));
  Schedule answer = search.best();
  answer.steps = earlier.steps + search.steps();
  answer.defect = earlier.defect.empty() ? search.defect() : earlier.defect;
  return answer;
}

Schedule commsched::scheduleWithVariants(const Problem &problem, const ScheduleOptions &options, InnerSolver inner) {
  Schedule first = inner(problem, options);
  // A variant may be shorter than every order without one.
  first.leastOrder.reset();
  first.leastSchedule.reset();
  std::optional<Schedule> alone = orderAloneOf(problem, options, first, inner);
  Schedule answer = chooseFrom(problem, options, std::move(first), inner);
  if (!alone)
    return answer;
  alone->leastOrder.reset();
  alone->leastSchedule.reset();
  Schedule other = chooseFrom(problem, options, std::move(*alone), inner);
  const bool isShorter = other.makespan < answer.makespan;
  Schedule &taken = isShorter ? other : answer;
  addEffort(taken, isShorter ? answer : other);
  return std::move(taken);
}
