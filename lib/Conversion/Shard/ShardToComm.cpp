//===- ShardToComm.cpp - Collectives of upstream's shard dialect ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Each collective of a partitioned program becomes a start and its wait, one after the other; later passes move them
// apart. Operations that only ask for the place of a process become arithmetic on the rank.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "GridGroups.h"
#include "ShardHalos.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/TypeSwitch.h"

namespace commsched {
#define GEN_PASS_DEF_CONVERTSHARDTOCOMM
#include "CommSched/Conversion/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using shard::GridAxis;

/// The reduction of comm that does the same on elements of this type; none if there is none.
static std::optional<comm::ReductionKind> reductionOf(shard::ReductionKind kind, Type element) {
  bool isBit = element.isInteger(1), isNumber = element.isIntOrFloat() && !isBit, isComplex = isa<ComplexType>(element);
  auto when = [](bool holds, comm::ReductionKind reduction) { return holds ? std::optional(reduction) : std::nullopt; };
  switch (kind) {
  case shard::ReductionKind::Sum:
    return when(isNumber || isComplex, comm::ReductionKind::sum);
  case shard::ReductionKind::Max:
    return when(isNumber, comm::ReductionKind::max);
  case shard::ReductionKind::Min:
    return when(isNumber, comm::ReductionKind::min);
  case shard::ReductionKind::Product:
    return when(isNumber, comm::ReductionKind::product);
  case shard::ReductionKind::Average:
    return when(isa<FloatType>(element), comm::ReductionKind::avg);
  case shard::ReductionKind::BitwiseAnd:
    return when(isBit, comm::ReductionKind::min);
  case shard::ReductionKind::BitwiseOr:
    return when(isBit, comm::ReductionKind::max);
  case shard::ReductionKind::BitwiseXor:
  case shard::ReductionKind::Generic:
    return std::nullopt;
  }
  return std::nullopt;
}

/// The tensor with its elements converted.
static Value convertElements(ImplicitLocOpBuilder &builder, Value tensor, Type element) {
  auto type = cast<RankedTensorType>(tensor.getType());
  if (type.getElementType() == element)
    return tensor;
  Value empty = tensor::EmptyOp::create(builder, tensor::getMixedSizes(builder, builder.getLoc(), tensor), element);
  AffineMap map = builder.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  auto body = [&](OpBuilder &inner, Location loc, ValueRange arguments) {
    linalg::YieldOp::create(inner, loc,
                            convertScalarToDtype(inner, loc, arguments[0], element, /*isUnsignedCast=*/false));
  };
  return linalg::GenericOp::create(builder, TypeRange{empty.getType()}, ValueRange{tensor}, ValueRange{empty},
                                   ArrayRef<AffineMap>{map, map}, iterators, body)
      .getResult(0);
}

/// The tensor as a value of another type that differs in which sizes are static.
static Value castTo(ImplicitLocOpBuilder &builder, Value tensor, Type type) {
  return tensor.getType() == type ? tensor : tensor::CastOp::create(builder, type, tensor).getResult();
}

namespace {
class ShardConversion {
public:
  explicit ShardConversion(ModuleOp module) : module(module) {}

