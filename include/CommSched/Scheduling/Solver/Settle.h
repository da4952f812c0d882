//===- Settle.h - An order of equal length with more slack ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A search for the shortest order has no opinion about what changes no makespan: it leaves waits in front of
// computations that do not need them, and starts behind what they do not depend on. If a collective then takes longer
// than planned, compute stands still for nothing. Settling moves every wait down to what needs it and every start up
// to what it needs, as far as memory allows.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_SOLVER_SETTLE_H
#define COMMSCHED_SCHEDULING_SOLVER_SETTLE_H

#include "CommSched/Scheduling/Solver/ScheduleOptions.h"

namespace commsched {

/// `order`, which respects the problem's edges, with each wait, and each view behind it, just in front of the first
/// node that needs it, and then each start just behind the last node that it needs, or behind the collective in front
/// of it on its lane. A move that would take live bytes above `limit` goes as far as they allow; an order
/// above the limit stays as it is. Pinned nodes and units keep their places. Moves of waits lengthen no order at any
/// scale of the collectives; a start is moved only if the order is then no longer at any of a few scales. O((N +
/// touches) log N + distances), and no more than a fixed number of places per node.
Order settle(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit);

/// Settles `answer`, an answer of schedule() for `problem` and `options`, within its limit, and measures it anew. It
/// stays as it is if the settled order would be longer, tear a unit apart, or not be one that the options admit. With
/// contention it is not touched: there, an order that starts collectives earlier may be longer for other reasons.
void settleAnswer(const Problem &problem, const ScheduleOptions &options, Schedule &answer);

/// By how much each collective may end later until `order` takes longer, ns.
/// Indexed by node; 0 of nodes that start no collective. Times are without contention. O(N + E).
std::vector<Ns> toleratedDelays(const Problem &problem, llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_SOLVER_SETTLE_H
