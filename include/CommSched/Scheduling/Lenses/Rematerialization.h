//===- Rematerialization.h - Problems in which values are made twice --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A value that is read again much later may be kept until then, or be made again. In the problems of this file
// everything that may be made again is made again, and pairs of nodes say what does the same. Keeping a value removes
// the nodes that make it again. So a choice of what to keep is a smaller problem, and the solver needs to know nothing
// of the choice.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_REMATERIALIZATION_H
#define COMMSCHED_SCHEDULING_LENSES_REMATERIALIZATION_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/BitVector.h"

namespace commsched {

/// What makes a value, and what makes it again: an operation and its views, or a start, its waits and their views.
struct Repetition {
  /// Ascending node ids. `again[i]` does what `first[i]` does, and comes after all of `first`. `again` has all nodes
  /// that allocate the value's buffers the second time. `first` may be the `again` of another repetition.
  std::vector<NodeId> first, again;
};

/// The buffers that `nodes` allocate, ascending. O(touches of the nodes).
std::vector<BufferId> allocatedBy(const Problem &problem, llvm::ArrayRef<NodeId> nodes);

/// A problem without the nodes that a choice leaves out.
struct ReducedProblem {
  Problem problem;
  /// Indexed by node of `problem`: the node of the whole problem.
  std::vector<NodeId> origin;
  /// Indexed by node of the whole problem: its node in `problem`, or kNone if it is left out.
  std::vector<NodeId> image;
};

/// Says what is wrong with the first repetition for which Repetition's comments or these conditions do not hold; empty
/// if nothing is: both lists have equal kinds of nodes on equal lanes and allocate as many buffers of equal sizes, at
/// least one, and no node is made again twice. O(size of the repetitions).
std::string validate(const Problem &problem, llvm::ArrayRef<Repetition> repetitions);

/// `problem` if the repetitions in `kept` are not carried out: readers of the second value read the first one, which
/// stays live until then. Repetitions that nobody reads any more are left out, too. Nodes keep their relative order.
/// `problem` is valid and so are `repetitions`. `kept` is indexed by repetition. O(nodes + edges + touches).
ReducedProblem keepValues(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, const llvm::BitVector &kept);

/// Moves the nodes of `again` that are left in `reduced` down, in its given order, to the first node that comes after
/// them. A value that is made again for somebody who is left out would otherwise be made too early. O(nodes + edges).
void makeLate(ReducedProblem &reduced, llvm::ArrayRef<Repetition> repetitions);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_REMATERIALIZATION_H
