//===- AccessCheck.h - A new order keeps the order of accesses --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every order is checked before it is applied, in release builds too, against the accesses that Analysis/AccessOrder.h
// derives without the dependences that made the order.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_REWRITES_ACCESSCHECK_H
#define COMMSCHED_TRANSFORMS_REWRITES_ACCESSCHECK_H

#include "CommSched/Analysis/AccessOrder.h"
#include "CommSched/Scheduling/Model/Schedule.h"

namespace commsched {

/// Indexed by node of `problem`: when it happens in the answer, counted in events. A member of a bucket begins with the
/// pack and ends with the bucket's start; its wait begins with the bucket's wait, and ends with what gives it its
/// result. A cast that a pack does happens with the pack. O(nodes).
std::vector<AccessTime> accessTimesOf(const Problem &problem, const Schedule &schedule);

/// Fails if the answer changes the order of two accesses to one memory of which one writes: with an error at the
/// operation that has to stay behind, in the name of `pass`, and a note at the other one. `block` is not changed yet.
/// O(nodes + accesses).
llvm::LogicalResult checkAccesses(mlir::Block &block, const BlockAccesses &accesses, llvm::ArrayRef<AccessTime> times,
                                  llvm::StringRef pass);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_ACCESSCHECK_H
