//===- Communication.h - The communication in an operation and its regions --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the analysis: the communication of the operations nested in a node, and the collectives of the block that
// a future may denote.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_ANALYSIS_DEPENDENCE_COMMUNICATION_H
#define COMMSCHED_LIB_ANALYSIS_DEPENDENCE_COMMUNICATION_H

#include "CommSched/Analysis/Dependence.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace commsched::detail {

/// The communication of an operation and of its regions. Callees are not included.
struct Communication {
  /// O(nested operations).
  explicit Communication(mlir::Operation *op);

  /// The groups of the collectives and hybrids, each once.
  llvm::SmallVector<mlir::Attribute, 1> groups;
  /// The futures that have a wait inside.
  llvm::SmallVector<mlir::Value, 1> awaited;
  /// True if it sends or receives; true if it waits for a future or an event that may be a message.
  bool pointToPoint = false, waitsForMessage = false;

  bool any() const { return !groups.empty() || !awaited.empty(); }

private:
  void visit(mlir::Operation *op);
};

/// The collectives that a future may denote.
struct FutureOrigins {
  /// Nodes of the block that start one of them, in ascending order.
  llvm::SmallVector<NodeId, 2> starts;
  /// Time at which the data of those that are arguments of the function arrives, ns.
  Ns ready = 0;
};

/// Follows futures back through the regions and results of the operations of a block. A collective that is started in a
/// region is not an origin, because it has ended when the region's operation has. O(operations that pass the futures
/// on).
FutureOrigins findOrigins(llvm::ArrayRef<mlir::Value> futures, const BlockNodes &nodes);

} // namespace commsched::detail

#endif // COMMSCHED_LIB_ANALYSIS_DEPENDENCE_COMMUNICATION_H
