//===- CostInterface.cpp - Interface for the cost of an operation -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/CostInterface.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "CommSched/Machine/Rounding.h"
#include "CostModels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/CastInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

#include "CommSched/Analysis/CostInterface.cpp.inc"

Bytes OpWork::bytes() const { return commsched::detail::addAmounts(bytesRead, bytesWritten); }

ElementType commsched::elementTypeOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element)) {
    if (element.isBF16())
      return ElementType::BF16;
    switch (element.getIntOrFloatBitWidth()) {
    case 64:
      return ElementType::F64;
    case 32:
      return ElementType::F32;
    case 19:
      return ElementType::TF32;
    case 16:
      return ElementType::F16;
    case 8:
      return ElementType::F8;
    case 4:
      return ElementType::F4;
    default:
      return ElementType::Other;
    }
  }
  if (!isa<IntegerType>(element))
    return ElementType::Other;
  switch (element.getIntOrFloatBitWidth()) {
  case 64:
    return ElementType::I64;
  case 32:
    return ElementType::I32;
  case 16:
    return ElementType::I16;
  case 8:
    return ElementType::I8;
  default:
    return ElementType::Other;
  }
}

Bytes commsched::bytesOf(Value value) { return getKnownBytes(value).value_or(0); }

Bytes commsched::bytesOf(ValueRange values) {
  Bytes bytes = 0;
  for (Value value : values)
    bytes = commsched::detail::addAmounts(bytes, bytesOf(value));
  return bytes;
}

int64_t commsched::elementsOf(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped)
    return 1;
  return shaped.hasStaticShape() ? shaped.getNumElements() : 0;
}

int64_t commsched::flopsPerElement(Operation *op) {
  if (op->getNumResults() == 0 || isa<CastOpInterface>(op) || matchPattern(op, m_Constant()))
    return 0;
  Dialect *dialect = op->getDialect();
  if (!dialect || getElementTypeOrSelf(op->getResult(0).getType()).isIndex())
    return 0;
  if (isa<arith::ArithDialect>(dialect))
    return 1;
  if (!isa<math::MathDialect>(dialect))
    return 0;
  if (isa<math::FmaOp>(op))
    return 2;
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::FloorOp, math::RoundOp, math::RoundEvenOp, math::TruncOp,
             math::CopySignOp>(op)
             ? 1
             : commsched::detail::kTranscendentalFlops;
}

void commsched::registerCostModels(DialectRegistry &registry) {
  commsched::detail::registerArithCostModels(registry);
  commsched::detail::registerBufferizationCostModels(registry);
  commsched::detail::registerFuncCostModels(registry);
  commsched::detail::registerLinalgCostModels(registry);
  commsched::detail::registerMemRefCostModels(registry);
  commsched::detail::registerScfCostModels(registry);
  commsched::detail::registerTensorCostModels(registry);
  commsched::detail::registerTosaCostModels(registry);
  commsched::detail::registerVectorCostModels(registry);
}
