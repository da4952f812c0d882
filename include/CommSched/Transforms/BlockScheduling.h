//===- BlockScheduling.h - The frame of every scheduling pass ----------------------*- C++ -*-===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Load a block, solve, verify, apply: a scheduling pass says how to solve and gets the rest from here.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_BLOCKSCHEDULING_H
#define COMMSCHED_TRANSFORMS_BLOCKSCHEDULING_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Scheduling/ScheduleVerifier.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <memory>

namespace commsched {

/// Loads a machine profile for a pass. Says what is wrong in one line, and returns null, where it is not to be had.
std::shared_ptr<const CostModel> loadCostModel(mlir::MLIRContext *context, llvm::StringRef machine);

/// A memory budget in millionths. Budgets are compared in integers.
int64_t toPpm(double memoryBudgetRatio);

/// Whether a memory budget makes sense; says in one line if not.
llvm::LogicalResult checkMemoryBudget(mlir::MLIRContext *context, double memoryBudgetRatio);

/// Finds a new order of a block's nodes. An empty answer leaves the block as it is.
using BlockSolver = llvm::function_ref<Order(const LoadedBlock &)>;

/// Reorders every block with collectives under `root`, innermost first: loads it, asks `solve`, has the answer checked
/// against `requirements`, and applies it as one permutation if it changes anything. Fails, with a diagnostic at the
/// block's operation, on an answer that does not hold: a defect of the solver, and the block is left alone.
llvm::LogicalResult reorderBlocks(mlir::Operation *root, const CostModel &model, const LoadOptions &load,
                                  const ScheduleRequirements &requirements, BlockSolver solve);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_BLOCKSCHEDULING_H