  LogicalResult run() {
    SmallVector<Operation *> operations;
    module.walk([&](Operation *op) {
      if (isa_and_nonnull<shard::ShardDialect>(op->getDialect()) && !isa<shard::GridOp>(op))
        operations.push_back(op);
    });
    for (Operation *op : operations)
      if (failed(convert(op)))
        return failure();
    return eraseLeftovers();
  }

private:
  LogicalResult convert(Operation *op) {
    ImplicitLocOpBuilder builder(op->getLoc(), op);
    return llvm::TypeSwitch<Operation *, LogicalResult>(op)
        .Case<shard::AllGatherOp, shard::AllReduceOp, shard::AllSliceOp, shard::AllToAllOp, shard::BroadcastOp,
              shard::GatherOp, shard::RecvOp, shard::ReduceOp, shard::ReduceScatterOp, shard::ScatterOp, shard::SendOp,
              shard::ShiftOp>([&](auto collective) { return convertCollective(builder, collective); })
        .Case<shard::UpdateHaloOp>([&](auto update) {
          shard::GridOp grid = gridOf(update);
          return grid ? convertUpdateHalo(builder, update, grid, groups) : failure();
        })
        .Case<shard::ProcessLinearIndexOp>([&](auto index) {
          if (!gridOf(index))
            return failure();
          return replace(index, {RankOp::create(builder, builder.getIndexType())});
        })
        .Case<shard::ProcessMultiIndexOp, shard::GridShapeOp, shard::NeighborsLinearIndicesOp>([&](auto question) {
          shard::GridOp grid = gridOf(question);
          return grid ? answer(builder, question, grid) : failure();
        })
        .Case<shard::ShardShapeOp>([&](auto shape) { return convertShardShape(builder, shape); })
        .Case<shard::GetShardingOp>([&](auto get) -> LogicalResult {
          auto annotation = get.getSource().template getDefiningOp<shard::ShardOp>();
          if (!annotation)
            return get.emitOpError() << "expected a tensor that a shard.shard gives its sharding, got none";
          return replace(get, annotation.getSharding());
        })
        // They vanish with the operations that use them.
        .Case<shard::ShardingOp, shard::ShardOp>([](auto) { return success(); })
        .Default([](Operation *other) { return other->emitOpError() << "has no conversion to the comm dialect"; });
  }

  /// The grid that an operation names, whose shape has to be static; null after a diagnostic.
  template <typename Op> shard::GridOp gridOf(Op op) {
    shard::GridOp grid = shard::getGridOrNull(op, op.getGridAttr(), symbols);
    if (!grid) {
      op.emitOpError() << "expected " << op.getGridAttr() << " to name a shard.grid";
    } else if (ShapedType::isDynamicShape(grid.getShape())) {
      InFlightDiagnostic diagnostic = op.emitOpError();
      diagnostic << "expected a grid of a static shape, because the groups of ranks are known at compile time";
      diagnostic.attachNote(grid.getLoc()) << "the grid is here";
      return {};
    }
    return grid;
  }

  static LogicalResult replace(Operation *op, ValueRange values) {
    op->replaceAllUsesWith(values);
    op->erase();
    return success();
  }

  /// Inserts the wait for a start, and replaces `op` by the value.
  template <typename Start>
  LogicalResult finish(ImplicitLocOpBuilder &builder, Operation *op, Start start, Type valueType) {
    auto wait = WaitOp::create(builder, TypeRange{valueType}, start.getFuture(), ValueRange());
    return replace(op, castTo(builder, wait->getResult(0), op->getResult(0).getType()));
  }

  FutureType futureOf(Type type) { return FutureType::get(module.getContext(), ArrayRef<Type>{type}); }

  template <typename Op> LogicalResult convertCollective(ImplicitLocOpBuilder &builder, Op op) {
    if (!isa<RankedTensorType>(op.getInput().getType()))
      return op.emitOpError() << "expected a tensor, got " << op.getInput().getType();
    shard::GridOp grid = gridOf(op);
    if (!grid)
      return failure();
    ArrayRef<GridAxis> axes = op.getGridAxes();
    Type element = cast<RankedTensorType>(op.getResult().getType()).getElementType();
    // Without axes each process is a group of its own.
    if (axes.empty())
      return replace(op, castTo(builder, convertElements(builder, op.getInput(), element), op.getResult().getType()));
    return emit(builder, op, grid, FlatSymbolRefAttr::get(groups.groupOf(grid, axes)));
  }

