//===- IntervalBound.h - A lower bound on the time of one iteration ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A software pipeline may run the operations of a loop's body in any iteration, so the dependences inside the body bind
// no longer. What binds is the work of each lane and resource, which every iteration has to do, and the recurrences: a
// value that comes back to where it was computed after d iterations, through operations that take t, needs t / d per
// iteration (Rau, Iterative Modulo Scheduling, 1996: ResMII and RecMII). Lemma 28 of MoreBounds.md has the proof.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_INTERVALBOUND_H
#define COMMSCHED_SCHEDULING_BOUNDS_INTERVALBOUND_H

#include "CommSched/Scheduling/Bounds/BoundWitness.h"
#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// A dependence between two nodes of a loop's body: `to` runs `iterations` later than `from`, or in the same iteration
/// if that is 0.
struct LoopEdge {
  NodeId from = kNone, to = kNone;
  int64_t iterations = 1;

  bool operator==(const LoopEdge &other) const {
    return from == other.from && to == other.to && iterations == other.iterations;
  }
};

/// Why no pipeline of a loop's body has a shorter iteration.
struct IntervalProof {
  /// What an iteration has to do, whatever order it is in: the body with the least cost of each node, and with no
  /// dependences but those of waits on their starts, and of starts on the casts that a pack may absorb.
  Problem work;
  /// The dependences of the body and those between iterations, sorted by `to`, `iterations` and `from`.
  std::vector<LoopEdge> edges;
  /// The lane or resource with the most work.
  BoundWitness load;
  /// The time of `cycle` by its iterations, rounded up, ns. 0 if no cycle takes time; `cycle` is then empty.
  Ns recurrence = 0;
  /// The edges of a cycle that needs the most time per iteration, each from where the one before it leads to.
  std::vector<LoopEdge> cycle;

  /// ns.
  Ns bound() const { return std::max(load.makespan, recurrence); }
};

/// The least mean time of an iteration, ns, that the recurrences of a loop's body allow, with its collectives as they
/// are. `body` has the nodes in an order that respects its edges; `carried` are edges to later iterations.
/// O((N + E) x carried edges x log(sum of costs)) at most; usually a few rounds over the edges per step of the
/// bisection.
Ns recurrenceBound(const Problem &body, llvm::ArrayRef<LoopEdge> carried);

/// Proves a lower bound on the time of one iteration of any pipeline that keeps start and wait of a collective in one
/// iteration, with any merging of the collectives of one iteration. Complexity as recurrenceBound() and proveLoad().
IntervalProof proveInterval(const Problem &body, llvm::ArrayRef<LoopEdge> carried);

/// The bound of proveInterval(), ns.
Ns intervalBound(const Problem &body, llvm::ArrayRef<LoopEdge> carried);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_INTERVALBOUND_H
