//===- CapBound.h - What a memory limit costs -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Internal to Bounds.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_CAPBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_CAPBOUND_H

#include "HeadsAndTails.h"

namespace commsched {

/// A lower bound on the makespan, the lane that it is about, and the node where memory is scarce.
struct CapBound {
  Ns makespan = 0;
  LaneId lane = kNone;
  NodeId node = kNone;
};

/// Let v be a node. Every buffer gets a *weight*. One that v or a node behind v touches weighs its bytes. One whose
/// last users are neither before nor behind v is given to one of them, u, and what is given to u weighs no more than
/// u's results. So when v runs, the buffers that have been defined and whose u has not run are live and weigh no more
/// than what is live; and running u never lowers that sum. It is at least the weight of what must have been defined
/// before v, and every start that has run adds by how much its results outweigh what was given to it.
///
/// Hence of the starts of a lane that v does not wait for, those that come before v have to fit into the rest of the
/// limit with what they add; the most lane time that they can be is a fractional knapsack's. All others are issued
/// behind v and begin no earlier than v has ended. Valid with the costs of buckets too: a bucket comes before v with
/// all of its members, and holds their results in one buffer or in many; with `bucketing` a wait does not hold the
/// input of a start that may be packed, and nodes that buckets replace are not looked at.
///
/// Looks at the nodes at which most `mandatory` bytes are live; O(N + touches + S log S) for each, S starts.
CapBound capBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                  llvm::ArrayRef<Bytes> mandatory, Bytes limit, bool bucketing);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_CAPBOUND_H
