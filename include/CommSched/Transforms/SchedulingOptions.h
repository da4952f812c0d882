//===- SchedulingOptions.h - From options of passes to options of the solver ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Machines and memory budgets come as text; this is where they become a cost model and integers, or one line that says
// what is wrong with them.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_SCHEDULINGOPTIONS_H
#define COMMSCHED_TRANSFORMS_SCHEDULINGOPTIONS_H

#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Scheduling/Solver/ScheduleOptions.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/LogicalResult.h"
#include <memory>

namespace commsched {

/// Loads a machine profile for a pass. Says what is wrong in one line, and returns null, where it is not to be had.
std::shared_ptr<const CostModel> loadCostModel(mlir::MLIRContext *context, llvm::StringRef machine);

/// The memory budget of a pass's two options (MemoryBudget::parse). Fails with one diagnostic.
llvm::FailureOr<MemoryBudget> parseMemoryBudget(mlir::MLIRContext *context, double ratio, int64_t limitBytes);

/// The options of passes that run the solver, as the loader and the solver want them. Limits on memory are left open.
struct SolverOptions {
  SolverOptions(CollectiveOrder order, bool bucketing, Bytes bucketCap, int64_t effort);

  LoadOptions load;
  ScheduleOptions schedule;
};

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_SCHEDULINGOPTIONS_H
