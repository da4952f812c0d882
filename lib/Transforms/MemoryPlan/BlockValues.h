//===- BlockValues.h - Values of a block that can be made again -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// To make a value again is to repeat everything that has its result in the value's storage: an operation and the views
// of its results, a start with its wait, or an empty tensor with the operations that fill it. This file finds the
// values for which that gives equal contents: all of it is pure and deterministic, and nothing else writes the storage.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_BLOCKVALUES_H
#define COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_BLOCKVALUES_H

#include "CommSched/Analysis/Dependence.h"
#include "CommSched/Analysis/Storage.h"

namespace commsched {

/// Whether an operation gives equal results for equal contents of its operands, does nothing else, and may be repeated
/// anywhere in its block. This excludes operations that are pinned, which may draw random numbers, and those that have
/// a place on a stream or in a unit.
bool isRepeatable(mlir::Operation *op);

/// The storage that one operation allocates, with everything that is about it alone.
struct RepeatableValue {
  /// The node that allocates it.
  NodeId base = kNone;
  llvm::SmallVector<StorageId, 1> classes;
  /// The nodes that have results in it, and all nodes that use it (these included); ascending.
  llvm::SmallVector<NodeId, 4> members, users;
};

/// The values of one block that can be made again. Views that are only made behind a reader need not be repeatable.
class BlockValues {
public:
  /// O(operations + operands), times the logarithm of that.
  explicit BlockValues(mlir::Block &block);

  const BlockNodes &nodes() const { return blockNodes; }
  /// Ascending by base.
  llvm::ArrayRef<RepeatableValue> values() const { return list; }
  /// The index in values() of the one that `value` is in; kNone if there is none.
  int32_t indexOf(mlir::Value value) const;
  Bytes bytesOf(StorageId id) const { return storage.classes()[id].bytes; }
  /// The number of times that the storage of `value` may have been written before node `at`.
  int64_t versionOf(mlir::Value value, NodeId at) const;
  /// Whether a repetition at node `to` of a node `from` that reads `value` reads the same, and a further reader changes
  /// nothing about the value's storage.
  bool canReadAgain(mlir::Value value, NodeId from, NodeId to) const;

private:
  void collect();
  llvm::SmallVector<StorageId, 2> madeIn(mlir::Value result) const;
  void noteDestinations(mlir::Operation *op);
  bool isPlain(const RepeatableValue &value) const;

  BlockNodes blockNodes;
  StorageMap storage;
  /// Indexed by storage class.
  IndexLists writers;
  std::vector<llvm::SmallVector<NodeId, 4>> membersOf, usersOf;
  /// Indexed by storage class: whether some value may have other storage as well or is seen in nested regions, and
  /// whether it is the destination of an operation that copies it because of its other uses.
  std::vector<bool> isMixed, isCopiedDestination;
  std::vector<RepeatableValue> list;
  /// Indexed by storage class: the index in `list`, or kNone.
  std::vector<int32_t> ofClass;
};

/// The values that an operation reads: its operands, and what its regions use of the block.
llvm::SmallVector<mlir::Value> valuesReadBy(mlir::Operation *op);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_BLOCKVALUES_H
