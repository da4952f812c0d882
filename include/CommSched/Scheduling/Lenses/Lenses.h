//===- Lenses.h - Order and buckets, whatever the problem has beyond the core ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The core of the solver (Scheduler.h) finds an order and buckets with a short makespan within a limit on live bytes. A
// lens makes something more of it: it asks for the answers of other problems, or under other options, and makes the
// answer that is wanted of them. Lenses stand in one list; each sees the answers of those behind it and of the core,
// and no other lens knows of it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_LENSES_H
#define COMMSCHED_SCHEDULING_LENSES_LENSES_H

#include "CommSched/Scheduling/Solver/Scheduler.h"

namespace commsched {

/// Schedules `problem`, which has to be valid (Problem::validate), through all lenses that apply to it. The answer is
/// what that of scheduleCore() is, and
///   - settled (Settle.h), unless it is played with contention;
///   - if the limit is above the peak of the given order, never slower than the answer within that peak;
///   - with contention, never slower than the answer of a search without it;
///   - if the problem has variants, one that may choose some (Schedule::variants) and is then shorter than without
///   them;
///   - one that does not lose at other scales, if the objective asks for it (Robust.h);
///   - within a limit on the arena of its buffers, if ScheduleOptions::limitedMemory says so (ArenaLimit.h).
/// Equal for any number of threads of the executor.
Schedule schedule(const Problem &problem, const ScheduleOptions &options = {});

/// The names of the lenses, outermost first, for ScheduleOptions::without.
std::vector<llvm::StringRef> lensNames();

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_LENSES_H
