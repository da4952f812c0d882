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

using namespace mlir;
using namespace commsched;

std::shared_ptr<const CostModel> commsched::loadCostModel(MLIRContext *context, StringRef machine) {
  llvm::Expected<MachineModel> model = loadMachine(context, machine);
  if (model)
    return std::make_shared<const CostModel>(std::move(*model));
  emitError(UnknownLoc::get(context)) << llvm::toString(model.takeError());
  return nullptr;
}

FailureOr<MemoryBudget> commsched::parseMemoryBudget(MLIRContext *context, double ratio, int64_t limitBytes) {
  llvm::Expected<MemoryBudget> budget = MemoryBudget::parse(ratio, limitBytes);
  if (budget)
    return *budget;
  return emitError(UnknownLoc::get(context)) << llvm::toString(budget.takeError());
}

LogicalResult commsched::checkNoise(MLIRContext *context, const NoiseOptions &options) {
  if (std::string wrong = validate(options); !wrong.empty())
    return emitError(UnknownLoc::get(context)) << wrong;
  return success();
}

NoiseOptions commsched::noiseFor(Objective objective, NoiseOptions options) {
  if (objective != Objective::Makespan && options.scenarios == 0)
    options.scenarios = kDefaultScenarios;
  return options;
}

SolverOptions::SolverOptions(CollectiveOrder order, bool bucketing, const BucketCaps &caps, int64_t effort) {
  // Without bucketing too: the order alone is then the same problem.
  load = {order, /*bucketing=*/true, caps};
  schedule.bucketing = bucketing;
  schedule.caps = caps;
  schedule.collectiveOrder = order;
  schedule.effort = effort;
}
