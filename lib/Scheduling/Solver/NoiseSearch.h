//===- NoiseSearch.h - Schedules that fare well under noise -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Minimizes the mean or a quantile of the makespan over scenarios. A search knows the makespan without noise only, and
// what it finds has no slack: each collective ends just before it is waited for. So the search runs several times, each
// time with collectives that take longer than they do, which makes it start them earlier; every answer is played in all
// scenarios (sample average approximation with common random numbers: A. J. Kleywegt, A. Shapiro and T. Homem-de-Mello,
// SIAM Journal on Optimization 12(2), 2002), and the best one is improved by moves of single nodes. Private to the
// solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_NOISESEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_NOISESEARCH_H

#include "CommSched/Scheduling/Solver/Scheduler.h"

namespace commsched {

/// schedule() for the objectives that need scenarios. All of it together spends the effort of the options.
Schedule scheduleUnderNoise(const Problem &problem, const ScheduleOptions &options);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_NOISESEARCH_H
