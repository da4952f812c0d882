//===- OneMachine.h - Preemptive bound for the work of one lane -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Jackson's preemptive schedule of jobs with heads and tails on one machine (Bounds.md, Lemma 5; J. R. Jackson,
// 1955), and its critical jobs. Internal to the bounds.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_ONEMACHINE_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_ONEMACHINE_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// A piece of work of one machine. It begins at `head` or later, and at least `tail` passes after its end, ns.
struct Job {
  Ns head, duration, tail;
};

/// The shortest preemptive makespan of some jobs, ns. The jobs with a head of at least `head` and a tail of at least
/// `tail` fill their machine for `makespan` less both.
struct OneMachineBound {
  Ns makespan = 0, head = 0, tail = 0;
};

/// Sorts jobs by their heads, unless they are. Jobs of one head stay in their order. O(n log n).
void sortByHead(std::vector<Job> &jobs);

/// The bound for `jobs`, which are sorted by their heads. O(n log n).
OneMachineBound oneMachine(llvm::ArrayRef<Job> jobs);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_ARGUMENTS_ONEMACHINE_H
