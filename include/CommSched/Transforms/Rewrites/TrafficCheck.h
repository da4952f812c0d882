//===- TrafficCheck.h - That a rewrite still sends every byte ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rewrites merge collectives, cut their buffers and move them, but what goes over each group, and how it is reduced, is
// the program's. Every rewrite counts before and after it, in release builds too.
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

/// What goes over the wire in one place.
struct Traffic {
  int64_t collectives = 0;
  Bytes bytes = 0;
  /// Inputs of dynamic size: they count as 0 bytes.
  int64_t unsized = 0;
};

/// The traffic of a piece of IR, by kind, group, reduction and (of reductions) element type.
class TrafficCheck {
public:
  /// Counts the collectives in `root`, itself not included. O(nested operations).
  explicit TrafficCheck(mlir::Operation *root) { count(root); }
  /// Counts the collectives of a block, nested ones included.
  explicit TrafficCheck(mlir::Block &block) {
    for (mlir::Operation &op : block)
      count(&op);
  }

  /// All keys together.
  Traffic total() const;

  /// Reports an error at `loc` for each key of which the bytes, or the inputs of dynamic size, are not those of
  /// `after`; the number of collectives may differ. `pass` is to blame.
  llvm::LogicalResult compare(const TrafficCheck &after, mlir::Location loc, llvm::StringRef pass) const;

private:
  void count(mlir::Operation *root);

  /// Keys in the order of the IR.
  llvm::MapVector<mlir::Attribute, Traffic> traffic;
};

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_REWRITES_TRAFFICCHECK_H
