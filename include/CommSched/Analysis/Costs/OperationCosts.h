//===- OperationCosts.h - Cost of an operation on a machine -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The cost of any operation of any dialect. It comes from `comm.cost`, from the operation's interfaces, from the
// machine's tables by name, or else from a roofline over operands and results.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_ANALYSIS_COSTS_OPERATIONCOSTS_H
#define COMMSCHED_ANALYSIS_COSTS_OPERATIONCOSTS_H

#include "CommSched/Analysis/Costs/CostInterface.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Machine/ContentionModel.h"
#include "CommSched/Machine/CostModel.h"
#include "CommSched/Support/Demand.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "llvm/ADT/DenseMap.h"

namespace commsched {

/// The source of an operation's cost.
enum class OpCostSource : uint8_t {
  /// A time in `comm.cost`, or the embedder's estimate.
  Measured,
  /// Flops or bytes, from `comm.cost` or from an interface.
  Roofline,
  /// A collective's curve.
  Collective,
  /// The machine's table of operations.
  Table,
  /// Zero: a view, a constant, or an operation on scalars alone.
  Free,
  /// Incomplete: only the sizes of operands and results are known, or a trip count is unknown and taken as 1.
  Guess,
};

/// The cost of one operation.
struct OpCost {
  Ns time = 0;
  /// Bytes that are live only while the operation runs.
  Bytes workspace = 0;
  OpCostSource source = OpCostSource::Guess;
  bool known() const { return source != OpCostSource::Guess; }
};

/// The work inside an operation: in its regions, or in its callee.
struct NestedWork {
  /// Time of the longest block, over all iterations, ns.
  Ns time = 0;
  /// Highest peak of the blocks, bytes.
  Bytes peak = 0;
  /// Groups of the collectives, each once, callees included.
  llvm::SmallVector<mlir::Attribute, 2> groups;
  /// True if an operation inside sends or receives.
  bool pointToPoint = false;
  /// What the longest block needs on average.
  Demand demand;
};

/// The name under which a profile's table lists an operation: its own, or of a `comm.compute` the name in quotes.
llvm::StringRef getTableName(mlir::Operation *op);
/// The types of an operation's tensors and memrefs as a profile's table spells them: "4x8xf32".
std::vector<std::string> getTableShapes(mlir::Operation *op);
/// The same of any types.
std::vector<std::string> getTableShapes(mlir::TypeRange types);

/// Costs of the operations of one module on one machine. The first of these sources that applies gives the cost: a time
/// in `comm.cost`; the embedder's estimate (Environment.h); a collective's curve; the machine's table, by name,
/// operand types and form (OperationForm.h), or by the first two; flops or bytes in `comm.cost`; CostOpInterface; the
/// machine's table, by name alone; the work in the regions; the sizes of operands and results.
///
/// Deterministic. Not thread-safe. It remembers the shapes of groups and the work of functions, so it is valid only
/// while the module does not change.
class OperationCosts {
public:
  /// Keeps a reference to `costs`.
  explicit OperationCosts(const CostModel &costs) : costs(costs) {}

  const MachineModel &machine() const { return costs.machine(); }
  const CostModel &model() const { return costs; }
  const ContentionModel &contention() const { return costs.contention(); }

  /// The cost of `op`, regions included. At most kMaxNs. O(operands), or O(nested operations).
  OpCost costOf(mlir::Operation *op) const;

  /// The time of `op` by its work alone, ns: what costOf() would answer without a time in `comm.cost`, the embedder's
  /// estimate, and entries of the machine's table for its operands. The ratio of two such times carries over a measured
  /// time from one shape to another. O(operands), or O(nested operations).
  Ns modelledTimeOf(mlir::Operation *op) const;

  /// The cost of `op` with its error bar and where it comes from; none if it costs nothing by its nature (a view, a
  /// wait, a collective of one rank). An operation with regions has no error bar of its own: load its blocks in other
  /// scenarios. O(operands), or O(nested operations).
  std::optional<CostEstimate> estimateOf(mlir::Operation *op) const;

  /// The placement of the ranks of a collective's group. One rank if the symbol does not resolve. O(1) after the first
  /// query for a group.
  GroupShape shapeOf(comm::CollectiveOpInterface start) const;

  /// Two groups have equal keys exactly if the machine carries out their collectives one after the other (see
  /// LaneSharing). `from` is where the symbol is looked up. O(1) after the first query for a group.
  mlir::Attribute laneKeyOf(mlir::FlatSymbolRefAttr group, mlir::Operation *from) const;

