//===- ShardHalos.cpp - Exchange of halos between neighbours ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ShardHalos.h. Order and extents are those of upstream's conversion to the mpi dialect.
//
//===------------------------------------------------------------------------------------------===//

#include "ShardHalos.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using shard::GridAxis;

namespace {
/// A tensor whose halos are brought up to date.
class HaloUpdate {
public:
  HaloUpdate(ImplicitLocOpBuilder &builder, shard::UpdateHaloOp op, shard::GridOp grid, GridGroups &groups)
      : builder(builder), op(op), grid(grid), groups(groups), value(op.getDestination()) {}

  LogicalResult run() {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type || !type.hasStaticShape())
      return op.emitOpError() << "expected a tensor of a static shape, got " << value.getType();
    ArrayRef<shard::GridAxesAttr> splitAxes = op.getSplitAxes().getAxes();
    ArrayRef<int64_t> halos = op.getStaticHaloSizes();
    if (llvm::is_contained(halos, ShapedType::kDynamic))
      return op.emitOpError() << "expected the sizes of halos to be constants, got a value";
    offsets.assign(type.getRank(), 0);
    sizes.assign(type.getShape().begin(), type.getShape().end());
    struct Dimension {
      int64_t dim, low, high;
    };
    SmallVector<Dimension> split;
    for (auto [dim, axes] : llvm::enumerate(splitAxes)) {
      if (axes.empty())
        continue;
      if (axes.size() != 1)
        return op.emitOpError() << "expected dimension " << dim << " to be split along one axis, got " << axes.size();
      size_t at = 2 * split.size();
      if (at + 1 >= halos.size())
        return op.emitOpError() << "expected two sizes of halos per split dimension, got " << halos.size();
      split.push_back({static_cast<int64_t>(dim), halos[at], halos[at + 1]});
      offsets[dim] = halos[at];
      sizes[dim] -= halos[at] + halos[at + 1];
    }
    for (const Dimension &dimension : llvm::reverse(split)) {
      auto [dim, low, high] = dimension;
      int64_t core = sizes[dim];
      if (core < std::max(low, high))
        return op.emitOpError() << "expected dimension " << dim << " to have as many elements of its own as its halo, "
                                << "got " << core;
      GridAxis axis = splitAxes[dim][0];
      // The last rows go up and become the lower halo there; the first ones go down. Both are on their way together.
      Side lower{dim, axis, low, /*from=*/core, /*to=*/0, /*step=*/1}, upper{dim, axis, high, low, low + core, -1};
      Value below = start(lower), above = start(upper);
      finish(lower, below);
      finish(upper, above);
      offsets[dim] = 0;
      sizes[dim] = type.getDimSize(dim);
    }
    op->replaceAllUsesWith(ValueRange{value});
    op->erase();
    return success();
  }

private:
  SmallVector<OpFoldResult> attributes(ArrayRef<int64_t> values) {
    return llvm::map_to_vector(values, [&](int64_t number) -> OpFoldResult { return builder.getIndexAttr(number); });
  }

  /// One side of a dimension: `count` rows from row `from` on go to the neighbour at `step` along the axis, and what
  /// comes is put at row `to`.
  struct Side {
    int64_t dim;
    GridAxis axis;
    int64_t count, from, to, step;
  };

  Value slice(const Side &side, int64_t row) {
    SmallVector<int64_t> place(offsets), extent(sizes);
    place[side.dim] = row;
    extent[side.dim] = side.count;
    SmallVector<OpFoldResult> strides(place.size(), builder.getIndexAttr(1));
    return tensor::ExtractSliceOp::create(builder, value, attributes(place), attributes(extent), strides);
  }

  /// Starts to send a side. Returns the future; null if the halo has no rows.
  Value start(const Side &side) {
    if (side.count == 0)
      return {};
    Value sent = slice(side, side.from);
    auto future = FutureType::get(builder.getContext(), ArrayRef<Type>{sent.getType()});
    return PermuteOp::create(builder, future, sent, ValueRange(),
                             FlatSymbolRefAttr::get(groups.groupOf(grid, {side.axis})),
                             builder.getDenseI64ArrayAttr(pairsOfShift(grid, {side.axis}, 0, side.step, false)))
        .getFuture();
  }

  /// Puts what comes into the halo. A rank at the border keeps what it has.
  void finish(const Side &side, Value future) {
    if (!future)
      return;
    Value kept = slice(side, side.to);
    Value received = WaitOp::create(builder, TypeRange{kept.getType()}, future, ValueRange())->getResult(0);
    Value border = arith::ConstantIndexOp::create(builder, side.step > 0 ? 0 : grid.getShape()[side.axis] - 1);
    Value isBorder =
        arith::CmpIOp::create(builder, arith::CmpIPredicate::eq, placeOfRank(builder, grid, {side.axis}), border);
    received = arith::SelectOp::create(builder, isBorder, kept, received);
    SmallVector<int64_t> place(offsets), extent(sizes);
    place[side.dim] = side.to;
    extent[side.dim] = side.count;
    SmallVector<OpFoldResult> strides(place.size(), builder.getIndexAttr(1));
    value = tensor::InsertSliceOp::create(builder, received, value, attributes(place), attributes(extent), strides);
  }

  ImplicitLocOpBuilder &builder;
  shard::UpdateHaloOp op;
  shard::GridOp grid;
  GridGroups &groups;
  Value value;
  /// Indexed by dimension: what a dimension sends of the others.
  SmallVector<int64_t> offsets, sizes;
};
} // namespace

LogicalResult commsched::convertUpdateHalo(ImplicitLocOpBuilder &builder, shard::UpdateHaloOp op, shard::GridOp grid,
                                           GridGroups &groups) {
  return HaloUpdate(builder, op, grid, groups).run();
}
