//===- ReorderingRemarks.cpp - What a reordering pass says ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//
//
// Wording only; what there is to say is in the records.
//
//===-----------------------------------------------------------------------------------------===//

#include "ReorderingRemarks.h"
#include "CommSched/Analysis/Report.h"
#include "CommSched/Scheduling/Memory.h"
#include "CommSched/Scheduling/Timeline.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace commsched;

static std::string nameOf(const LoadedBlock &block, NodeId id) {
  Operation *op = block.nodes[id];
  if (auto compute = dyn_cast<comm::ComputeOp>(op))
    return ("'" + compute.getName() + "'").str();
  return ("'" + op->getName().getStringRef() + "'").str();
}

std::string commsched::describeLimit(const LoadedBlock &block, const CollectiveRecord &record) {
  std::string text = stringify(record.factor).str();
  switch (record.factor) {
  case LimitingFactor::DataDependence:
  case LimitingFactor::CollectiveOrder:
    return text + " on " + nameOf(block, record.blocker);
  case LimitingFactor::PeakMemory:
    return text + ": passing " + nameOf(block, record.blocker) + " would reach " + formatBytes(record.reached) +
           ", limit " + formatBytes(record.limit);
  case LimitingFactor::ExposesOthers:
    return text + ": passing " + nameOf(block, record.blocker) + " would expose " + formatNs(record.reached) + " more";
  case LimitingFactor::GroupLimit:
    return text + ": " + std::to_string(record.limit) + " operations";
  case LimitingFactor::MoveLimit:
    return text + ": " + std::to_string(record.limit) + " collectives";
  case LimitingFactor::Makespan:
    return text + ": would be " + formatNs(record.reached) + ", is " + formatNs(record.limit);
  default:
    return text;
  }
}

static std::string operations(int32_t count) {
  return std::to_string(count) + (count == 1 ? " operation" : " operations");
}

static void emitRecord(StringRef passName, const LoadedBlock &block, const CollectiveRecord &record) {
  Location loc = block.nodes[record.node]->getLoc();
  auto options = [&](StringRef name) { return remark::RemarkOpts::name(name).category(passName); };
  std::string exposed = "exposed " + formatNs(record.finalExposed);
  if (record.improvement() != 0)
    exposed += ", was " + formatNs(record.initialExposed);
  std::string limit = describeLimit(block, record);
  std::string name = nameOf(block, record.node);
  if (record.moves > 0) {
    std::string text = name + " passed " + operations(record.moves);
    if (record.grouped > 0)
      text += " and took " + operations(record.grouped) + " along";
    remark::passed(loc, options("moved")) << StringRef(text + "; " + exposed + "; stopped by " + limit);
  } else if (record.finalExposed > 0) {
    remark::missed(loc, options("stayed")) << StringRef(name + " stayed; " + exposed + "; " + limit);
  } else {
    remark::analysis(loc, options("hidden")) << StringRef(name + " stayed; " + exposed + "; " + limit);
  }
}

void commsched::emitRemarks(StringRef passName, const LoadedBlock &block, const ReorderResult &result) {
  Operation *parent = block.nodes.getBlock().getParentOp();
  if (!parent->getContext()->getRemarkEngine())
    return;
  for (const CollectiveRecord &record : result.records)
    emitRecord(passName, block, record);
  const Problem &problem = block.problem;
  Order given = identityOrder(problem);
  Timeline before = simulate(problem, given), after = simulate(problem, result.order);
  std::string text = "makespan " + formatNs(after.makespan) + ", was " + formatNs(before.makespan) + "; exposed " +
                     formatNs(after.exposedTotal) + ", was " + formatNs(before.exposedTotal) + "; peak " +
                     formatBytes(peakOf(problem, result.order)) + ", was " + formatBytes(peakOf(problem, given));
  if (result.peakLimit >= 0)
    text += ", limit " + formatBytes(result.peakLimit);
  remark::analysis(parent->getLoc(), remark::RemarkOpts::name("block").category(passName)) << StringRef(text);
}