  /// The place in the group of a process that a collective names by its coordinates along the axes of the group.
  template <typename Op>
  FailureOr<int64_t> placeOf(Op op, shard::GridOp grid, ArrayRef<int64_t> coordinates, StringRef what) {
    SmallVector<int64_t> sizes = sizesOfAxes(grid, op.getGridAxes());
    if (llvm::is_contained(coordinates, ShapedType::kDynamic))
      return op.emitOpError() << "expected the coordinates of '" << what << "' to be constants, got a value";
    if (coordinates.size() != sizes.size())
      return op.emitOpError() << "expected one coordinate of '" << what << "' per axis of the group (" << sizes.size()
                              << "), got " << coordinates.size();
    return linearIndexOf(coordinates, sizes);
  }

  template <typename Op> FailureOr<comm::ReductionKindAttr> reductionOfOp(Op op) {
    Type element = cast<ShapedType>(op.getResult().getType()).getElementType();
    std::optional<comm::ReductionKind> kind = reductionOf(op.getReduction(), element);
    if (kind)
      return comm::ReductionKindAttr::get(module.getContext(), *kind);
    return op.emitOpError() << "the reduction '" << shard::stringifyReductionKind(op.getReduction())
                            << "' of elements of type " << element
                            << " has no counterpart in the comm dialect (sum, product, min and max of numbers, average "
                               "of floating-point numbers, bitwise_and and bitwise_or of i1)";
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::AllGatherOp op, shard::GridOp, FlatSymbolRefAttr group) {
    Type type = op.getType();
    auto start = comm::AllGatherOp::create(builder, futureOf(type), op.getInput(), ValueRange(), group,
                                           builder.getI64IntegerAttr(op.getGatherAxis().getSExtValue()));
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::AllReduceOp op, shard::GridOp, FlatSymbolRefAttr group) {
    FailureOr<comm::ReductionKindAttr> reduction = reductionOfOp(op);
    if (failed(reduction))
      return failure();
    auto type = cast<RankedTensorType>(op.getType());
    Value input = convertElements(builder, op.getInput(), type.getElementType());
    auto start = comm::AllReduceOp::create(builder, futureOf(type), input, ValueRange(), group, *reduction,
                                           /*scale=*/FloatAttr(), /*one_shot=*/UnitAttr());
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::ReduceOp op, shard::GridOp grid, FlatSymbolRefAttr group) {
    FailureOr<comm::ReductionKindAttr> reduction = reductionOfOp(op);
    FailureOr<int64_t> root = placeOf(op, grid, op.getRoot(), "root");
    if (failed(reduction) || failed(root))
      return failure();
    auto type = cast<RankedTensorType>(op.getType());
    Value input = convertElements(builder, op.getInput(), type.getElementType());
    auto start = comm::ReduceOp::create(builder, futureOf(type), input, ValueRange(), group, *reduction,
                                        /*scale=*/FloatAttr(), builder.getI64IntegerAttr(*root));
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::ReduceScatterOp op, shard::GridOp, FlatSymbolRefAttr group) {
    FailureOr<comm::ReductionKindAttr> reduction = reductionOfOp(op);
    if (failed(reduction) || failed(checkDivided(op, op.getScatterAxis(), "scatter_axis")))
      return failure();
    auto type = cast<RankedTensorType>(op.getType());
    Value input = convertElements(builder, op.getInput(), type.getElementType());
    auto start = comm::ReduceScatterOp::create(builder, futureOf(type), input, ValueRange(), group, *reduction,
                                               /*scale=*/FloatAttr(),
                                               builder.getI64IntegerAttr(op.getScatterAxis().getSExtValue()));
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::AllToAllOp op, shard::GridOp, FlatSymbolRefAttr group) {
    if (failed(checkDivided(op, op.getSplitAxis(), "split_axis")))
      return failure();
    Type type = op.getType();
    auto start = comm::AllToAllOp::create(builder, futureOf(type), op.getInput(), ValueRange(), group, ValueRange(),
                                          ValueRange(), builder.getI64IntegerAttr(op.getSplitAxis().getSExtValue()),
                                          builder.getI64IntegerAttr(op.getConcatAxis().getSExtValue()),
                                          DenseI64ArrayAttr(), DenseI64ArrayAttr());
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::BroadcastOp op, shard::GridOp grid,
                     FlatSymbolRefAttr group) {
    FailureOr<int64_t> root = placeOf(op, grid, op.getRoot(), "root");
    if (failed(root))
      return failure();
    Type type = op.getInput().getType();
    auto start = comm::BroadcastOp::create(builder, futureOf(type), op.getInput(), ValueRange(), group,
                                           builder.getI64IntegerAttr(*root));
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::GatherOp op, shard::GridOp grid, FlatSymbolRefAttr group) {
    FailureOr<int64_t> root = placeOf(op, grid, op.getRoot(), "root");
    if (failed(root))
      return failure();
    Type type = op.getType();
    auto start = comm::GatherOp::create(builder, futureOf(type), op.getInput(), ValueRange(), group,
                                        builder.getI64IntegerAttr(op.getGatherAxis().getSExtValue()),
                                        builder.getI64IntegerAttr(*root));
    return finish(builder, op, start, type);
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::ScatterOp op, shard::GridOp grid, FlatSymbolRefAttr group) {
    FailureOr<int64_t> root = placeOf(op, grid, op.getRoot(), "root");
    if (failed(root) || failed(checkDivided(op, op.getScatterAxis(), "scatter_axis")))
      return failure();
    Type type = op.getType();
    auto start = comm::ScatterOp::create(builder, futureOf(type), op.getInput(), ValueRange(), group,
                                         builder.getI64IntegerAttr(op.getScatterAxis().getSExtValue()),
                                         builder.getI64IntegerAttr(*root));
    return finish(builder, op, start, type);
  }

