//===- TosaCostModels.cpp - Costs of TOSA operations ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each operation is one kernel that reads its operands and writes its results once. Products and convolutions run on
// the matrix units; the zero points of quantized ones are not counted. Reshapes and identities are views, and constants
// are free; neither needs a model. `custom` and the operations on variables have none, so their costs are guesses.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Machine/Rounding.h"
#include "Costs/CostModels.h"
#include "mlir/Dialect/Tosa/IR/TosaOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::detail;

/// Operations of 1 / (1 + exp(-x)).
static constexpr int64_t kSigmoidFlops = kTranscendentalFlops + 3;

/// Operations per element of `argmax`: a comparison, and the choices of a value and of an index.
static constexpr int64_t kArgMaxFlops = 3;

/// A Fourier transform of n complex numbers counts 5 n log2(n) operations, and one of real numbers half of that (the
/// convention of FFTW's benchmarks).
static constexpr int64_t kFourierFlops = 5;

/// A kernel that computes on elements of `type`.
static OpWork tosaKernel(Operation *op, Type type, int64_t flops) {
  OpWork work = OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
  work.flops = flops;
  work.element = elementTypeOf(type);
  return work;
}

static OpWork tosaMove(Operation *op, const OperationCosts &) {
  return OpWork::copy(bytesOf(op->getOperands()), bytesOf(op->getResults()));
}

static OpWork tosaQuery(tosa::DimOp, const OperationCosts &) { return OpWork::view(); }

//===-----------------------------------------------------------------------------------------===//
// Products and convolutions
//===-----------------------------------------------------------------------------------------===//

/// The product of matrices: `a` has the rows of the result and the dimension of the sums. All batches of `a` meet the
/// one matrix of `b` if `b` has a single batch.
static OpWork tosaProduct(Operation *op, Type a, Type b) {
  OpWork work = tosaKernel(op, a, 0);
  work.units = ComputeUnits::Matrix;
  auto lhs = cast<ShapedType>(a), rhs = cast<ShapedType>(b), result = cast<ShapedType>(op->getResult(0).getType());
  if (!lhs.hasRank() || lhs.isDynamicDim(2) || !result.hasStaticShape())
    return work;
  int64_t batches = result.getDimSize(0), rows = result.getDimSize(1), columns = result.getDimSize(2);
  work.flops = multiplyAmounts(2, multiplyAmounts(result.getNumElements(), lhs.getDimSize(2)));
  bool isShared = rhs.hasRank() && rhs.getDimSize(0) == 1;
  work.product =
      isShared ? ProductShape{1, multiplyAmounts(batches, rows), columns} : ProductShape{batches, rows, columns};
  return work;
}

static OpWork tosaMatMul(tosa::MatMulOp op, const OperationCosts &) {
  return tosaProduct(op, op.getA().getType(), op.getB().getType());
}

static OpWork tosaScaledMatMul(tosa::MatmulTBlockScaledOp op, const OperationCosts &) {
  return tosaProduct(op, op.getAData().getType(), op.getBData().getType());
}

/// Each element of the result is a sum over the weights of its feature, which is the last dimension. The bias is what
/// the sum begins with.
template <typename Convolution> static OpWork tosaConvolve(Convolution op, const OperationCosts &) {
  OpWork work = tosaKernel(op, op.getInput().getType(), 0);
  work.units = ComputeUnits::Matrix;
  auto result = cast<ShapedType>(op.getOutput().getType());
  int64_t elements = elementsOf(result);
  if (elements > 0)
    work.flops =
        multiplyAmounts(2, multiplyAmounts(elements, elementsOf(op.getWeight().getType()) / result.getShape().back()));
  return work;
}

/// Of the weights, one in stride x stride reaches a given element of the result. The others meet zeros between the
/// elements of the input.
static OpWork tosaTransposeConvolve(tosa::TransposeConv2DOp op, const OperationCosts &costs) {
  OpWork work = tosaConvolve(op, costs);
  for (int64_t stride : op.getStride())
    work.flops = llvm::divideCeilSigned(work.flops, std::max<int64_t>(1, stride));
  return work;
}

//===-----------------------------------------------------------------------------------------===//
// Vector units
//===-----------------------------------------------------------------------------------------===//

template <int64_t flops> static OpWork tosaPointwise(Operation *op, const OperationCosts &) {
  Type type = op->getResult(0).getType();
  return tosaKernel(op, type, multiplyAmounts(elementsOf(type), flops));
}

static OpWork tosaCompare(Operation *op, const OperationCosts &) {
  return tosaKernel(op, op->getOperand(0).getType(), elementsOf(op->getResult(0).getType()));
}

template <int64_t flops> static OpWork tosaReduce(Operation *op, const OperationCosts &) {
  Type type = op->getOperand(0).getType();
  return tosaKernel(op, type, multiplyAmounts(elementsOf(type), flops));
}

/// `more` operations follow those on the window, for each element of the result.
template <typename Pool, int64_t more> static OpWork tosaPool(Pool op, const OperationCosts &) {
  int64_t window = 1;
  for (int64_t size : op.getKernel())
    window = multiplyAmounts(window, size);
  return tosaKernel(op, op.getInput().getType(),
                    multiplyAmounts(elementsOf(op.getOutput().getType()), addAmounts(window, more)));
}

