//===- RegionAliases.cpp - Values that a region operation passes around -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One walk joins each value with those whose storage it may have: the source of a view, the destination of a
// collective, what a region is entered or left with. The rules for results are those of StorageSources.h.
//
//===------------------------------------------------------------------------------------------===//

#include "RegionAliases.h"
#include "CommSched/Analysis/Storage.h"
#include "StorageSources.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;
using namespace commsched::detail;

/// A future that something else than a wait uses holds all that is in flight with it.
static bool isPassedOn(Value future) { return !llvm::all_of(future.getUsers(), llvm::IsaPred<WaitOp>); }

RegionAliases::RegionAliases(Operation *op) : op(op) {
  op->walk([&](Operation *inner) { visit(inner); });
  for (Value value : unknownValues)
    unknown.insert(classOf(value));
  for (auto [number, value] : llvm::enumerate(values))
    if (isOutside(value))
      outside[classes.findLeader(static_cast<unsigned>(number))].push_back(value);
}

bool RegionAliases::isOutside(Value value) const {
  return value.getDefiningOp() != op && !op->isAncestor(value.getParentBlock()->getParentOp());
}

ValueRange RegionAliases::outsideOf(unsigned number) const {
  auto found = outside.find(number);
  return found == outside.end() ? ValueRange() : ValueRange(found->second);
}

unsigned RegionAliases::numberOf(Value value) {
  auto [known, isNew] = numbers.try_emplace(value, static_cast<unsigned>(values.size()));
  if (isNew) {
    values.push_back(value);
    classes.grow(static_cast<unsigned>(values.size()));
  }
  return known->second;
}

void RegionAliases::join(Value a, Value b) {
  if (hasStorage(a) && hasStorage(b))
    classes.join(numberOf(a), numberOf(b));
}

void RegionAliases::joinAll(ValueRange all) {
  Value first;
  for (Value value : all) {
    if (!hasStorage(value))
      continue;
    first = first ? first : value;
    join(first, value);
  }
}

/// Returns true if storage enters or leaves the regions of an operation other than by captured values.
static bool passesStorage(Operation *op) {
  return llvm::any_of(op->getRegions(), [](Region &region) {
    return llvm::any_of(region, [](Block &block) {
      return llvm::any_of(block.getArguments(), hasStorage) ||
             (!block.empty() && block.back().hasTrait<OpTrait::IsTerminator>() &&
              llvm::any_of(block.back().getOperands(), hasStorage));
    });
  });
}

void RegionAliases::visitRegions(Operation *owner) {
  if (!passesStorage(owner)) {
    for (OpResult result : owner->getResults())
      visitResult(result);
    return;
  }
  llvm::DenseSet<Value> named;
  auto branch = dyn_cast<RegionBranchOpInterface>(owner);
  if (branch) {
    RegionBranchSuccessorMapping mapping;
    branch.getSuccessorOperandInputMapping(mapping);
    for (auto &[operand, inputs] : mapping)
      for (Value input : inputs) {
        join(operand->get(), input);
        named.insert(input);
      }
  }
  // What no branch names may be anything that the operation is given or that its blocks pass on.
  SmallVector<Value> unnamed;
  for (Region &region : owner->getRegions())
    for (Block &block : region) {
      llvm::copy_if(block.getArguments(), std::back_inserter(unnamed),
                    [&](Value argument) { return hasStorage(argument) && !named.contains(argument); });
      if ((!branch || !region.hasOneBlock()) && !block.empty())
        llvm::append_range(unnamed, block.back().getOperands());
    }
  if (!branch)
    llvm::append_range(unnamed, owner->getResults());
  if (unnamed.empty())
    return;
  llvm::append_range(unnamed, owner->getOperands());
  joinAll(unnamed);
}

void RegionAliases::visitResult(OpResult result) {
  if (!hasStorage(result))
    return;
  StorageSources sources = getStorageSources(result);
  for (Value source : sources.values)
    join(source, result);
  if (sources.unknown) {
    numberOf(result);
    unknownValues.push_back(result);
  }
}

void RegionAliases::visitWait(WaitOp wait) {
  Value future = wait.getFuture();
  auto start = future.getDefiningOp<CollectiveOpInterface>();
  WaitOp first = firstWaits.try_emplace(future, wait).first->second;
  for (OpResult result : wait->getResults()) {
    if (start && !start.getCollectiveDests().empty())
      join(start.getCollectiveDests()[result.getResultNumber()], result);
    else if (!start || isOutside(future) || isPassedOn(future))
      join(future, result);
    else
      join(first->getResult(result.getResultNumber()), result);
  }
}

void RegionAliases::visit(Operation *op) {
  // The order of the numbers is that of the program.
  for (Value operand : op->getOperands())
    if (hasStorage(operand))
      numberOf(operand);
  if (op->getNumRegions() > 0)
    return visitRegions(op);
  if (auto start = dyn_cast<CollectiveOpInterface>(op)) {
    Value future = start.getCollectiveFuture();
    if (isPassedOn(future))
      for (Value operand : op->getOperands())
        join(operand, future);
    return;
  }
  if (auto wait = dyn_cast<WaitOp>(op))
    return visitWait(wait);
  if (auto copyIn = dyn_cast<FsdpAllGatherCopyInOp>(op))
    return join(copyIn.getBuffer(), copyIn.getSlice());
  for (OpResult result : op->getResults())
    visitResult(result);
}