  /// What a send returns is unspecified upstream; here it is its input, once that may be written again.
  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::SendOp op, shard::GridOp grid, FlatSymbolRefAttr group) {
    FailureOr<int64_t> peer = placeOf(op, grid, op.getDestination(), "destination");
    if (failed(peer))
      return failure();
    auto start = comm::SendOp::create(builder, FutureType::get(module.getContext(), {}), op.getInput(), ValueRange(),
                                      group, builder.getI64IntegerAttr(*peer), builder.getI64IntegerAttr(0));
    WaitOp::create(builder, TypeRange(), start.getFuture(), ValueRange());
    return replace(op, castTo(builder, op.getInput(), op.getType()));
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::RecvOp op, shard::GridOp grid, FlatSymbolRefAttr group) {
    if (!op.getSource())
      return op.emitOpError() << "expected a 'source', because comm.recv receives from one rank; got none";
    if (cast<RankedTensorType>(op.getType()).getNumDynamicDims() > 0)
      return op.emitOpError() << "expected a message of a static shape, got " << op.getType();
    FailureOr<int64_t> peer = placeOf(op, grid, *op.getSource(), "source");
    if (failed(peer))
      return failure();
    auto start = comm::RecvOp::create(builder, futureOf(op.getType()), ValueRange(), ValueRange(), group,
                                      builder.getI64IntegerAttr(*peer), builder.getI64IntegerAttr(0));
    return finish(builder, op, start, op.getType());
  }

  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::ShiftOp op, shard::GridOp grid, FlatSymbolRefAttr group) {
    ArrayRef<GridAxis> axes = op.getGridAxes();
    const auto *along = llvm::find(axes, op.getShiftAxis().getSExtValue());
    if (along == axes.end())
      return op.emitOpError() << "expected 'shift_axis' (" << op.getShiftAxis().getSExtValue()
                              << ") to be one of the axes of the group";
    Type type = op.getInput().getType();
    SmallVector<int64_t> pairs = pairsOfShift(grid, axes, along - axes.begin(), op.getOffset(), op.getRotate());
    auto start = comm::PermuteOp::create(builder, futureOf(type), op.getInput(), ValueRange(), group,
                                         builder.getDenseI64ArrayAttr(pairs));
    return finish(builder, op, start, type);
  }

