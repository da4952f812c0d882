//===- TensorSplitModels.cpp - Splitting of tensor operations ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reshapes and casts. Slices, insertions and pads have static sizes in their attributes and are barriers.
//
//===------------------------------------------------------------------------------------------===//

#include "SplitModels.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

namespace {

/// A cast, or a reshape whose type alone gives the sizes.
template <typename Op> struct ReshapeModel : SplittableOpInterface::ExternalModel<ReshapeModel<Op>, Op> {
  SplitAxes getSplitAxes(Operation *op) const { return reshapeAxes(op); }
};

/// tensor.expand_shape also lists the sizes of its result.
struct ExpandModel : SplittableOpInterface::ExternalModel<ExpandModel, tensor::ExpandShapeOp> {
  SplitAxes getSplitAxes(Operation *op) const { return reshapeAxes(op); }
  Operation *createStrand(Operation *op, OpBuilder &builder, const SplitAxis &, ValueRange operands,
                          TypeRange types) const {
    return tensor::ExpandShapeOp::create(builder, op->getLoc(), types.front(), operands.front(),
                                         cast<tensor::ExpandShapeOp>(op).getReassociationIndices());
  }
};

} // namespace

void commsched::detail::registerTensorSplitModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, tensor::TensorDialect *) {
    tensor::CollapseShapeOp::attachInterface<ReshapeModel<tensor::CollapseShapeOp>>(*context);
    tensor::CastOp::attachInterface<ReshapeModel<tensor::CastOp>>(*context);
    tensor::ExpandShapeOp::attachInterface<ExpandModel>(*context);
  });
}
