//===- CostTimesOfBlock.cpp - Costs of a block and their sources ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/Rounding.h"
#include "CommSched/Report/Report.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

namespace {

/// The rows of operations. Types are unique in a context, so their pointers tell them apart; the order of the rows does
/// not depend on pointers.
class OperationRows {
public:
  void add(Operation *op, CostKnowledge known, Ns cost) {
    std::vector<const void *> types;
    for (TypeRange range : {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())}) {
      for (Type type : range)
        types.push_back(type.getAsOpaquePointer());
      types.push_back(nullptr);
    }
    auto [at, isNew] = indices.try_emplace({getTableName(op), known, std::move(types)}, rows.size());
    if (isNew)
      rows.push_back(
          {getTableName(op).str(), getTableShapes(op), getTableShapes(TypeRange(op->getResultTypes())), 0, 0, known});
    OperationRow &row = rows[at->second];
    ++row.count;
    row.cost = addNs(row.cost, cost);
  }

  /// Those that take the most time, the longest first; of equal ones the first in the block.
  std::vector<OperationRow> take() {
    llvm::stable_sort(rows, [](const OperationRow &a, const OperationRow &b) { return a.cost > b.cost; });
    if (rows.size() > kMostOperationRows)
      rows.resize(kMostOperationRows);
    return std::move(rows);
  }

private:
  std::map<std::tuple<StringRef, CostKnowledge, std::vector<const void *>>, size_t> indices;
  std::vector<OperationRow> rows;
};

} // namespace

void commsched::measureOperations(Block &block, const OperationCosts &costs, BlockSnapshot &snapshot) {
  OperationRows rows;
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      continue;
    std::optional<CostEstimate> cost = costs.estimateOf(&op);
    if (!cost)
      continue;
    auto start = dyn_cast<CollectiveOpInterface>(op);
    CostKnowledge known =
        start ? knowledgeOf(cost->origin, costs.machine(), start.getCollectiveKind(), costs.shapeOf(start),
                            start.getGroupAttr().getValue(), getCollectiveBytes(start))
              : knowledgeOf(cost->origin);
    snapshot.costTimes.add(known, cost->ns);
    if (!start && cost->ns > 0)
      rows.add(&op, known, cost->ns);
  }
  snapshot.operations = rows.take();
}
