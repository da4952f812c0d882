//===- Portfolio.h - Start policies of a search, and changes to a policy ----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// No policy is best everywhere: it depends on whether compute, a lane or memory is the bottleneck. A search begins with
// a fixed portfolio of policies, best guesses first, and continues by changing one number (*knob*) at a time.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_PORTFOLIO_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_PORTFOLIO_H

#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "CommSched/Support/SplitMix64.h"
#include "Policy.h"
#include "ScheduleFacts.h"

namespace commsched {

/// The policies to begin with under `limit`, best guess first.
std::vector<Policy> portfolio(const ScheduleFacts &facts, Bytes limit);

/// The policy with its deadlines, or one of the sizes of its buckets, a little different.
Policy nudged(Policy policy, SplitMix64 &random);

/// A policy whose deadlines are to be set by an estimate of the makespan.
Policy deadlinePolicy();

/// A policy with buckets that leave room under `limit` for others: at most 1/64 of it if a compute needs them.
/// Deadlines that suit large buckets do not suit small ones, so changing the size alone does not lead there.
Policy smallBucketPolicy(Bytes limit);

/// With buckets, policies that differ in many numbers from those of the portfolio and from each other. Deadlines follow
/// from `makespan`, ns, that of an order that is known.
std::vector<Policy> sampledPolicies(const ScheduleFacts &facts, Bytes limit, Ns makespan);

/// The knobs that matter for a problem, by index into the table of all knobs. Knobs for buckets do not matter without
/// bucketing.
llvm::ArrayRef<int32_t> knobsOf(const ScheduleFacts &facts);
/// The number of values of a knob.
int32_t numValues(int32_t knob);

/// The policy with a knob set to its value of index `value`.
Policy withKnob(Policy policy, int32_t knob, int32_t value, Bytes limit);

/// A knob and the index of one of its values.
struct KnobValue {
  int32_t knob, value;
};

/// With buckets, what a search tries first to improve on a policy: those numbers that helped most where it was
/// measured, best guess first.
llvm::ArrayRef<KnobValue> tunings();

/// Whether all knobs have the same values.
bool areEqual(const Policy &a, const Policy &b);

/// Appends the numbers of a policy that differ from their defaults.
void describePolicy(const Policy &policy, llvm::SmallVectorImpl<PolicyValue> &values);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_PORTFOLIO_H
