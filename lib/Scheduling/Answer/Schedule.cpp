//===- Schedule.cpp - Schedules: an order, buckets, and their figures -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Measures an answer with the models, and builds the two trivial answers: keep the order, and merge in order.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"

using namespace commsched;

Schedule commsched::keepOrder(const Problem &problem) {
  Schedule schedule;
  schedule.order = identityOrder(problem);
  return schedule;
}

llvm::Expected<Schedule> commsched::mergeInOrder(const Problem &problem, std::vector<Bucket> buckets) {
  llvm::Expected<ExpandedProblem> expanded = expandBuckets(problem, buckets);
  if (!expanded)
    return expanded.takeError();
  Schedule schedule;
  schedule.buckets = std::move(buckets);
  schedule.order = identityOrder(expanded->problem);
  schedule.expanded = std::move(*expanded);
  return schedule;
}

void commsched::measure(const Problem &problem, Schedule &schedule) {
  Order given = identityOrder(problem);
  const Problem &carriedOut = schedule.carriedOut(problem);
  schedule.inputMakespan = makespanOf(problem, given);
  schedule.inputPeak = peakOf(problem, given);
  schedule.makespan = makespanOf(carriedOut, schedule.order);
  schedule.peak = peakOf(carriedOut, schedule.order);
}

void commsched::measureExposure(const Problem &problem, llvm::ArrayRef<NodeId> before, Schedule &schedule) {
  if (schedule.records.empty())
    return;
  std::vector<Ns> initial = exposedByCollective(problem, simulate(problem, before));
  std::vector<Ns> final = exposedByCollective(problem, simulate(problem, schedule.order));
  for (CollectiveRecord &record : schedule.records) {
    NodeId start = problem.nodes[record.node].start;
    NodeId collective = start == kNone ? record.node : start;
    record.initialExposed = initial[collective];
    record.finalExposed = final[collective];
  }
}
