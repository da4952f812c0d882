//===- GuardedMoves.h - Shorter answers that stay short with other costs ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The search over policies knows one set of costs. The moves of LocalMoves, from an answer that it found, can lower the
// makespan with one set of costs while that with others stays below a limit. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_GUARDEDMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_GUARDEDMOVES_H

#include "CommSched/Scheduling/Answer/Schedule.h"
#include "LocalMoves.h"

namespace commsched {

/// Simulated annealing from `answer`, an answer for `facts.problem` within `limit`, bytes, that meets `guards`. Returns
/// the shortest one that it comes to, without claims and measures; nothing if none is shorter. Counts `steps` down, and
/// ends if they are spent or the makespan is at most `target`, ns. The problem has no units, no variants and no
/// contention. Equal arguments give equal answers on every machine. Ends early if `stop` is given and set.
std::optional<Schedule> moveWithGuards(const ScheduleFacts &facts, const Schedule &answer, Bytes limit,
                                       llvm::ArrayRef<TimeGuard> guards, Ns target, uint64_t seed, int64_t &steps,
                                       const std::atomic<bool> *stop = nullptr);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_GUARDEDMOVES_H
