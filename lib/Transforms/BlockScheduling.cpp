//===- BlockScheduling.cpp - The frame of every scheduling pass -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/BlockScheduling.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Transforms/Bucketing.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <cmath>

using namespace mlir;
using namespace commsched;

std::shared_ptr<const CostModel> commsched::loadCostModel(MLIRContext *context, StringRef machine) {
  llvm::Expected<MachineModel> model = MachineModel::load(machine);
  if (model)
    return std::make_shared<const CostModel>(std::move(*model));
  emitError(UnknownLoc::get(context)) << llvm::toString(model.takeError());
  return nullptr;
}

int64_t commsched::toPpm(double memoryBudgetRatio) { return std::llround(memoryBudgetRatio * 1e6); }

LogicalResult commsched::checkMemoryBudget(MLIRContext *context, double memoryBudgetRatio) {
  if (memoryBudgetRatio >= 0 && memoryBudgetRatio <= 1e6)
    return success();
  return emitError(UnknownLoc::get(context))
         << "memory-budget-ratio=" << memoryBudgetRatio << ": expected a fraction from 0 to 1e6";
}

static bool isIdentity(const Order &order) {
  for (auto [position, node] : llvm::enumerate(order))
    if (static_cast<NodeId>(position) != node)
      return false;
  return true;
}

/// Restamps the function around a block whose collectives may have changed their order.
static void restamp(Block &block) {
  Operation *parent = block.getParentOp();
  auto function = dyn_cast<FunctionOpInterface>(parent);
  stampSignature(function ? function : parent->getParentOfType<FunctionOpInterface>());
}

LogicalResult commsched::reorderBlocks(Operation *root, const CostModel &model, const LoadOptions &load,
                                       const ScheduleRequirements &requirements, BlockSolver solve) {
  OperationCosts costs(model);
  for (Block *block : findSchedulableBlocks(root)) {
    LoadedBlock loaded = loadBlock(*block, costs, load);
    Order order = solve(loaded);
    if (order.empty() || isIdentity(order))
      continue;
    if (std::string defect = verifySchedule(loaded.problem, order, requirements); !defect.empty())
      return block->getParentOp()->emitError()
             << "the solver's order does not hold (" << defect << "); please report this";
    std::vector<Operation *> ops;
    for (NodeId node : order)
      ops.push_back(loaded.nodes[node]);
    applyOrder(*block, ops);
    restamp(*block);
  }
  return success();
}
