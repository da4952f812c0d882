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
#include "Costs/CostModels.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Complex/IR/Complex.h"
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

/// The shape of a contraction; unknown for other operations, and if a range is dynamic. Of a convolution, the inferred
/// dimensions leave out the positions of the window.
static ProductShape productOf(linalg::LinalgOp op) {
  if (!linalg::isaContractionOpInterface(op))
    return {};
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

/// Whether the matrix units carry out an operation: sums of products over the iteration space. Pooling has the
/// interface of convolutions, too, but multiplies nothing.
static bool runsOnMatrixUnits(linalg::LinalgOp op) {
  if (linalg::isaContractionOpInterface(op))
    return true;
  return linalg::isaConvolutionOpInterface(op) && llvm::any_of(*op.getBlock(), [](Operation &inner) {
           return isa<arith::MulFOp, arith::MulIOp, complex::MulOp>(inner);
         });
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
  if (runsOnMatrixUnits(op)) {
    work.units = ComputeUnits::Matrix;
    work.product = productOf(op);
  }
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
