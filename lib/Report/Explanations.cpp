//===- Explanations.cpp - Why compute waits for a collective of a block -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Explanations.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Dialect/Comm/CommDialect.h"

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
  return explain(block.problem, schedule, limit, block.slowDown, packOf);
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

std::string commsched::describe(const LoadedBlock &block, const Explanation &explanation) {
  return describe(explanation, [&](NodeId blocker) { return nameWithPlace(block.nodes[blocker]); });
}
