//===- ValueNumbers.h - Values of a block that are certainly equal ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two repeatable operations have equal results if they are equal and read equal values. This is global value numbering
// within one block, with one addition: values are equal only if their storage was written as often.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_VALUENUMBERS_H
#define COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_VALUENUMBERS_H

#include "BlockValues.h"

namespace commsched {

/// What tells two `comm.compute` apart. Their name and types do not say all: scalar arguments of a framework's
/// operation are not in the program.
enum class OpaqueOps : uint8_t {
  /// None are equal, except for casts of the element type.
  Differ,
  /// They are equal if they are at one location, too: a clone keeps the location of its original.
  ByLocation,
};

/// The value numbers of one block.
class ValueNumbers {
public:
  /// O(operations + operands), as long as few operations have equal hashes.
  ValueNumbers(const BlockValues &values, OpaqueOps opaque);

  /// The first value of the block that is equal to `value`.
  mlir::Value leaderOf(mlir::Value value) const {
    auto known = leaders.find(value);
    return known == leaders.end() ? value : known->second;
  }
  /// The last operation before node `id` that is equal to it; kNone if there is none.
  NodeId previousOf(NodeId id) const { return previous[id]; }

private:
  bool mayBeEqual(mlir::Operation *op) const;
  llvm::hash_code hashOf(NodeId id) const;
  bool areEqual(NodeId a, NodeId b) const;

  const BlockValues &values;
  OpaqueOps opaque;
  llvm::DenseMap<mlir::Value, mlir::Value> leaders;
  /// Indexed by node.
  std::vector<NodeId> previous;
};

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_MEMORYPLAN_VALUENUMBERS_H
