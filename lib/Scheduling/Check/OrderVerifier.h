//===- OrderVerifier.h - Independent checker of orders ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The first half of ScheduleVerifier.h: checks an order against the edges of the problem that it orders. It shares no
// code with a solver, nor with the models that solvers use: it has its own sweep and its own count of live bytes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_CHECK_ORDERVERIFIER_H
#define COMMSCHED_LIB_SCHEDULING_CHECK_ORDERVERIFIER_H

#include "CommSched/Scheduling/Check/ScheduleVerifier.h"

namespace commsched {

/// Describes the first violation (with node ids and positions), or returns an empty string: `order` is a permutation,
/// respects every edge, touches no buffer before its definition, runs every wait after its start, stays within the
/// limit, keeps the collectives' order and that of the pinned nodes, and tears no unit apart. O(N + E + touches).
std::string verifyOrder(const Problem &problem, llvm::ArrayRef<NodeId> order, const ScheduleRequirements &requirements);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_CHECK_ORDERVERIFIER_H
