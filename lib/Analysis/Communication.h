//===- Communication.h - The communication in an operation and its regions --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the analysis: what the operations nested in a node communicate, and which collectives of the block a
// future may stand for.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_COMMUNICATION_H
#define COMMSCHED_LIB_ANALYSIS_COMMUNICATION_H

#include "CommSched/Analysis/Dependence.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace commsched::detail {

/// The communication that an operation does, itself or anywhere in its regions. Callees are not looked at.
struct Communication {
  /// O(nested operations).
  explicit Communication(mlir::Operation *op);

  /// The groups of its collectives and hybrids, each once.
  llvm::SmallVector<mlir::Attribute, 1> groups;
  /// The futures that it waits for.
  llvm::SmallVector<mlir::Value, 1> awaited;
  /// Whether it sends or receives, and whether it waits for what may be a message.
  bool pointToPoint = false, waitsForMessage = false;

  bool any() const { return !groups.empty() || !awaited.empty(); }

private:
  void visit(mlir::Operation *op);
};

/// The collectives that a future may stand for.
struct FutureOrigins {
  /// Nodes of the block that start one of them, ascending.
  llvm::SmallVector<NodeId, 2> starts;
  /// When the ones that came in as arguments of the function are there, ns.
  Ns ready = 0;
};

/// Follows futures back through the regions and results of the operations of a block. A collective that is started in a
/// region is no origin: it has ended when the region's operation has. O(operations that pass the futures on).
FutureOrigins findOrigins(llvm::ArrayRef<mlir::Value> futures, const BlockNodes &nodes);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_COMMUNICATION_H