  /// A slice is no communication: each rank cuts its piece out of its own data.
  LogicalResult emit(ImplicitLocOpBuilder &builder, shard::AllSliceOp op, shard::GridOp grid, FlatSymbolRefAttr) {
    if (failed(checkDivided(op, op.getSliceAxis(), "slice_axis")))
      return failure();
    int64_t axis = op.getSliceAxis().getSExtValue(), ranks = 1;
    for (int64_t size : sizesOfAxes(grid, op.getGridAxes()))
      ranks *= size;
    SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(builder, builder.getLoc(), op.getInput());
    int64_t piece = cast<RankedTensorType>(op.getInput().getType()).getDimSize(axis) / ranks;
    SmallVector<OpFoldResult> offsets(sizes.size(), builder.getIndexAttr(0)),
        strides(sizes.size(), builder.getIndexAttr(1));
    sizes[axis] = builder.getIndexAttr(piece);
    offsets[axis] = arith::MulIOp::create(builder, placeOfRank(builder, grid, op.getGridAxes()),
                                          arith::ConstantIndexOp::create(builder, piece).getResult())
                        .getResult();
    Value slice = tensor::ExtractSliceOp::create(builder, op.getInput(), offsets, sizes, strides);
    return replace(op, castTo(builder, slice, op.getType()));
  }

  /// A dimension that is divided among ranks has a static size, so that it is known to be divisible.
  template <typename Op> LogicalResult checkDivided(Op op, const APInt &axis, StringRef what) {
    auto type = cast<RankedTensorType>(op.getInput().getType());
    auto grid = shard::getGridOrNull(op, op.getGridAttr(), symbols);
    int64_t dim = axis.getSExtValue(), ranks = 1;
    for (int64_t size : sizesOfAxes(grid, op.getGridAxes()))
      ranks *= size;
    if (type.isDynamicDim(dim))
      return op.emitOpError() << "expected dimension " << dim << " ('" << what
                              << "') to have a static size, because it is divided among " << ranks << " ranks; got "
                              << type;
    if (type.getDimSize(dim) % ranks != 0)
      return op.emitOpError() << "expected dimension " << dim << " ('" << what << "') to be a multiple of " << ranks
                              << " ranks, got " << type;
    return success();
  }

  LogicalResult answer(ImplicitLocOpBuilder &builder, shard::ProcessMultiIndexOp op, shard::GridOp grid) {
    SmallVector<GridAxis> axes(op.getAxes());
    if (axes.empty())
      axes = llvm::to_vector(llvm::seq<GridAxis>(0, static_cast<GridAxis>(grid.getRank())));
    return replace(op, coordinatesOfRank(builder, grid, axes));
  }

  LogicalResult answer(ImplicitLocOpBuilder &builder, shard::GridShapeOp op, shard::GridOp grid) {
    SmallVector<GridAxis> axes(op.getAxes());
    if (axes.empty())
      axes = llvm::to_vector(llvm::seq<GridAxis>(0, static_cast<GridAxis>(grid.getRank())));
    return replace(op, llvm::map_to_vector(sizesOfAxes(grid, axes), [&](int64_t size) -> Value {
                     return arith::ConstantIndexOp::create(builder, size);
                   }));
  }

