//===- CarriedTensors.cpp - Loop-carried tensors that may be copied ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A name is old if it is visible where the loop begins, or comes from such a name past the loop. A name is new if it
// comes from what the loop carries. With a copy, writes under new names do not reach the old ones, and the other way
// round.
//
//===------------------------------------------------------------------------------------------===//

#include "CarriedTensors.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace commsched;

static bool isLoop(Operation *op) {
  auto branch = dyn_cast<RegionBranchOpInterface>(op);
  return isa<LoopLikeOpInterface>(op) || (branch && branch.hasLoop());
}

SmallVector<Value> commsched::getCarried(Operation *op) {
  SmallVector<Value> carried;
  auto branch = dyn_cast<RegionBranchOpInterface>(op);
  if (!branch || !isLoop(op))
    return carried;
  RegionBranchSuccessorMapping mapping;
  branch.getSuccessorOperandInputMapping(mapping);
  for (auto &[operand, inputs] : mapping)
    llvm::append_range(carried, inputs);
  return carried;
}

/// Returns true if `first` is certainly before `second` whenever both run for one definition of `name`. An operation
/// uses its operands before what is in its regions runs.
static bool isBefore(Operation *first, Operation *second, Value name) {
  Block *block = second->getBlock();
  while (block && !block->findAncestorOpInBlock(*first))
    block = block->getParentOp() ? block->getParentOp()->getBlock() : nullptr;
  if (!block)
    return false;
  Operation *ancestor = block->findAncestorOpInBlock(*first), *around = block->findAncestorOpInBlock(*second);
  if (ancestor == around ? first != around || first == second : !ancestor->isBeforeInBlock(around))
    return false;
  // A loop around both, in which `name` stays the same, runs `first` once more.
  while (!block->getParent()->isAncestor(name.getParentRegion())) {
    Operation *parent = block->getParentOp();
    if (!parent || isLoop(parent) || !parent->getBlock())
      return false;
    block = parent->getBlock();
  }
  return true;
}

/// The names among `all` that come from `first` by operations and control flow, `first` included; not through `except`
/// and what it is in.
static llvm::DenseSet<Value> follow(ArrayRef<Value> first, const llvm::DenseSet<Value> &all, Operation *except) {
  llvm::DenseSet<Value> found(first.begin(), first.end());
  SmallVector<Value> worklist(first);
  auto push = [&](ValueRange values) {
    for (Value value : values)
      if (all.contains(value) && found.insert(value).second)
        worklist.push_back(value);
  };
  auto pushRegions = [&](Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        push(block.getArguments());
  };
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      if (except && user->isAncestor(except))
        continue;
      push(user->getResults());
      pushRegions(user);
      if (Operation *parent = user->getParentOp(); user->hasTrait<OpTrait::IsTerminator>() && parent) {
        push(parent->getResults());
        pushRegions(parent);
      }
    }
  return found;
}

static bool isVisibleBefore(Value name, Operation *loop) {
  Operation *def = name.getDefiningOp();
  return name.getParentRegion()->isAncestor(loop->getParentRegion()) &&
         (!def || (!def->isAncestor(loop) && isBefore(def, loop, name)));
}

bool commsched::isCopySeen(Operation *loop, ArrayRef<Value> names, bool isCallers) {
  llvm::DenseSet<Value> all(names.begin(), names.end());
  SmallVector<Value> before = llvm::filter_to_vector(names, [&](Value name) { return isVisibleBefore(name, loop); });
  SmallVector<Value> carried = llvm::filter_to_vector(getCarried(loop), [&](Value name) { return all.contains(name); });
  llvm::DenseSet<Value> oldNames = follow(before, all, loop), newNames = follow(carried, all, nullptr);
  SmallVector<OpOperand *> oldUses, newUses;
  int given = 0;
  for (Value name : names)
    for (OpOperand &use : name.getUses()) {
      bool isGiven = use.getOwner() == loop;
      given += isGiven && oldNames.contains(name);
      if (oldNames.contains(name) && !isGiven && !isBefore(use.getOwner(), loop, name))
        oldUses.push_back(&use);
      if (newNames.contains(name))
        newUses.push_back(&use);
    }
  // Two values that it carries may have been one storage, or not.
  if (llvm::any_of(newUses, [](OpOperand *use) { return writesTensor(*use); }) &&
      (given > 1 || isCallers || !oldUses.empty()))
    return true;
  return llvm::any_of(oldUses, [&](OpOperand *write) {
    return writesTensor(*write) && llvm::any_of(newUses, [&](OpOperand *use) {
             return !isBefore(use->getOwner(), write->getOwner(), use->get());
           });
  });
}