  /// Whether a start is a one-shot sum that the machine's runtime carries out as one. NCCL, and so a machine with a
  /// model of NCCL, carries it out as any other sum. O(1).
  bool isOneShot(mlir::Operation *start) const;

  /// The element type that a collective moves. O(1).
  ElementType elementOf(comm::CollectiveOpInterface start) const;

  /// The work of an operation's regions together. A loop counts its trip count (1 if unknown); of several branches the
  /// longest counts. Kernels inside are part of `time`, and collectives inside overlap with them as their order allows.
  /// O(nested operations).
  OpWork workOfRegions(mlir::Operation *op) const;

  /// The work of the region of `op` that takes longest. Known only if all regions are. O(nested operations).
  OpWork workOfLongestRegion(mlir::Operation *op) const;

  /// The work of one execution of a call: the body of its callee. Unknown if the callee is external or recursive.
  OpWork workOfCall(mlir::CallOpInterface call) const;

  /// The body of the function that a call runs; null if the function is external or unknown.
  mlir::Region *bodyOf(mlir::CallOpInterface call) const;

  /// Results of loading function bodies, for the loader. Indexed by body; none while the loading is in progress.
  llvm::DenseMap<mlir::Region *, std::optional<NestedWork>> &nestedWork() const { return bodies; }

  /// The cost of a collective like `start` as a function of its bytes, if the library chooses how to carry it out.
  std::shared_ptr<const CollectiveCurve> curveOf(comm::CollectiveOpInterface start) const;
  /// The same if it is carried out by a variant of its kind.
  VariantCurve curveOf(comm::CollectiveOpInterface start, const CollectiveVariant &variant) const;
  /// The machine's variant that `comm.variant` names; null without the attribute, and if the machine has none of that
  /// name, in which case the cost is a guess.
  const CollectiveVariant *variantOf(comm::CollectiveOpInterface start) const;

  /// The entry of the machine's table for the name, the operand types and the form of `op`, or else for the first two,
  /// or else that of a trace (findTraced); null if there is none.
  const OpTime *findEntry(mlir::Operation *op) const;

private:
  /// The entry for a `comm.compute` of PyTorch's operator `name` that a trace gave: for the name without the overload,
  /// and for operands as in `shapes` or, as of an operator that is called with `out`, for operands and results. Types
  /// without dimensions do not count. Null if there is none, and for operations that are free.
  const OpTime *findTraced(mlir::Operation *op, llvm::StringRef name, std::vector<std::string> shapes) const;
  /// The work of `op` itself, without its `comm.cost`.
  OpWork learn(mlir::Operation *op, OpCostSource &source) const;
  /// The work of `op` itself with the numbers of its `comm.cost` other than the time.
  OpWork learnWithAttribute(mlir::Operation *op, OpCostSource &source) const;
  /// The work of `op` with the collective that it fuses with its own work (`comm.hybrid`). Both run at the same time,
  /// so the longer one counts. Unknown if the operation does not tell which collective that is.
  OpWork withFusedCollective(mlir::Operation *op, OpWork work) const;
  /// The placement of the ranks of a group; one rank for null.
  GroupShape shapeOf(comm::GroupOp group) const;
  /// The time of a collective by its curve.
  OpWork workOfCollective(comm::CollectiveOpInterface start) const;
  /// The work of `op`, and its source.
  OpWork resolve(mlir::Operation *op, OpCostSource &source) const;
  /// The time of `op` whose work is `work`.
  Ns timeOf(mlir::Operation *op, const OpWork &work) const;
  /// The embedder's estimate, ns, limited to what this model can represent.
  std::optional<Ns> askEmbedder(mlir::Operation *op) const;
  /// The time of work that forms a kernel of its own.
  Ns timeOf(const OpWork &work) const;
  OpWork workOfRegion(mlir::Region &region) const;

  const CostModel &costs;
  mutable mlir::SymbolTableCollection symbols;
  mutable llvm::DenseMap<mlir::Operation *, GroupShape> shapes;
  /// Indexed by operation: its form, if the machine's table asks for it.
  mutable llvm::DenseMap<mlir::Operation *, std::string> forms;
  /// Indexed by function: the work of its body; none while it is being computed.
  mutable llvm::DenseMap<mlir::Operation *, std::optional<OpWork>> callees;
  mutable llvm::DenseMap<mlir::Region *, std::optional<NestedWork>> bodies;
};

} // namespace commsched

#endif // COMMSCHED_ANALYSIS_COSTS_OPERATIONCOSTS_H
