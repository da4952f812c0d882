//===- LinalgCostModels.cpp - Costs of linalg operations --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The cost of a structured operation is that of its body times the iteration space. Every operand is read once and
// every result written once, as in a well-tiled kernel. Contractions and convolutions run on the matrix units.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/Rounding.h"
#include "CostModels.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

/// Operations per element: a row's maximum, difference, exponential (16), sum and quotient.
static constexpr int64_t kSoftmaxFlops = 20;

/// Points of the iteration space; 0 if a range is dynamic.
static int64_t countPoints(linalg::LinalgOp op) {
  int64_t points = 1;
  for (int64_t range : op.getStaticLoopRanges())
    points = ShapedType::isDynamic(range) ? 0 : multiplyAmounts(points, range);
  return points;
}

/// The shape of a contraction; unknown if a range is dynamic.
static ProductShape productOf(linalg::LinalgOp op) {
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(op);
  if (failed(dims))
    return {};
  SmallVector<int64_t> ranges = op.getStaticLoopRanges();
  if (llvm::any_of(ranges, ShapedType::isDynamic))
    return {};
  auto sizeOf = [&](ArrayRef<unsigned> loops) {
    int64_t size = 1;
    for (unsigned loop : loops)
      size = multiplyAmounts(size, ranges[loop]);
    return size;
  };
  return {sizeOf(dims->batch), sizeOf(dims->m), sizeOf(dims->n)};
}

static OpWork structured(Operation *operation, const OperationCosts &) {
  auto op = cast<linalg::LinalgOp>(operation);
  OpWork work;
  for (OpOperand *input : op.getDpsInputOperands())
    work.bytesRead = addAmounts(work.bytesRead, bytesOf(input->get()));
  for (OpOperand &init : op.getDpsInitsMutable()) {
    work.bytesWritten = addAmounts(work.bytesWritten, bytesOf(init.get()));
    // An accumulation reads the tensor to which it adds. A fresh tensor has no contents to read.
    if (op.payloadUsesValueFromOperand(&init) && !init.get().getDefiningOp<tensor::EmptyOp>())
      work.bytesRead = addAmounts(work.bytesRead, bytesOf(init.get()));
  }
  int64_t flops = 0;
  for (Operation &inner : *op.getBlock())
    flops += flopsPerElement(&inner);
  work.flops = multiplyAmounts(countPoints(op), flops);
  if (op.getNumDpsInputs() > 0)
    work.element = elementTypeOf(op.getDpsInputOperand(0)->get().getType());
  if (linalg::isaContractionOpInterface(op) || linalg::isaConvolutionOpInterface(op))
    work.units = ComputeUnits::Matrix;
  if (work.units == ComputeUnits::Matrix)
    work.product = productOf(op);
  return work;
}

static OpWork softmax(linalg::SoftmaxOp op, const OperationCosts &) {
  OpWork work = OpWork::copy(bytesOf(op.getInput()), bytesOf(op.getOutput()));
  work.flops = multiplyAmounts(elementsOf(op.getInput().getType()), kSoftmaxFlops);
  work.element = elementTypeOf(op.getInput().getType());
  return work;
}

template <typename Relayout> static OpWork relayout(Relayout op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op.getSource()), bytesOf(op.getDest()));
}

void commsched::detail::registerLinalgCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, linalg::LinalgDialect *) {
    attachToAll<structured,
#define GET_OP_LIST
#include "mlir/Dialect/Linalg/IR/LinalgStructuredOps.cpp.inc"
                >(context);
    attach<linalg::SoftmaxOp, softmax>(context);
    attach<linalg::PackOp, relayout<linalg::PackOp>>(context);
    attach<linalg::UnPackOp, relayout<linalg::UnPackOp>>(context);
  });
}