/// The operations of a transform of complex numbers over the last two dimensions.
static int64_t fourierFlops(Type type) {
  int64_t elements = elementsOf(type);
  if (elements == 0)
    return 0;
  int64_t batches = cast<ShapedType>(type).getDimSize(0);
  return multiplyAmounts(kFourierFlops, multiplyAmounts(elements, llvm::Log2_64_Ceil(elements / batches)));
}

static OpWork tosaFourier(tosa::FFT2dOp op, const OperationCosts &) {
  Type type = op.getInputReal().getType();
  return tosaKernel(op, type, fourierFlops(type));
}

static OpWork tosaRealFourier(tosa::RFFT2dOp op, const OperationCosts &) {
  Type type = op.getInputReal().getType();
  return tosaKernel(op, type, fourierFlops(type) / 2);
}

//===-----------------------------------------------------------------------------------------===//
// Parts of tensors
//===-----------------------------------------------------------------------------------------===//

static OpWork tosaSlice(tosa::SliceOp op, const OperationCosts &) {
  Bytes taken = bytesOf(op.getOutput());
  return OpWork::copy(taken, taken);
}

static OpWork tosaGather(tosa::GatherOp op, const OperationCosts &) {
  Bytes taken = bytesOf(op.getOutput());
  return OpWork::copy(addAmounts(bytesOf(op.getIndices()), taken), taken);
}

//===-----------------------------------------------------------------------------------------===//
// Control flow
//===-----------------------------------------------------------------------------------------===//

static OpWork tosaBranch(tosa::IfOp op, const OperationCosts &costs) { return costs.workOfLongestRegion(op); }

/// TOSA loops have no bounds, so that one trip counts, as a guess.
static OpWork tosaLoop(tosa::WhileOp op, const OperationCosts &costs) { return costs.workOfRegions(op); }

static void attachElementwise(MLIRContext *context) {
  using namespace tosa;
  attachToAll<tosaPointwise<1>, AbsOp, AddOp, ArithmeticRightShiftOp, BitwiseAndOp, BitwiseNotOp, BitwiseOrOp,
              BitwiseXorOp, CeilOp, ClzOp, FloorOp, IntDivOp, LogicalAndOp, LogicalLeftShiftOp, LogicalNotOp,
              LogicalOrOp, LogicalRightShiftOp, LogicalXorOp, MaximumOp, MinimumOp, MulOp, NegateOp, ReciprocalOp,
              SelectOp, SubOp>(context);
  attachToAll<tosaPointwise<2>, ClampOp>(context);
  attachToAll<tosaPointwise<kSigmoidFlops>, SigmoidOp>(context);
  attachToAll<tosaPointwise<kTranscendentalFlops>, CosOp, ErfOp, ExpOp, LogOp, PowOp, RsqrtOp, SinOp, TanhOp>(context);
  attachToAll<tosaCompare, EqualOp, GreaterEqualOp, GreaterOp>(context);
}

void commsched::detail::registerTosaCostModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, tosa::TosaDialect *) {
    attach<tosa::MatMulOp, tosaMatMul>(context);
    attach<tosa::MatmulTBlockScaledOp, tosaScaledMatMul>(context);
    attach<tosa::Conv2DOp, tosaConvolve<tosa::Conv2DOp>>(context);
    attach<tosa::Conv3DOp, tosaConvolve<tosa::Conv3DOp>>(context);
    attach<tosa::DepthwiseConv2DOp, tosaConvolve<tosa::DepthwiseConv2DOp>>(context);
    attach<tosa::TransposeConv2DOp, tosaTransposeConvolve>(context);
    attachElementwise(context);
    attachToAll<tosaReduce<1>, tosa::ReduceAllOp, tosa::ReduceAnyOp, tosa::ReduceMaxOp, tosa::ReduceMinOp,
                tosa::ReduceProductOp, tosa::ReduceSumOp>(context);
    attachToAll<tosaReduce<kArgMaxFlops>, tosa::ArgMaxOp>(context);
    attach<tosa::MaxPool2dOp, tosaPool<tosa::MaxPool2dOp, 0>>(context);
    attach<tosa::AvgPool2dOp, tosaPool<tosa::AvgPool2dOp, 1>>(context);
    attach<tosa::FFT2dOp, tosaFourier>(context);
    attach<tosa::RFFT2dOp, tosaRealFourier>(context);
    attachToAll<tosaMove, tosa::CastFromBlockScaledOp, tosa::CastOp, tosa::CastToBlockScaledOp, tosa::ConcatOp,
                tosa::PadOp, tosa::RescaleOp, tosa::ResizeOp, tosa::ReverseOp, tosa::ScatterOp, tosa::TableOp,
                tosa::TileOp, tosa::TransposeOp>(context);
    attach<tosa::SliceOp, tosaSlice>(context);
    attach<tosa::GatherOp, tosaGather>(context);
    attach<tosa::DimOp, tosaQuery>(context);
    attach<tosa::IfOp, tosaBranch>(context);
    attach<tosa::WhileOp, tosaLoop>(context);
  });
}
