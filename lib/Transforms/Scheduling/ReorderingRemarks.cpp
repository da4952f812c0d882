//===- ReorderingRemarks.cpp - What a reordering pass says ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Wording only; what there is to say is in the records.
//
//===------------------------------------------------------------------------------------------===//

#include "ReorderingRemarks.h"
#include "CommSched/Report/Explanations.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Support/Format.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace commsched;

static std::string nameOf(const LoadedBlock &block, NodeId id) {
  Operation *op = block.nodes[id];
  if (auto compute = dyn_cast<comm::ComputeOp>(op))
    return ("'" + compute.getName() + "'").str();
  return ("'" + op->getName().getStringRef() + "'").str();
}

/// "1 operation", "2 operations".
static std::string count(int64_t number, StringRef thing) {
  return std::to_string(number) + " " + thing.str() + (number == 1 ? "" : "s");
}

/// "'comm.all_gather' passed 2 operations and took 1 operation along".
static std::string describeMove(const LoadedBlock &block, const CollectiveRecord &record) {
  std::string text = nameOf(block, record.node);
  if (record.moves == 0)
    text += " stayed";
  else
    text += (record.moves > 0 ? " passed " : " gave way to ") + count(std::abs(record.moves), "operation");
  if (record.factor == LimitingFactor::Grouped)
    return text + " and stands with " + count(record.grouped - 1, "operation");
  if (record.moves != 0 && record.grouped > 0)
    text += " and took " + count(record.grouped, "operation") + " along";
  return text;
}

static void emitRecord(StringRef passName, const LoadedBlock &block, const CollectiveRecord &record) {
  Location loc = block.nodes[record.node]->getLoc();
  auto options = [&](StringRef name) { return remark::RemarkOpts::name(name).category(passName); };
  std::string text = describeMove(block, record) + "; exposed " + formatNs(record.finalExposed);
  if (record.improvement() != 0)
    text += ", was " + formatNs(record.initialExposed);
  if (record.factor != LimitingFactor::None && record.factor != LimitingFactor::Grouped)
    text += (record.moves > 0 ? "; stopped by " : "; ") + describe(block, record);
  if (record.moves > 0)
    remark::passed(loc, options("moved")) << StringRef(text);
  else if (record.finalExposed > 0)
    remark::missed(loc, options("stayed")) << StringRef(text);
  else
    remark::analysis(loc, options("hidden")) << StringRef(text);
}

void commsched::emitRemarks(StringRef passName, const LoadedBlock &block, const Schedule &result) {
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
  if (result.limit >= 0)
    text += ", limit " + formatBytes(result.limit);
  remark::analysis(parent->getLoc(), remark::RemarkOpts::name("block").category(passName)) << StringRef(text);
}
