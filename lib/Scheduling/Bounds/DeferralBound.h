//===- DeferralBound.h - What a late, long collective costs -----------------------------------===//
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
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_DEFERRALBOUND_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_DEFERRALBOUND_H

#include "HeadsAndTails.h"

namespace commsched {

/// A lower bound on the makespan and the lane that it is about.
struct DeferralBound {
  Ns makespan = 0;
  LaneId lane = kNone;
};

/// Let j be a start. It begins when all computes have run but those that stand behind it. Such a compute that works for
/// another start i of j's lane puts i behind j too, so putting it off saves its duration and costs that of i. Hence no
/// order is shorter than all computes + j - the most that putting off computes can save: for each i, what its own
/// computes take beyond i itself; for the others that j does not depend on, everything. Of several long starts one is
/// the last; nothing that the others depend on stands behind it, and the weakest of their bounds holds. Valid with the
/// costs of buckets too: what stands behind j's bucket is in another one, and of the buckets of several starts one is
/// the last. Looks at the few longest starts, k of them: O(k^2 (N + E)).
DeferralBound deferralBound(const Problem &problem, const BoundCosts &costs);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_DEFERRALBOUND_H
