//===- NodeDemands.cpp - Demands of operations on a device's resources ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bytes of a kernel come from its `comm.cost`, from its cost model, or from its operands and results.
//
//===------------------------------------------------------------------------------------------===//

#include "NodeDemands.h"
#include "CommSched/Machine/Rounding.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

static Bytes bytesMovedBy(Operation *op, const OperationCosts &costs) {
  auto attr = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
  if (attr && attr.getBytes())
    return *attr.getBytes();
  if (auto costed = dyn_cast<CostOpInterface>(op))
    if (OpWork work = costed.getWork(costs); work.bytes() > 0)
      return work.bytes();
  return addAmounts(bytesOf(op->getOperands()), bytesOf(op->getResults()));
}

Demand NodeDemands::ofKernel(Operation *op, Ns time) {
  if (time <= 0)
    return {};
  if (getCopiedBytes(op))
    return ofCopy();
  return model.ofKernel(products.contains(op), bytesMovedBy(op, costs), time);
}
