//===- Variants.h - The choice between ways to carry out a collective -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A Problem lists the ways in which its starts and its buckets may be carried out, and a Schedule names the ways that
// it chooses. A choice changes what a collective costs and what it needs, and nothing else: not its buffers, not the
// order of anything.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_VARIANTS_H
#define COMMSCHED_SCHEDULING_ANSWER_VARIANTS_H

#include "CommSched/Scheduling/Answer/Schedule.h"

namespace commsched {

/// What a collective costs and needs if it is carried out in one way.
struct VariantOption {
  /// Index into Problem::variantNames; kNone: as without a choice.
  int32_t name = kNone;
  Ns cost = 0;
  Demand demand;
};

/// The ways to carry out a start of `schedule.expanded.problem` other than without a choice: those of its start, or
/// those that its bucket and all members of it have. Empty for nodes that are not starts. `schedule` is expanded.
/// O(variants x members).
std::vector<VariantOption> variantsOf(const Problem &problem, const Schedule &schedule, NodeId node);

/// Gives the chosen starts of `schedule.expanded.problem` the costs and the demands of `schedule.variants`.
/// `schedule` is expanded, without a choice carried out, and each choice is among variantsOf(). O(choices).
void carryOutVariants(const Problem &problem, Schedule &schedule);

/// A problem without a choice, in which each collective, alone or merged, costs as little as in its cheapest way and
/// needs as little of each resource as in its most modest one: a lower bound on its makespan is one for any choice.
/// O(N + E).
Problem withLeastVariants(const Problem &problem);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_VARIANTS_H
