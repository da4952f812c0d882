//===- Dependence.h - What may not be reordered -----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The edges between the operations of a block: SSA uses (those of nested regions included), memory effects on shared
// storage, buffers in flight, unknown effects as barriers, point-to-point order, pinned operations, units, and the
// order of collectives that the user asks for.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_DEPENDENCE_H
#define COMMSCHED_ANALYSIS_DEPENDENCE_H

#include "CommSched/Analysis/Storage.h"
#include "CommSched/Scheduling/Model/Problem.h"
#include "CommSched/Support/CollectiveOrder.h"

namespace commsched {

/// The operations of a block that are scheduled: all but the terminator.
class BlockNodes {
public:
  explicit BlockNodes(mlir::Block &block);

  mlir::Block &getBlock() const { return *block; }
  NodeId size() const { return static_cast<NodeId>(ops.size()); }
  mlir::Operation *operator[](NodeId id) const { return ops[id]; }
  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops; }

  /// The node that is `op` or contains it; kNone for operations outside the block and for its terminator.
  NodeId find(mlir::Operation *op) const;

private:
  mlir::Block *block;
  std::vector<mlir::Operation *> ops;
  llvm::DenseMap<mlir::Operation *, NodeId> ids;
};

/// The units of a block: operations that stay next to each other.
struct BlockUnits {
  /// Indexed by node: its unit, numbered by place, or kNone.
  std::vector<int32_t> of;
  /// Pairs of units, the second of which comes after the first (`comm.after_unit`).
  std::vector<std::pair<int32_t, int32_t>> turns;
};

/// Reads `comm.unit` and `comm.after_unit`. A run of operations with one number is a unit; where a pass has put
/// something in between, there are two. O(operations).
BlockUnits findUnits(const BlockNodes &nodes);

/// Whether two operations of a block must keep their order, as predecessor lists in program order (ascending, without
/// duplicates). O(operations + operands + edges): hazards are tracked per storage class, never by pairs.
IndexLists computeDependences(const BlockNodes &nodes, const StorageMap &storage, CollectiveOrder order);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_DEPENDENCE_H
