//===- FuncCostModels.cpp - Costs of function calls -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A call costs as much as its callee.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "Costs/CostModels.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

static OpWork call(func::CallOp op, const OperationCosts &costs) {
  return costs.workOfCall(llvm::cast<CallOpInterface>(op.getOperation()));
}

void commsched::detail::registerFuncCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, func::FuncDialect *) { attach<func::CallOp, call>(context); });
}
