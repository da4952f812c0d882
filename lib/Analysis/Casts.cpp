//===- Casts.cpp - Operations that only convert elements --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Casts.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace commsched;

bool commsched::convertsElements(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return false;
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!from || !to || from.getShape() != to.getShape() || !isa<FloatType>(from.getElementType()) ||
      !isa<FloatType>(to.getElementType()))
    return false;
  if (isa<arith::TruncFOp, arith::ExtFOp>(op) || op->getName().getStringRef() == "stablehlo.convert")
    return true;
  auto compute = dyn_cast<comm::ComputeOp>(op);
  return compute && comm::isCastName(compute.getName()) && !compute.getAliases() && !compute.getMutates() &&
         !compute.getSideEffects();
}

bool commsched::isElementTypeCast(Operation *op) {
  return convertsElements(op) && cast<ShapedType>(op->getOperand(0).getType()).hasStaticShape();
}