  /// A neighbour that does not exist has the number -1.
  LogicalResult answer(ImplicitLocOpBuilder &builder, shard::NeighborsLinearIndicesOp op, shard::GridOp grid) {
    if (op.getSplitAxes().size() != 1)
      return op.emitOpError() << "expected one axis in 'split_axes', got " << op.getSplitAxes().size();
    GridAxis axis = op.getSplitAxes()[0];
    auto constant = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(builder, value); };
    Value rank = constant(0), stride = constant(1);
    for (auto [device, size] : llvm::zip_equal(op.getDevice(), grid.getShape()))
      rank = arith::AddIOp::create(builder, arith::MulIOp::create(builder, rank, constant(size)).getResult(), device);
    for (int64_t size : grid.getShape().drop_front(axis + 1))
      stride = arith::MulIOp::create(builder, stride, constant(size));
    Value coordinate = op.getDevice()[axis], none = constant(-1);
    auto unless = [&](arith::CmpIPredicate isBorder, int64_t border, Value neighbour) -> Value {
      Value atBorder = arith::CmpIOp::create(builder, isBorder, coordinate, constant(border));
      return arith::SelectOp::create(builder, atBorder, none, neighbour);
    };
    Value down = unless(arith::CmpIPredicate::sle, 0, arith::SubIOp::create(builder, rank, stride));
    Value up =
        unless(arith::CmpIPredicate::sge, grid.getShape()[axis] - 1, arith::AddIOp::create(builder, rank, stride));
    return replace(op, {down, up});
  }

  /// The shape of a shard, if all shards have the same.
  LogicalResult convertShardShape(ImplicitLocOpBuilder &builder, shard::ShardShapeOp op) {
    auto sharding = op.getSharding().getDefiningOp<shard::ShardingOp>();
    if (!sharding)
      return op.emitOpError() << "expected the sharding of a shard.sharding";
    shard::GridOp grid = gridOf(sharding);
    if (!grid)
      return failure();
    if (!sharding.getStaticShardedDimsOffsets().empty() || !sharding.getStaticHaloSizes().empty())
      return op.emitOpError() << "expected shards of one shape, got a sharding with 'sharded_dims_offsets' or "
                                 "'halo_sizes'";
    SmallVector<int64_t> shape(op.getDims());
    for (auto [dim, axes] : llvm::enumerate(sharding.getSplitAxes().getAxes())) {
      int64_t ranks = 1;
      for (int64_t size : sizesOfAxes(grid, axes.asArrayRef()))
        ranks *= size;
      if (ranks > 1 && (ShapedType::isDynamic(shape[dim]) || shape[dim] % ranks != 0))
        return op.emitOpError() << "expected dimension " << dim << " to have a static size that is a multiple of "
                                << ranks << " ranks";
      if (ranks > 1)
        shape[dim] /= ranks;
    }
    SmallVector<Value> sizes;
    auto values = op.getDimsDynamic().begin();
    for (int64_t size : shape)
      sizes.push_back(ShapedType::isDynamic(size) ? Value(*values++)
                                                  : arith::ConstantIndexOp::create(builder, size).getResult());
    return replace(op, sizes);
  }

  /// Erases shardings that nothing uses, and the grids. A sharding that is left is of a program that has not been
  /// partitioned.
  LogicalResult eraseLeftovers() {
    WalkResult result = module.walk([](shard::ShardOp op) {
      op.emitOpError() << "expected a partitioned program; run --sharding-propagation and --shard-partition first";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return failure();
    module.walk([](shard::ShardingOp op) {
      if (op->use_empty())
        op.erase();
    });
    SmallVector<shard::GridOp> grids;
    module.walk([&](shard::GridOp grid) { grids.push_back(grid); });
    for (shard::GridOp grid : grids)
      if (SymbolTable::symbolKnownUseEmpty(grid, SymbolTable::getNearestSymbolTable(grid)))
        grid.erase();
    return success();
  }

  ModuleOp module;
  SymbolTableCollection symbols;
  GridGroups groups;
};

struct ConvertShardToCommPass : public commsched::impl::ConvertShardToCommBase<ConvertShardToCommPass> {
  void runOnOperation() override {
    if (failed(ShardConversion(getOperation()).run()))
      signalPassFailure();
  }
};
} // namespace
