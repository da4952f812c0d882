//===- Portfolio.h - Policies that a search decodes -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// No policy is best everywhere: it depends on whether compute, a lane or memory is the bottleneck. A search decodes a
// few policies, takes the best answer, and goes on with moves of single nodes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_PORTFOLIO_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_PORTFOLIO_H

#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "Solver/Decode/Policy.h"
#include "Solver/Decode/ScheduleFacts.h"

namespace commsched {

/// The policies to begin with, best guess first.
std::vector<Policy> portfolio(const ScheduleFacts &facts);

/// A policy whose deadlines are to be set by an estimate of the makespan.
Policy deadlinePolicy();

/// Appends the numbers of a policy that differ from their defaults.
void describePolicy(const Policy &policy, llvm::SmallVectorImpl<PolicyValue> &values);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_PORTFOLIO_H
