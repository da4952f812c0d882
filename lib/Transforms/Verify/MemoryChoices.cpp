//===- MemoryChoices.cpp - The values that one of several may be ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Follows a value back to those that it is chosen from. A choice that control flow takes behind the wait is complete,
// whatever happens on the other paths.
//
//===------------------------------------------------------------------------------------------===//

#include "MemoryChoices.h"
#include "CommSched/Analysis/Storage.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

MemoryChoices::MemoryChoices(Block &block) : block(block) {
  for (Operation &op : block) {
    op.walk([&](RegionBranchOpInterface branch) { addOperands(branch); });
    op.walk([&](Block *nested) { addOperands(*nested); });
  }
}

void MemoryChoices::addOperands(RegionBranchOpInterface branch) {
  RegionBranchInverseSuccessorMapping found;
  branch.getSuccessorInputOperandMapping(found);
  operands.insert(found.begin(), found.end());
}

void MemoryChoices::addOperands(Block &nested) {
  for (BlockArgument argument : nested.isEntryBlock() ? ArrayRef<BlockArgument>() : nested.getArguments()) {
    SmallVector<OpOperand *> passed;
    for (auto edge = nested.pred_begin(); edge != nested.pred_end(); ++edge) {
      auto branch = dyn_cast<BranchOpInterface>((*edge)->getTerminator());
      if (!branch)
        return;
      SuccessorOperands values = branch.getSuccessorOperands(edge.getSuccessorIndex());
      if (values.isOperandProduced(argument.getArgNumber()))
        return;
      passed.push_back(&branch->getOpOperand(values.getOperandIndex(argument.getArgNumber())));
    }
    operands[argument] = std::move(passed);
  }
}

/// The value of which a memref is a view; null for other values.
static Value getViewed(Value value) {
  auto result = dyn_cast<OpResult>(value);
  return result && isa<BaseMemRefType>(value.getType()) ? getAliasedValue(result) : Value();
}

bool MemoryChoices::mayBeInUse(Value value, llvm::function_ref<bool(Value)> mayOverlap,
                               llvm::function_ref<bool(Operation *)> isComplete) {
  SmallVector<Value> worklist = {value};
  llvm::SmallPtrSet<Value, 8> visited;
  while (!worklist.empty()) {
    Value choice = worklist.pop_back_val();
    if (!visited.insert(choice).second || !mayOverlap(choice))
      continue;
    if (Value source = getViewed(choice)) {
      worklist.push_back(source);
      continue;
    }
    SmallVector<OpOperand *> passed = getPassed(choice);
    if (passed.empty())
      return true;
    for (OpOperand *operand : passed)
      if (!isComplete(operand->getOwner()))
        worklist.push_back(operand->get());
  }
  return false;
}

SmallVector<OpOperand *> MemoryChoices::getPassed(Value value) {
  while (Value source = getViewed(value))
    value = source;
  if (!isa<BaseMemRefType>(value.getType()))
    return {};
  auto select = value.getDefiningOp<SelectLikeOpInterface>();
  if (!select) {
    auto branch = value.getDefiningOp<RegionBranchOpInterface>();
    if (branch && !operands.contains(value) && !isa<LoopLikeOpInterface>(*branch) && !branch.hasLoop() &&
        !block.findAncestorOpInBlock(*branch))
      addOperands(branch);
    return operands.lookup(value);
  }
  SmallVector<OpOperand *> passed;
  for (OpOperand &operand : select->getOpOperands())
    if (operand.get() == select.getTrueValue() || operand.get() == select.getFalseValue())
      passed.push_back(&operand);
  return passed;
}

bool MemoryChoices::isChosen(Value value) { return !getPassed(value).empty(); }

SmallVector<Value> MemoryChoices::findChoices(Value value) {
  constexpr size_t kMostChoices = 64;
  SmallVector<Value> choices, worklist = {value};
  llvm::SmallPtrSet<Value, 8> visited;
  while (!worklist.empty()) {
    Value choice = worklist.pop_back_val();
    if (!visited.insert(choice).second)
      continue;
    SmallVector<OpOperand *> passed = getPassed(choice);
    if (passed.empty())
      choices.push_back(choice);
    for (OpOperand *operand : passed)
      worklist.push_back(operand->get());
    if (choices.size() > kMostChoices)
      return {};
  }
  return choices;
}
