//===- GridGroups.cpp - Groups and ranks of a grid of processes -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See GridGroups.h.
//
//===------------------------------------------------------------------------------------------===//

#include "GridGroups.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using shard::GridAxis;

/// The number of ranks that differ by one along an axis.
static int64_t strideOfAxis(shard::GridOp grid, GridAxis axis) {
  int64_t stride = 1;
  for (int64_t size : grid.getShape().drop_front(axis + 1))
    stride *= size;
  return stride;
}

SmallVector<int64_t> commsched::sizesOfAxes(shard::GridOp grid, ArrayRef<GridAxis> axes) {
  return llvm::map_to_vector(axes, [&](GridAxis axis) { return grid.getShape()[axis]; });
}

int64_t commsched::linearIndexOf(ArrayRef<int64_t> index, ArrayRef<int64_t> sizes) {
  int64_t linear = 0;
  for (auto [position, size] : llvm::zip_equal(index, sizes))
    linear = linear * size + position;
  return linear;
}

GroupOp GridGroups::groupOf(shard::GridOp grid, ArrayRef<GridAxis> axes) {
  MLIRContext *context = grid.getContext();
  GroupOp &group = groups[{grid, DenseI16ArrayAttr::get(context, axes)}];
  if (group)
    return group;
  ArrayRef<int64_t> shape = grid.getShape();
  SmallVector<int64_t> order;
  int64_t size = 1, ranks = 1;
  for (auto [axis, length] : llvm::enumerate(shape)) {
    ranks *= length;
    if (!llvm::is_contained(axes, static_cast<GridAxis>(axis)))
      order.push_back(static_cast<int64_t>(axis));
  }
  std::string name = grid.getSymName().str();
  for (GridAxis axis : axes) {
    order.push_back(axis);
    size *= shape[axis];
    name += "_" + std::to_string(axis);
  }
  OpBuilder builder(grid);
  builder.setInsertionPointAfter(grid);
  group = GroupOp::create(builder, grid.getLoc(), name, /*sym_visibility=*/nullptr,
                          IotaAttr::get(context, ranks / size, size, shape, order));
  // The table renames the group if the module has the name already.
  Operation *table = SymbolTable::getNearestSymbolTable(grid);
  group->remove();
  symbols.getSymbolTable(table).insert(group, std::next(Block::iterator(grid)));
  return group;
}

SmallVector<Value> commsched::coordinatesOfRank(ImplicitLocOpBuilder &builder, shard::GridOp grid,
                                                ArrayRef<GridAxis> axes) {
  Value rank = RankOp::create(builder, builder.getIndexType());
  SmallVector<Value> coordinates;
  for (GridAxis axis : axes) {
    Value coordinate = rank;
    if (int64_t stride = strideOfAxis(grid, axis); stride != 1)
      coordinate =
          arith::DivUIOp::create(builder, coordinate, arith::ConstantIndexOp::create(builder, stride).getResult());
    if (axis != 0)
      coordinate = arith::RemUIOp::create(builder, coordinate,
                                          arith::ConstantIndexOp::create(builder, grid.getShape()[axis]).getResult());
    coordinates.push_back(coordinate);
  }
  return coordinates;
}

Value commsched::placeOfRank(ImplicitLocOpBuilder &builder, shard::GridOp grid, ArrayRef<GridAxis> axes) {
  Value place;
  for (auto [coordinate, size] : llvm::zip_equal(coordinatesOfRank(builder, grid, axes), sizesOfAxes(grid, axes))) {
    if (!place) {
      place = coordinate;
      continue;
    }
    Value length = arith::ConstantIndexOp::create(builder, size);
    place = arith::AddIOp::create(builder, arith::MulIOp::create(builder, place, length).getResult(), coordinate);
  }
  return place;
}

SmallVector<int64_t> commsched::pairsOfShift(shard::GridOp grid, ArrayRef<GridAxis> axes, size_t along, int64_t offset,
                                             bool rotate) {
  SmallVector<int64_t> sizes = sizesOfAxes(grid, axes);
  int64_t ranks = 1, inner = 1;
  for (auto [position, size] : llvm::enumerate(sizes)) {
    ranks *= size;
    inner *= position > along ? size : 1;
  }
  int64_t length = sizes[along];
  SmallVector<int64_t> pairs;
  for (int64_t place = 0; place < ranks; ++place) {
    int64_t from = place / inner % length, to = from + offset;
    if (rotate)
      to = ((to % length) + length) % length;
    if (to >= 0 && to < length)
      llvm::append_values(pairs, place, place + (to - from) * inner);
  }
  return pairs;
}
