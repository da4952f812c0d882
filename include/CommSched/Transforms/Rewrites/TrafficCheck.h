//===- TrafficCheck.h - Check that a rewrite still sends every byte ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rewrites merge collectives, cut their buffers and move them. They must not change how many bytes move over each
// group, or how these are reduced. Every rewrite counts before and after it, in release builds too.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_REWRITES_TRAFFICCHECK_H
#define COMMSCHED_TRANSFORMS_REWRITES_TRAFFICCHECK_H

#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Support/Units.h"
#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/MapVector.h"

namespace commsched {

/// The traffic of one kind on one group.
struct Traffic {
  int64_t collectives = 0;
  Bytes bytes = 0;
  /// Number of inputs of dynamic size. They count as 0 bytes.
  int64_t unsized = 0;
};

/// The traffic of a piece of IR, by kind, group, reduction and (for reductions) element type.
class TrafficCheck {
public:
  /// Counts the collectives in `root`, excluding `root`. O(nested operations).
  explicit TrafficCheck(mlir::Operation *root) { count(root); }
  /// Counts the collectives of a block, nested ones included.
  explicit TrafficCheck(mlir::Block &block) {
    for (mlir::Operation &op : block)
      count(&op);
  }

  /// The sum over all keys.
  Traffic total() const;

  /// Reports an error at `loc`, in the name of `pass`, for each key whose bytes or number of inputs of dynamic size
  /// differ from those of `after`. The number of collectives may differ.
  llvm::LogicalResult compare(const TrafficCheck &after, mlir::Location loc, llvm::StringRef pass) const;

private:
  void count(mlir::Operation *root);

  /// Keys in the order of the IR.
  llvm::MapVector<mlir::Attribute, Traffic> traffic;
};

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_TRAFFICCHECK_H
