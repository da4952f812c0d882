//===- PeakReducer.h - Orders with a lower peak -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Memory admission needs a reference within the limit. If the given order exceeds the limit, a local search lowers its
// peak first: at the position of the peak, buffers that were allocated early are allocated later, and buffers that
// could have been freed are freed before.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_PEAKREDUCER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_PEAKREDUCER_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// Moves nodes of `order`, single ones or a few that depend on each other, away from the positions with the most live
/// bytes until the peak is at most `limit`, no move helps, or `steps` moves have been tried (they are counted down).
/// The peak of the result is never above that of `order`. Each round lowers all high positions: O(touches + edges) a
/// round and O(log N) a step and touched buffer.
Order reducePeak(const Problem &problem, Order order, Bytes limit, int64_t &steps);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_PEAKREDUCER_H
