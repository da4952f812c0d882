//===- GridGroups.h - Groups and ranks of a grid of processes ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A `shard.grid` numbers its processes row by row, and these numbers are the ranks. A list of its axes splits the ranks
// into groups: the ranks of one group differ in these axes only. The axes are ordered from outer to inner, which gives
// each rank its place in the group (upstream's documentation of the shard dialect, "Device groups").
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_SHARD_GRIDGROUPS_H
#define COMMSCHED_LIB_CONVERSION_SHARD_GRIDGROUPS_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched {

/// The groups of a module's grids. All shapes of grids are static.
class GridGroups {
public:
  /// The `comm.group` of the axes of a grid. It is made next to the grid when it is first asked for. O(1) after that.
  comm::GroupOp groupOf(mlir::shard::GridOp grid, llvm::ArrayRef<mlir::shard::GridAxis> axes);

private:
  mlir::SymbolTableCollection symbols;
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, comm::GroupOp> groups;
};

/// The sizes of axes of a grid, in the order of the list.
llvm::SmallVector<int64_t> sizesOfAxes(mlir::shard::GridOp grid, llvm::ArrayRef<mlir::shard::GridAxis> axes);

/// The number of an entry of an array with these sizes that is stored row by row. Has as many indices as sizes.
int64_t linearIndexOf(llvm::ArrayRef<int64_t> index, llvm::ArrayRef<int64_t> sizes);

/// This rank's coordinate along each axis, as index values.
llvm::SmallVector<mlir::Value> coordinatesOfRank(mlir::ImplicitLocOpBuilder &builder, mlir::shard::GridOp grid,
                                                 llvm::ArrayRef<mlir::shard::GridAxis> axes);

/// This rank's place in its group of the axes, as an index value.
mlir::Value placeOfRank(mlir::ImplicitLocOpBuilder &builder, mlir::shard::GridOp grid,
                        llvm::ArrayRef<mlir::shard::GridAxis> axes);

/// The source-target pairs, as places of a group of `axes`, that move data by `offset` along the axis at position
/// `along` of the list. With `rotate`, data that leaves at one end comes in at the other.
llvm::SmallVector<int64_t> pairsOfShift(mlir::shard::GridOp grid, llvm::ArrayRef<mlir::shard::GridAxis> axes,
                                        size_t along, int64_t offset, bool rotate);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_SHARD_GRIDGROUPS_H
