//===- SchedulingOptions.cpp - What scheduling passes make of their options -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Scheduling/SchedulingOptions.h"
#include "CommSched/Analysis/Environment.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FormatVariadic.h"
#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace commsched;

std::shared_ptr<const CostModel> commsched::loadCostModel(MLIRContext *context, StringRef machine) {
  llvm::Expected<MachineModel> model = MachineModel::load(machineName(context, machine));
  if (model)
    return std::make_shared<const CostModel>(std::move(*model));
  emitError(UnknownLoc::get(context)) << llvm::toString(model.takeError());
  return nullptr;
}

int64_t commsched::toPpm(double memoryBudgetRatio) { return std::llround(memoryBudgetRatio * 1e6); }

LogicalResult commsched::checkMemoryBudget(MLIRContext *context, double memoryBudgetRatio, Bytes memoryLimitBytes) {
  constexpr double kLargestRatio = 1e6;
  if (!(memoryBudgetRatio >= 0 && memoryBudgetRatio <= kLargestRatio))
    return emitError(UnknownLoc::get(context))
           << "memory-budget-ratio=" << llvm::formatv("{0}", memoryBudgetRatio).str()
           << ": expected a fraction from 0 to 1e6";
  if (memoryLimitBytes < -1)
    return emitError(UnknownLoc::get(context))
           << "memory-limit-bytes=" << memoryLimitBytes << ": expected a number of bytes, or -1 for no limit";
  return success();
}

/// The tighter of a cap of one kind and the cap of all.
static Bytes tighter(Bytes ofKind, Bytes any) { return ofKind < 0 ? any : any < 0 ? ofKind : std::min(ofKind, any); }

SolverOptions::SolverOptions(CollectiveOrder order, bool bucketing, const BucketCaps &caps, int64_t effort) {
  // Without bucketing too: the order alone is then the same problem.
  load = {order, /*bucketing=*/true, tighter(caps.allGather, caps.any), tighter(caps.reduceScatter, caps.any),
          tighter(caps.allReduce, caps.any)};
  schedule.bucketing = bucketing;
  schedule.allGatherCap = load.allGatherCap;
  schedule.reduceScatterCap = load.reduceScatterCap;
  schedule.allReduceCap = load.allReduceCap;
  schedule.collectiveOrder = order;
  schedule.effort = effort;
}
