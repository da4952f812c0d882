//===- IntervalBound.h - A lower bound on the time of one iteration ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A software pipeline may run the operations of a loop's body in any iteration, so the dependences inside the body bind
// no longer. What binds is the work of each lane, which every iteration has to do, and the recurrences: a value that
// comes back to where it was computed after d iterations, through operations that take t, needs t / d per iteration
// (Rau, Iterative Modulo Scheduling, 1996: ResMII and RecMII).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_INTERVALBOUND_H
#define COMMSCHED_SCHEDULING_BOUNDS_INTERVALBOUND_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// A value that one iteration computes and the next one reads: the nodes that do.
struct CarriedEdge {
  NodeId from = kNone, to = kNone;
};

/// The least mean time of an iteration, ns, that the recurrences of a loop's body allow, with its collectives as they
/// are. `body` has the nodes in an order that respects its edges. O((N + E) x carried edges x log(sum of costs)) at
/// most; usually a few rounds over the edges per step of the bisection.
Ns recurrenceBound(const Problem &body, llvm::ArrayRef<CarriedEdge> carried);

/// The least time of an iteration, ns, of any pipeline that keeps start and wait of a collective in one iteration, with
/// any merging of the collectives of one iteration: the larger one of recurrenceBound() and the bound for the body
/// without dependences.
Ns intervalBound(const Problem &body, llvm::ArrayRef<CarriedEdge> carried);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_INTERVALBOUND_H
