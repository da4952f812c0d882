//===- Contention.cpp - Begin from an answer without contention --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// No answer should be worse than a plan that knows nothing of contention.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Memory/Memory.h"
#include "Lens.h"

using namespace commsched;

bool commsched::hasContendedResources(const Problem &problem, const ScheduleOptions &options) {
  return problem.hasContention() && options.effort != 0;
}

static Problem withoutContention(const Problem &problem) {
  Problem undisturbed = problem;
  undisturbed.demands.clear();
  for (Node &node : undisturbed.nodes)
    node.demand = kNone;
  return undisturbed;
}

Schedule commsched::scheduleFromUndisturbed(const Problem &problem, const ScheduleOptions &options, InnerSolver inner) {
  ScheduleOptions silent = options;
  silent.observers = {};
  const Problem undisturbed = withoutContention(problem);
  const Schedule plan = inner(undisturbed, silent);
  const std::optional<Schedule> alone = orderAloneOf(undisturbed, silent, plan, inner);
  ScheduleOptions from = options;
  from.known.push_back(&plan);
  if (alone)
    from.known.push_back(&*alone);
  Schedule answer = inner(problem, from);
  addEffort(answer, plan);
  return answer;
}
