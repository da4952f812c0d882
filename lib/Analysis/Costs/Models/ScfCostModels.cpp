//===- ScfCostModels.cpp - Costs of structured control flow -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A loop costs its body times the trip count. A branch costs as much as its longest region.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "Costs/CostModels.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

static OpWork regions(Operation *op, const OperationCosts &costs) { return costs.workOfRegions(op); }

void commsched::detail::registerScfCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, scf::SCFDialect *) {
    attachToAll<regions, scf::ExecuteRegionOp, scf::ForOp, scf::ForallOp, scf::IfOp, scf::IndexSwitchOp,
                scf::ParallelOp, scf::WhileOp>(context);
  });
}
