//===- TensorCostModels.cpp - Costs of tensor operations --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Operations that make new tensors move the bytes that they read and write. Reshapes, casts and slices are views; they
// are free and need no model.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Machine/Rounding.h"
#include "Costs/CostModels.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

/// The piece is read and written, unless it is computed in its place. The rest of the destination does not move.
template <typename Insert> static OpWork insertSlice(Insert op, const OperationCosts &) {
  if (op->hasAttr(kInPlaceAttrName))
    return OpWork::view();
  return OpWork::copy(bytesOf(op.getSource()), bytesOf(op.getSource()));
}

static OpWork readAllWriteAll(Operation *op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
}

static OpWork gather(tensor::GatherOp op, const OperationCosts &) {
  Bytes picked = bytesOf(op.getResult());
  return OpWork::copy(addAmounts(bytesOf(op.getIndices()), picked), picked);
}

static OpWork scatter(tensor::ScatterOp op, const OperationCosts &) {
  Bytes put = bytesOf(op.getSource());
  return OpWork::copy(addAmounts(bytesOf(op.getIndices()), put), put);
}

static OpWork generate(tensor::GenerateOp op, const OperationCosts &costs) {
  OpWork element = costs.workOfRegions(op), work;
  int64_t elements = elementsOf(op.getType());
  work.flops = multiplyAmounts(element.flops, elements);
  work.bytesRead = multiplyAmounts(element.bytesRead, elements);
  work.bytesWritten = bytesOf(op.getResult());
  work.element = elementTypeOf(op.getType());
  work.known = element.known;
  return work;
}

/// One element, as part of the surrounding kernel.
static OpWork access(Operation *op, const OperationCosts &) {
  OpWork work;
  work.inlined = true;
  if (isa<tensor::ExtractOp, tensor::InsertOp>(op))
    work.bytesRead = bytesOf(op->getOperand(isa<tensor::InsertOp>(op) ? 1 : 0)) /
                     std::max<int64_t>(1, elementsOf(op->getOperand(isa<tensor::InsertOp>(op) ? 1 : 0).getType()));
  return work;
}

void commsched::detail::registerTensorCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, tensor::TensorDialect *) {
    attach<tensor::InsertSliceOp, insertSlice<tensor::InsertSliceOp>>(context);
    attach<tensor::ParallelInsertSliceOp, insertSlice<tensor::ParallelInsertSliceOp>>(context);
    attach<tensor::GatherOp, gather>(context);
    attach<tensor::ScatterOp, scatter>(context);
    attach<tensor::GenerateOp, generate>(context);
    attachToAll<readAllWriteAll, tensor::ConcatOp, tensor::FromElementsOp, tensor::PadOp, tensor::SplatOp>(context);
    attachToAll<access, tensor::ExtractOp, tensor::InsertOp, tensor::RankOp>(context);
  });
}
