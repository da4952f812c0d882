//===- StorageLives.cpp - The end of a buffer's life ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Follows storage through views, collectives and waits.
//
//===------------------------------------------------------------------------------------------===//

#include "StorageLives.h"
#include "CommSched/Analysis/CertainWait.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

static bool leavesBlock(Value future) {
  return llvm::any_of(future.getUsers(), [](Operation *user) { return !isa<WaitOp>(user); });
}

/// Returns true if a wait in another block of the region runs on every path from the start.
static bool isWaitedForLater(CollectiveOpInterface start, PostDominanceInfo &dominance) {
  Region *region = start->getParentRegion();
  if (region->hasOneBlock())
    return false;
  return llvm::any_of(start.getCollectiveFuture().getUsers(), [&](Operation *user) {
    return user->getParentRegion() == region && dominance.postDominates(user->getBlock(), start->getBlock());
  });
}

void commsched::waitInEveryBlock(ModuleOp module) {
  SmallVector<CollectiveOpInterface> starts;
  PostDominanceInfo dominance;
  module.walk([&](CollectiveOpInterface start) {
    if (!leavesBlock(start.getCollectiveFuture()) && !findCertainWait(start) && !isWaitedForLater(start, dominance))
      starts.push_back(start);
  });
  for (CollectiveOpInterface start : starts) {
    SmallVector<Value> inFlight;
    for (Value value : llvm::concat<Value>(start.getCollectiveInputs(), start.getCollectiveDests()))
      if (isa<MemRefType>(value.getType()) && !llvm::is_contained(inFlight, value))
        inFlight.push_back(value);
    OpBuilder builder(start->getBlock()->getTerminator());
    Value future = start.getCollectiveFuture();
    WaitOp::create(builder, start.getLoc(), cast<FutureType>(future.getType()).getTypes(), future, inFlight);
  }
}

/// Returns true if the user may keep the address, so that uses which do not name the value come later: it has no effect
/// on the memory, but on something else, or its effects are unknown.
static bool keepsAddress(OpOperand &use) {
  Operation *user = use.getOwner();
  if (hasUnknownEffects(user))
    return true;
  auto effects = dyn_cast<MemoryEffectOpInterface>(user);
  if (!effects || isMemoryEffectFree(user))
    return isa<memref::ExtractAlignedPointerAsIndexOp>(user);
  SmallVector<MemoryEffects::EffectInstance> named;
  effects.getEffectsOnValue(use.get(), named);
  return named.empty();
}

/// Calls `visit` with each value that shares the storage of `use`'s value because of its user. Calls `useLater` with
/// each operation that needs the storage without using it: the waits of collectives that have it in flight, or null if
/// none of them is certain to run. Returns false if the storage may continue in ways that are not tracked.
static bool followStorage(OpOperand &use, llvm::function_ref<void(Value)> visit,
                          llvm::function_ref<void(Operation *)> useLater) {
  Operation *user = use.getOwner();
  if (auto start = dyn_cast<CollectiveOpInterface>(user)) {
    if (leavesBlock(start.getCollectiveFuture()))
      return false;
    useLater(findCertainWait(start));
    for (Operation *wait : start.getCollectiveFuture().getUsers()) {
      useLater(wait);
      for (auto [dest, result] : llvm::zip(start.getCollectiveDests(), wait->getResults()))
        if (dest == use.get())
          visit(result);
    }
    return true;
  }
  if (isa<WaitOp>(user)) // The wait keeps it.
    return true;
  if (auto storage = dyn_cast<StorageOpInterface>(user)) {
    for (OpResult result : user->getResults())
      if (storage.getAliasedOperand(result.getResultNumber()) == use.getOperandNumber())
        visit(result);
    return true;
  }
  if (keepsAddress(use))
    return false;
  bool isView = isa<ViewLikeOpInterface, memref::ExtractStridedMetadataOp>(user);
  for (Value result : user->getResults())
    if (isa<BaseMemRefType>(result.getType())) {
      if (!isView)
        return false;
      visit(result);
    }
  return !user->hasTrait<OpTrait::IsTerminator>() && !isa<CallOpInterface, RegionBranchOpInterface>(user);
}

Operation *commsched::findLastUse(memref::AllocOp alloc) {
  Block *block = alloc->getBlock();
  Operation *last = alloc;
  bool isLocal = true;
  SmallVector<Value> values = {alloc.getResult()};
  llvm::SmallDenseSet<Value> seen = {alloc.getResult()};
  auto useAt = [&](Operation *op) {
    Operation *ancestor = op ? block->findAncestorOpInBlock(*op) : nullptr;
    isLocal &= ancestor != nullptr;
    if (ancestor && last->isBeforeInBlock(ancestor))
      last = ancestor;
  };
  auto visit = [&](Value value) {
    if (seen.insert(value).second)
      values.push_back(value);
  };
  while (!values.empty() && isLocal)
    for (OpOperand &use : values.pop_back_val().getUses()) {
      useAt(use.getOwner());
      isLocal = isLocal && followStorage(use, visit, useAt);
    }
  return isLocal ? last : nullptr;
}

bool commsched::escapesInFlight(memref::AllocOp alloc) {
  SmallVector<Value> values = {alloc.getResult()};
  llvm::SmallDenseSet<Value> seen = {alloc.getResult()};
  auto visit = [&](Value value) {
    if (seen.insert(value).second)
      values.push_back(value);
  };
  while (!values.empty())
    for (OpOperand &use : values.pop_back_val().getUses())
      if (!followStorage(use, visit, [](Operation *) {}) && isa<CollectiveOpInterface>(use.getOwner()))
        return true;
  return false;
}
