//===- ShardHalos.h - Exchange of halos between neighbours ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A shard may have a halo: copies of the neighbours' data around its own. `shard.update_halo` brings it up to date.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_LIB_CONVERSION_SHARD_SHARDHALOS_H
#define COMMSCHED_LIB_CONVERSION_SHARD_SHARDHALOS_H

#include "GridGroups.h"

namespace commsched {

/// Replaces an update of the halos of a tensor by permutes between neighbours, one dimension after the other, from the
/// last to the first. A dimension also sends the halos of those before it, so that corners come along. A rank at the
/// border of the grid keeps what it has there. Fails with a diagnostic if a size of a halo or of a split dimension is
/// not static, or if a dimension is split along several axes.
llvm::LogicalResult convertUpdateHalo(mlir::ImplicitLocOpBuilder &builder, mlir::shard::UpdateHaloOp op,
                                      mlir::shard::GridOp grid, GridGroups &groups);

} // namespace commsched

#endif // COMMSCHED_LIB_CONVERSION_SHARD_SHARDHALOS_H
