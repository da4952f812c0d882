//===- OperationCosts.h - What an operation costs on a machine --------------------*- C++ -*-===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// The cost of any operation of any dialect: what its `comm.cost` says, what its interfaces tell, what the machine's
// tables have under its name, and a roofline from its operands and results where nothing else is known.
//
//===-----------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_OPERATIONCOSTS_H
#define COMMSCHED_ANALYSIS_OPERATIONCOSTS_H

#include "CommSched/Analysis/CostModel.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched {

/// Where the cost of an operation comes from.
enum class OpCostSource : uint8_t {
  /// A time in `comm.cost`.
  Measured,
  /// Flops or bytes in `comm.cost`, or told by an interface.
  Roofline,
  /// A collective's curve.
  Collective,
  /// The machine's table of operations.
  Table,
  /// A view, a constant, an operation on scalars alone: nothing runs.
  Free,
  /// Nothing is known but the sizes of operands and results.
  Guess,
};

/// The cost of one operation.
struct OpCost {
  Ns time = 0;
  /// Bytes that are live only while it runs.
  Bytes workspace = 0;
  OpCostSource source = OpCostSource::Guess;
  bool known() const { return source != OpCostSource::Guess; }
};

/// The element type of a shaped or scalar type as profiles tell them apart.
ElementType elementTypeOf(mlir::Type type);

/// Costs of the operations of one module on one machine. Deterministic. Not thread-safe: it remembers the shapes of
/// groups; one per thread.
class OperationCosts {
public:
  /// Keeps a reference to `costs`.
  explicit OperationCosts(const CostModel &costs) : costs(costs) {}

  const MachineModel &machine() const { return costs.machine(); }
  const CostModel &model() const { return costs; }

  /// The cost of `op`, regions included. At most kMaxNs. O(operands), or O(nested operations).
  OpCost costOf(mlir::Operation *op) const;

  /// Where the ranks of a collective's group are. One rank where the symbol does not resolve. O(1) after the first
  /// question for a group.
  GroupShape shapeOf(comm::CollectiveOpInterface start) const;

  /// The cost of a collective like `start` over any number of bytes.
  std::shared_ptr<const CollectiveCurve> curveOf(comm::CollectiveOpInterface start) const;

private:
  OpCost costOfCollective(comm::CollectiveOpInterface start) const;
  OpCost costOfCompute(mlir::Operation *op) const;

  const CostModel &costs;
  mutable mlir::SymbolTableCollection symbols;
  mutable llvm::DenseMap<mlir::Operation *, GroupShape> shapes;
};

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_OPERATIONCOSTS_H
