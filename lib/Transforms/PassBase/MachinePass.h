//===- MachinePass.h - Passes with a machine and a memory budget ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A wrong option is found when a pass is initialized, before any pass of the pipeline has run. The costs are those that
// ranks agreed on if comm-align-costs has run in the meantime: a rank that planned with its own would decide otherwise
// than the others.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_PASSBASE_MACHINEPASS_H
#define COMMSCHED_LIB_TRANSFORMS_PASSBASE_MACHINEPASS_H

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Transforms/SchedulingOptions.h"

namespace commsched {

/// A pass over the generated `PassBase` with the option `machine`.
template <typename PassBase> class MachinePass : public PassBase {
public:
  using PassBase::PassBase;

  llvm::LogicalResult initialize(mlir::MLIRContext *context) override {
    if (failed(checkOptions(context)))
      return llvm::failure();
    model = loadCostModel(context, this->machine);
    return llvm::success(model != nullptr);
  }

  void runOnOperation() final {
    model = agreedModel(&this->getContext(), this->machine, model);
    runWithModel();
  }

protected:
  /// Reports a wrong combination of options.
  virtual llvm::LogicalResult checkOptions(mlir::MLIRContext *) { return llvm::success(); }

  /// What runOnOperation is to other passes.
  virtual void runWithModel() = 0;

  std::shared_ptr<const CostModel> model;
};

/// One that also has the options `memory-budget-ratio` and `memory-limit-bytes`.
template <typename PassBase> class BudgetedPass : public MachinePass<PassBase> {
public:
  using MachinePass<PassBase>::MachinePass;

  llvm::LogicalResult initialize(mlir::MLIRContext *context) final {
    llvm::FailureOr<MemoryBudget> budget = parseMemoryBudget(context, this->memoryBudgetRatio, this->memoryLimitBytes);
    if (failed(budget))
      return llvm::failure();
    memory = *budget;
    return MachinePass<PassBase>::initialize(context);
  }

protected:
  MemoryBudget memory;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_PASSBASE_MACHINEPASS_H
