//===- Dependence.h - Dependences between the operations of a block ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The edges come from SSA uses (including those in nested regions), memory effects on shared storage, buffers in
// flight, unknown effects as barriers, anchors of streams, point-to-point order, pinned operations, units, and the
// order of collectives that the user requests.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_DEPENDENCE_H
#define COMMSCHED_ANALYSIS_DEPENDENCE_H

#include "CommSched/Analysis/Storage.h"
#include "CommSched/Scheduling/Problem/Problem.h"
#include "CommSched/Support/CollectiveOrder.h"

namespace commsched {

/// The schedulable operations of a block: all except the terminator.
class BlockNodes {
public:
  explicit BlockNodes(mlir::Block &block);

  mlir::Block &getBlock() const { return *block; }
  NodeId size() const { return static_cast<NodeId>(ops.size()); }
  mlir::Operation *operator[](NodeId id) const { return ops[id]; }
  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops; }

  /// The node that is `op` or contains it; kNone for operations outside of the block and for its terminator.
  NodeId find(mlir::Operation *op) const;

private:
  mlir::Block *block;
  std::vector<mlir::Operation *> ops;
  llvm::DenseMap<mlir::Operation *, NodeId> ids;
};

/// The units of a block. The operations of a unit stay adjacent.
struct BlockUnits {
  /// Indexed by node: its unit, or kNone. Units are numbered by position.
  std::vector<int32_t> of;
  /// Pairs of units: the second comes after the first (`comm.after_unit`).
  std::vector<std::pair<int32_t, int32_t>> turns;
};

/// Reads `comm.unit` and `comm.after_unit`. A run of consecutive operations with one number is a unit. If a pass has
/// put an operation in between, there are two units. O(operations).
BlockUnits findUnits(const BlockNodes &nodes);

/// On a `memref.view` in a block with several streams: comm-plan-buffers has made it.
inline constexpr llvm::StringLiteral kPlannedAttrName = "planned";

/// The pairs of operations that must keep their order, as predecessor lists in program order (ascending, without
/// duplicates). Hazards are tracked per storage class, not by pairs. `besideMessages`: operations outside of the block
/// send or receive. O(operations + operands + edges).
IndexLists computeDependences(const BlockNodes &nodes, const StorageMap &storage, CollectiveOrder order,
                              bool besideMessages = false);

/// Returns true if an operation in `root` sends or receives, so that ranks may come to other operations one after the
/// other. O(operations).
bool sendsOrReceives(mlir::Operation *root);

/// Why an operation comes after another one. If there are several reasons, the first of this list.
enum class DependenceReason : uint8_t {
  /// It uses a result.
  Data,
  /// Both access the same storage, a buffer in flight included, and one of them writes.
  Memory,
  /// One of them has effects that nobody knows, or is a comm.barrier.
  Effects,
  /// One of them is an anchor of the other one's stream.
  Stream,
  /// The order of sends and receives.
  Messages,
  /// The order of collectives that the user asks for.
  Collectives,
  /// `comm.pinned`.
  Pinned,
  /// `comm.unit` and `comm.after_unit`.
  Unit,
};

/// Indexed by storage class: the nodes that may write it, ascending. The operation that allocates a class without
/// writing an operand is none of them. Operations with unknown effects write whatever such an operation can reach.
/// Classes of unknown origin (StorageClass::unknownOrigin) share the writers of all of them. O(operations + operands +
/// entries).
IndexLists computeWriters(const BlockNodes &nodes, const StorageMap &storage);

/// "data", "memory", ..., as certificates say it.
llvm::StringRef stringify(DependenceReason reason);

/// For each edge of `edges`, row by row: why it is there. `edges` has the edges of computeDependences(), or some of
/// them, with the same `besideMessages`. O(operations + operands + edges).
std::vector<DependenceReason> explainDependences(const BlockNodes &nodes, const StorageMap &storage,
                                                 CollectiveOrder order, const IndexLists &edges,
                                                 bool besideMessages = false);

/// The part of them that concerns data: uses, accesses to shared storage, and unknown effects. If the two operations
/// are on different streams, something has to make the second stream wait for the first (Streams.h). The buffers of a
/// plan count as different storage: the plan itself takes care of those that share bytes. O(operations + operands +
/// edges).
IndexLists computeHazards(const BlockNodes &nodes, const StorageMap &storage);

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_DEPENDENCE_H
