//===- StorageOrigins.cpp - Values that loops and branches pass on ----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "StorageOrigins.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "StorageSources.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

bool StorageOrigins::isPassed(Value value) {
  if (!isa<TensorType, FutureType>(value.getType()))
    return false;
  if (auto result = dyn_cast<OpResult>(value))
    return isa<TensorType>(value.getType()) && isa<LoopLikeOpInterface>(result.getOwner());
  Block *block = cast<BlockArgument>(value).getOwner();
  return !block->isEntryBlock() || !isa_and_present<FunctionOpInterface>(block->getParentOp());
}

/// What no branch names may be anything that the operation is given or that its blocks pass on.
void StorageOrigins::addUnnamed(Operation *op, SmallVectorImpl<Value> &values) {
  llvm::copy_if(op->getOperands(), std::back_inserter(values), hasStorage);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      if (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>())
        llvm::copy_if(block.back().getOperands(), std::back_inserter(values), hasStorage);
}

SmallVector<Value, 4> StorageOrigins::stepBack(Value passed) {
  SmallVector<Value, 4> values;
  auto argument = dyn_cast<BlockArgument>(passed);
  Operation *op = argument ? argument.getOwner()->getParentOp() : passed.getDefiningOp();
  if (argument && !argument.getOwner()->isEntryBlock()) {
    Block *block = argument.getOwner();
    for (auto pred = block->pred_begin(); pred != block->pred_end(); ++pred) {
      auto branch = dyn_cast<BranchOpInterface>((*pred)->getTerminator());
      Value operand = branch ? branch.getSuccessorOperands(pred.getSuccessorIndex())[argument.getArgNumber()] : Value();
      if (operand)
        values.push_back(operand);
    }
    return values;
  }
  if (auto branch = dyn_cast_if_present<RegionBranchOpInterface>(op)) {
    auto [known, isNew] = mappings.try_emplace(op);
    if (isNew)
      branch.getSuccessorInputOperandMapping(known->second);
    auto named = known->second.find(passed);
    if (named != known->second.end()) {
      for (OpOperand *operand : named->second)
        values.push_back(operand->get());
      return values;
    }
  }
  if (op)
    addUnnamed(op, values);
  return values;
}

SmallVector<Value, 4> StorageOrigins::find(Value passed) {
  SmallVector<Value, 4> origins;
  llvm::SetVector<Value> reached;
  reached.insert(passed);
  for (size_t index = 0; index < reached.size(); ++index) {
    Value value = reached[index];
    if (isPassed(value)) {
      for (Value source : stepBack(value))
        reached.insert(source);
      continue;
    }
    StorageSources sources = getCapturedSources(value);
    if (sources.fresh || sources.unknown || sources.values.empty())
      origins.push_back(value);
    for (Value source : sources.values)
      reached.insert(source);
  }
  return origins;
}
