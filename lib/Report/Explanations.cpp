//===- Explanations.cpp - Reasons for exposed collectives, in words ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Explanations.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/Dialect/Comm/Effects.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

std::vector<StartOutcome> commsched::explain(const LoadedBlock &block, const Schedule &schedule, Bytes limit) {
  auto packOf = [&](NodeId start) {
    for (NodeId pred : block.problem.preds[start])
      if (isa<FsdpAllGatherCopyInOp, FsdpChunkCatOp>(block.nodes[pred]))
        return pred;
    return kNone;
  };
  return explain(block.problem, schedule, limit, packOf);
}

/// "mm_3" of an operation with a name as its location; else what it is and where: "'matmul' at model.mlir:7:12".
static std::string nameWithPlace(Operation *op) {
  auto compute = dyn_cast<ComputeOp>(op);
  StringRef kind = compute ? compute.getName() : op->getName().getStringRef();
  std::string place = locationText(op->getLoc());
  if (op->getLoc()->findInstanceOf<NameLoc>())
    return nameOperation(op);
  return ("'" + kind + "'" + (place.empty() ? "" : " at " + place)).str();
}

/// Returns true if a start, or the pack in front of it, uses a result of `op`.
static bool usesResult(Operation *start, Operation *op) {
  auto uses = [&](Operation *user) {
    return llvm::any_of(user->getOperands(), [&](Value operand) { return operand.getDefiningOp() == op; });
  };
  return uses(start) || llvm::any_of(start->getOperands(), [&](Value operand) {
           Operation *pack = operand.getDefiningOp();
           return isa_and_present<FsdpAllGatherCopyInOp, FsdpChunkCatOp>(pack) && uses(pack);
         });
}

/// The operation that a start, or its pack, may not pass for the only reason that nobody says what it touches; null if
/// the last one that it may not pass is another.
static Operation *findUnknownBefore(const LoadedBlock &block, NodeId start) {
  NodeId last = kNone;
  for (NodeId pred : block.problem.preds[start])
    last = std::max(last, pred);
  if (last != kNone && isa<FsdpAllGatherCopyInOp, FsdpChunkCatOp>(block.nodes[last]))
    return findUnknownBefore(block, last);
  Operation *op = last == kNone ? nullptr : block.nodes[last];
  return op && comm::hasUndeclaredEffects(op) && !usesResult(block.nodes[start], op) ? op : nullptr;
}

/// The operation that the wait of a start may not pass for the only reason that nobody says what it touches; null if an
/// operation that uses the wait's results comes first. O(operations between the wait and either).
static Operation *findUnknownBehind(Operation *start) {
  auto collective = dyn_cast<comm::CollectiveOpInterface>(start);
  if (!collective || !collective.getCollectiveFuture().hasOneUse())
    return nullptr;
  Operation *wait = *collective.getCollectiveFuture().user_begin();
  if (!isa<comm::WaitOp>(wait) || wait->getBlock() != start->getBlock())
    return nullptr;
  for (Operation *op = wait->getNextNode(); op; op = op->getNextNode()) {
    if (llvm::any_of(op->getOperands(), [&](Value operand) { return operand.getDefiningOp() == wait; }))
      return nullptr;
    if (comm::hasUndeclaredEffects(op))
      return op;
  }
  return nullptr;
}

std::string commsched::describe(const LoadedBlock &block, const Explanation &explanation, NodeId start) {
  Operation *unknown = nullptr;
  if (explanation.factor == LimitingFactor::DataDependence && start != kNone)
    unknown = findUnknownBefore(block, start);
  if (explanation.factor == LimitingFactor::StartsAtOnce && start != kNone)
    unknown = findUnknownBehind(block.nodes[start]);
  if (unknown)
    return "unknown effects of " + nameWithPlace(unknown) + "; '" + kNoEffectsAttrName.str() +
           "' says that it has none";
  return describe(explanation, [&](NodeId blocker) { return nameWithPlace(block.nodes[blocker]); });
}
