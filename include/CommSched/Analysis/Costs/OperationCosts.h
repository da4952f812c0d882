//===- OperationCosts.h - What an operation costs on a machine --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The cost of any operation of any dialect: what its `comm.cost` says, what its interfaces tell, what the machine's
// tables have under its name, and a roofline from its operands and results where nothing else is known.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_OPERATIONCOSTS_H
#define COMMSCHED_ANALYSIS_COSTS_OPERATIONCOSTS_H

#include "CommSched/Analysis/Costs/CostInterface.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Machine/CostModel.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched {

/// Where the cost of an operation comes from.
enum class OpCostSource : uint8_t {
  /// A time in `comm.cost`, or the embedder's estimate.
  Measured,
  /// Flops or bytes in `comm.cost`, or told by an interface.
  Roofline,
  /// A collective's curve.
  Collective,
  /// The machine's table of operations.
  Table,
  /// A view, a constant, an operation on scalars alone: nothing runs.
  Free,
  /// Something is not known: only the sizes of operands and results, or a trip count (taken as 1).
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

/// What is nested in an operation: in its regions, or in the function that it calls.
struct NestedWork {
  /// How long the longest of its blocks takes, all iterations together, ns.
  Ns time = 0;
  /// The highest peak of its blocks, bytes.
  Bytes peak = 0;
  /// The groups of its collectives, each once, callees included.
  llvm::SmallVector<mlir::Attribute, 2> groups;
  /// Whether something in it sends or receives.
  bool pointToPoint = false;
};

/// Costs of the operations of one module on one machine. What an operation costs is learnt, in this order, from: a time
/// in `comm.cost`; the embedder's estimate (Environment.h); a collective's curve; the machine's table, by name and
/// operand types; flops or bytes in `comm.cost`; CostOpInterface; the machine's table, by name alone; the work in its
/// regions; the sizes of operands and results.
///
/// Deterministic. Not thread-safe, and only for as long as the module does not change: it remembers the shapes of
/// groups and the work of functions.
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

  /// The type of the elements that a collective moves. O(1).
  ElementType elementOf(comm::CollectiveOpInterface start) const;

  /// The work of an operation's regions together: loops times their trip count (1 where it is not known), of branches
  /// the longest. Kernels inside are in `time`; collectives inside overlap with them as their order allows. O(nested
  /// operations).
  OpWork workOfRegions(mlir::Operation *op) const;

  /// The work of one execution of a call: of its callee's body. Unknown where the callee is external or recursive.
  OpWork workOfCall(mlir::CallOpInterface call) const;

  /// The body of the function that a call runs; null for an external function and for one that is not known.
  mlir::Region *bodyOf(mlir::CallOpInterface call) const;

  /// What loading a function's body told, for the loader: by body; none while it is being found out.
  llvm::DenseMap<mlir::Region *, std::optional<NestedWork>> &nestedWork() const { return bodies; }

  /// The cost of a collective like `start` over any number of bytes.
  std::shared_ptr<const CollectiveCurve> curveOf(comm::CollectiveOpInterface start) const;

private:
  /// What `op` does by itself, without its `comm.cost`.
  OpWork learn(mlir::Operation *op, OpCostSource &source) const;
  /// What `op` does, and where that is known from.
  OpWork resolve(mlir::Operation *op, OpCostSource &source) const;
  /// The embedder's estimate, ns, cut to what this model can hold.
  std::optional<Ns> askEmbedder(mlir::Operation *op) const;
  /// The time of work that is an operation of its own.
  Ns timeOf(const OpWork &work) const;
  OpWork workOfRegion(mlir::Region &region) const;

  const CostModel &costs;
  mutable mlir::SymbolTableCollection symbols;
  mutable llvm::DenseMap<mlir::Operation *, GroupShape> shapes;
  /// Of a function: the work of its body; none while it is being found out.
  mutable llvm::DenseMap<mlir::Operation *, std::optional<OpWork>> callees;
  mutable llvm::DenseMap<mlir::Region *, std::optional<NestedWork>> bodies;
};

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_COSTS_OPERATIONCOSTS_H
