//===- MemoryChoices.cpp - The values that one of several may be ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Follows a value back to those that it is chosen from. A choice that control flow takes behind a certain wait is
// complete, whatever happens on the other paths.
//
//===------------------------------------------------------------------------------------------===//

#include "MemoryChoices.h"
#include "CommSched/Analysis/CertainWait.h"
#include "CommSched/Analysis/Storage.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

MemoryChoices::MemoryChoices(Block &block) {
  for (Operation &op : block)
    op.walk([&](RegionBranchOpInterface branch) {
      RegionBranchInverseSuccessorMapping found;
      branch.getSuccessorInputOperandMapping(found);
      operands.insert(found.begin(), found.end());
    });
}

bool MemoryChoices::mayBeInUse(Value value, CollectiveOpInterface start,
                               llvm::function_ref<bool(Value)> mayOverlap) const {
  llvm::SmallPtrSet<Value, 8> visited;
  return visit(value, start, mayOverlap, visited);
}

/// Returns true if the future is complete whenever control reaches `op` within its block.
static bool isCompleteBefore(Operation *op, Value future) {
  return llvm::any_of(findCertainWaits(future, *op->getBlock()),
                      [&](Operation *wait) { return wait->isBeforeInBlock(op); });
}

bool MemoryChoices::visit(Value value, CollectiveOpInterface start, llvm::function_ref<bool(Value)> mayOverlap,
                          llvm::SmallPtrSetImpl<Value> &visited) const {
  if (!visited.insert(value).second || !mayOverlap(value))
    return false;
  if (auto select = value.getDefiningOp<SelectLikeOpInterface>())
    return visit(select.getTrueValue(), start, mayOverlap, visited) ||
           visit(select.getFalseValue(), start, mayOverlap, visited);
  if (auto passed = operands.find(value); passed != operands.end())
    return llvm::any_of(passed->second, [&](OpOperand *operand) {
      return !isCompleteBefore(operand->getOwner(), start.getCollectiveFuture()) &&
             visit(operand->get(), start, mayOverlap, visited);
    });
  auto result = dyn_cast<OpResult>(value);
  Value source = result && isa<BaseMemRefType>(value.getType()) ? getAliasedValue(result) : Value();
  return !source || visit(source, start, mayOverlap, visited);
}
