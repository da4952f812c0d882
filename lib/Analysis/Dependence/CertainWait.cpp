//===- CertainWait.cpp - Waits that are certain to run ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Climbs from each wait towards the block, as long as every path through the surrounding operation runs the wait.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/CertainWait.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// Returns true if control that reaches `op` enters a region of `waiting`. These regions wait as soon as they are
/// entered.
static bool entersOneOf(Operation *op, const llvm::SmallPtrSetImpl<Region *> &waiting) {
  auto branch = dyn_cast<RegionBranchOpInterface>(op);
  if (!branch)
    return false;
  SmallVector<RegionSuccessor> successors;
  branch.getSuccessorRegions(RegionBranchPoint::parent(), successors);
  return !successors.empty() && llvm::all_of(successors, [&](RegionSuccessor &successor) {
    return successor.getSuccessor() && waiting.contains(successor.getSuccessor());
  });
}

SmallVector<Operation *> commsched::findCertainWaits(Value future, Block &block) {
  SmallVector<Operation *> found;
  llvm::SmallPtrSet<Region *, 4> waiting;
  for (Operation *user : future.getUsers()) {
    if (!isa<WaitOp>(user))
      continue;
    // The entry block of a region runs whenever the region is entered.
    Operation *op = user;
    while (op->getBlock() != &block) {
      Operation *parent = op->getParentOp();
      if (!parent || !op->getBlock()->isEntryBlock() || !waiting.insert(op->getParentRegion()).second ||
          !entersOneOf(parent, waiting)) {
        op = nullptr;
        break;
      }
      op = parent;
    }
    if (op)
      found.push_back(op);
  }
  return found;
}

Operation *commsched::findCertainWait(CollectiveOpInterface start) {
  Operation *first = nullptr;
  for (Operation *op : findCertainWaits(start.getCollectiveFuture(), *start->getBlock()))
    if (!first || op->isBeforeInBlock(first))
      first = op;
  return first;
}
