//===- BufferizationCostModels.cpp - Costs of bufferization operations ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The copies between tensors and buffers. The other operations of the dialect only rename storage.
//
//===------------------------------------------------------------------------------------------===//

#include "Costs/CostModels.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

static OpWork clone(bufferization::CloneOp op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op.getInput()), bytesOf(op.getInput()));
}

static OpWork allocTensor(bufferization::AllocTensorOp op, const OperationCosts &) {
  Value copied = op.getCopy();
  return copied ? OpWork::copy(bytesOf(copied), bytesOf(copied)) : OpWork::view();
}

static OpWork materialize(bufferization::MaterializeInDestinationOp op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op.getSource()), bytesOf(op.getSource()));
}

void commsched::detail::registerBufferizationCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, bufferization::BufferizationDialect *) {
    attach<bufferization::CloneOp, clone>(context);
    attach<bufferization::AllocTensorOp, allocTensor>(context);
    attach<bufferization::MaterializeInDestinationOp, materialize>(context);
  });
}
