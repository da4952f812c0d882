//===- KeepTogether.h - Nodes that stay next to each other ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A unit is a run of nodes that no answer may tear apart: [cast, copy-in, all-gather], [wait, copy-out]. Solvers know
// nothing of units. The problem has edges that make a unit behave as one node towards everything that it depends on and
// that depends on it; only nodes without such a path can still come between its members. Gathering the members at one
// place is then legal whatever the order, and is done to a solver's answer.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_PROBLEM_KEEPTOGETHER_H
#define COMMSCHED_SCHEDULING_PROBLEM_KEEPTOGETHER_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>
#include <utility>

namespace commsched {

/// The dependences `preds` with units made indivisible. `unitOf` has one entry per node, kNone outside of units; the
/// members of a unit have consecutive ids. Each member comes after the one before it, the first member after all that
/// any member depends on, and what depends on any member after the last one. A pair in `turns` names two units, the
/// second of which comes after the first. O(N + E).
IndexLists closeUnits(const IndexLists &preds, llvm::ArrayRef<int32_t> unitOf,
                      llvm::ArrayRef<std::pair<int32_t, int32_t>> turns = {});

/// Whether `problem` has units. O(N).
bool hasUnits(const Problem &problem);

/// Where the members of a unit gather.
enum class UnitPlace : uint8_t { First, Last };

/// `order`, which has to respect the problem's edges, with the members of each unit gathered at the place of its first
/// or last one. O(N).
Order gatherUnits(const Problem &problem, llvm::ArrayRef<NodeId> order, UnitPlace place);

/// `order` itself if its units are together; else the units gathered at their last members, or at their first ones,
/// whichever `accept` takes first; none if it takes neither. O(N) and two calls.
std::optional<Order> keepTogether(const Problem &problem, Order order,
                                  llvm::function_ref<bool(llvm::ArrayRef<NodeId> order)> accept);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_PROBLEM_KEEPTOGETHER_H
