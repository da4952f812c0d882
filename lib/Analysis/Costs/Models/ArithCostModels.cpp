//===- ArithCostModels.cpp - Costs of arith and math operations -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Elementwise: one result element per operand element. On scalars and vectors, an operation is part of the surrounding
// kernel.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/Rounding.h"
#include "Costs/CostModels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

static OpWork elementwise(Operation *op, const OperationCosts &) {
  if (matchPattern(op, m_Constant()) || op->getNumResults() == 0)
    return OpWork::view();
  Type type = op->getResult(0).getType();
  OpWork work = OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  work.flops = multiplyAmounts(elementsOf(type), flopsPerElement(op));
  work.element = elementTypeOf(type);
  work.inlined = !isa<TensorType>(type);
  return work;
}

void commsched::detail::registerArithCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, arith::ArithDialect *) {
    attachToAll<elementwise,
#define GET_OP_LIST
#include "mlir/Dialect/Arith/IR/ArithOps.cpp.inc"
                >(context);
  });
  registry.addExtension(+[](MLIRContext *context, math::MathDialect *) {
    attachToAll<elementwise,
#define GET_OP_LIST
#include "mlir/Dialect/Math/IR/MathOps.cpp.inc"
                >(context);
  });
}
