//===- VectorCostModels.cpp - Costs of vector operations --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Vectors are in registers, so all of these operations are part of the surrounding kernel. Transfers move memory,
// contractions and reductions compute, and shuffles are free.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Machine/Rounding.h"
#include "Costs/CostModels.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

static OpWork inlinedWork(Type element) {
  OpWork work;
  work.inlined = true;
  work.element = elementTypeOf(element);
  return work;
}

/// Memory traffic of a vector result.
static OpWork load(Operation *op, const OperationCosts &) {
  OpWork work = inlinedWork(op->getResult(0).getType());
  work.bytesRead = comm::getStaticBytes(op->getResult(0).getType()).value_or(0);
  return work;
}

static OpWork storing(VectorType type) {
  OpWork work = inlinedWork(type);
  work.bytesWritten = comm::getStaticBytes(type).value_or(0);
  return work;
}

static OpWork store(vector::StoreOp op, const OperationCosts &) { return storing(op.getVectorType()); }
static OpWork maskedStore(vector::MaskedStoreOp op, const OperationCosts &) { return storing(op.getVectorType()); }
static OpWork scatter(vector::ScatterOp op, const OperationCosts &) { return storing(op.getVectorType()); }
static OpWork transferWrite(vector::TransferWriteOp op, const OperationCosts &) { return storing(op.getVectorType()); }

static OpWork contract(vector::ContractionOp op, const OperationCosts &) {
  OpWork work = inlinedWork(op.getLhsType());
  SmallVector<int64_t> bounds;
  op.getIterationBounds(bounds);
  work.flops = 2;
  for (int64_t bound : bounds)
    work.flops = multiplyAmounts(work.flops, bound);
  work.units = ComputeUnits::Matrix;
  return work;
}

/// A fixed number of operations per element of an operand or result.
template <typename Op> static OpWork perElement(Type type, int64_t flops) {
  OpWork work = inlinedWork(type);
  work.flops = multiplyAmounts(elementsOf(type), flops);
  return work;
}

static OpWork fma(vector::FMAOp op, const OperationCosts &) { return perElement<vector::FMAOp>(op.getType(), 2); }
static OpWork outerProduct(vector::OuterProductOp op, const OperationCosts &) {
  return perElement<vector::OuterProductOp>(op.getType(), 2);
}
static OpWork reduction(vector::ReductionOp op, const OperationCosts &) {
  return perElement<vector::ReductionOp>(op.getSourceVectorType(), 1);
}
static OpWork multiReduction(vector::MultiDimReductionOp op, const OperationCosts &) {
  return perElement<vector::MultiDimReductionOp>(op.getSourceVectorType(), 1);
}

void commsched::detail::registerVectorCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, vector::VectorDialect *) {
    attachToAll<load, vector::LoadOp, vector::MaskedLoadOp, vector::GatherOp, vector::TransferReadOp>(context);
    attach<vector::StoreOp, store>(context);
    attach<vector::MaskedStoreOp, maskedStore>(context);
    attach<vector::ScatterOp, scatter>(context);
    attach<vector::TransferWriteOp, transferWrite>(context);
    attach<vector::ContractionOp, contract>(context);
    attach<vector::FMAOp, fma>(context);
    attach<vector::OuterProductOp, outerProduct>(context);
    attach<vector::ReductionOp, reduction>(context);
    attach<vector::MultiDimReductionOp, multiReduction>(context);
  });
}
