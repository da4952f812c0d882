//===- ReorderingPass.cpp - Base class of the reordering passes -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "ReorderingPass.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Report/Explanations.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Support/Format.h"
#include "JournalRecords.h"

using namespace mlir;
using namespace commsched;

/// Gathers units that the rule has torn apart.
static void settleUnits(const BlockWork &work, Schedule &schedule) {
  const Problem &problem = work.loaded.problem;
  Order given = identityOrder(problem);
  Ns slowest = std::max(makespanOf(problem, given), makespanOf(problem, schedule.order));
  auto accept = [&](ArrayRef<NodeId> order) {
    return schedule.limit >= kUnlimited ||
           (peakOf(problem, order) <= std::max(schedule.limit, work.peak) && makespanOf(problem, order) <= slowest);
  };
  std::optional<Order> settled = keepTogether(problem, schedule.order, accept);
  if (settled == schedule.order)
    return;
  schedule.order = settled ? std::move(*settled) : given;
  std::vector<int32_t> place(problem.size());
  for (auto [at, id] : llvm::enumerate(schedule.order))
    place[id] = static_cast<int32_t>(at);
  for (CollectiveRecord &record : schedule.records) {
    int32_t moved = place[record.node] - record.node;
    record.moves = problem.nodes[record.node].kind == NodeKind::Wait ? moved : -moved;
    if (!settled) {
      record.grouped = 0;
      record.factor = LimitingFactor::Units;
    }
  }
  measureExposure(problem, given, schedule);
}

void commsched::settleReordering(BlockWork &work) {
  const Problem &problem = work.loaded.problem;
  if (hasUnits(problem))
    settleUnits(work, work.schedule);
}

//===-----------------------------------------------------------------------------------------===//
// Remarks
//===-----------------------------------------------------------------------------------------===//

static std::string nameOf(const LoadedBlock &block, NodeId id) {
  Operation *op = block.nodes[id];
  if (auto compute = dyn_cast<comm::ComputeOp>(op))
    return ("'" + compute.getName() + "'").str();
  return ("'" + op->getName().getStringRef() + "'").str();
}

/// "'comm.all_gather' passed 2 operations and took 1 operation along".
static std::string describeMove(const LoadedBlock &block, const CollectiveRecord &record) {
  std::string text = nameOf(block, record.node);
  if (record.moves == 0)
    text += " stayed";
  else
    text += (record.moves > 0 ? " passed " : " gave way to ") + formatCount(std::abs(record.moves), "operation");
  if (record.factor == LimitingFactor::Grouped)
    return text + " and stands with " + formatCount(record.grouped - 1, "operation");
  if (record.moves != 0 && record.grouped > 0)
    text += " and took " + formatCount(record.grouped, "operation") + " along";
  return text;
}

/// One remark. `reason`: why compute waits for the collective, in words; empty if it does not, or if nobody knows.
static void sayRecord(StringRef passName, const LoadedBlock &block, const CollectiveRecord &record, StringRef reason,
                      BlockVoice &voice) {
  std::string text = describeMove(block, record) + "; exposed " + formatNs(record.finalExposed);
  if (record.improvement() != 0)
    text += ", was " + formatNs(record.initialExposed);
  if (record.finalExposed > 0 && !reason.empty())
    text += ": " + reason.str();
  bool limited = record.factor != LimitingFactor::None && record.factor != LimitingFactor::Grouped;
  std::string factor = limited ? describe(block, record) : kNoLimitingFactor.str();
  if (limited)
    text += (record.moves > 0 ? "; stopped by " : "; ") + factor;
  Operation *op = block.nodes[record.node];
  voice.say(
      [loc = op->getLoc(), kind = remarkKind(op), category = passName.str(), text = std::move(text), factor, record] {
        bool moved = record.moves > 0, exposed = record.finalExposed > 0;
        auto options = [&](StringRef name) { return remark::RemarkOpts::name(name).category(category); };
        auto remark = moved     ? remark::passed(loc, options("moved"))
                      : exposed ? remark::missed(loc, options("stayed"))
                                : remark::analysis(loc, options("hidden"));
        remark << remark::metric("ExposedNsBefore", record.initialExposed)
               << remark::metric("ExposedNsAfter", record.finalExposed) << remark::metric("Moves", record.moves);
        describeRemark(remark, kind, factor, text);
      });
}

static void sayTotals(StringRef passName, const BlockWork &work, BlockVoice &voice) {
  const Problem &problem = work.loaded.problem;
  const Schedule &schedule = work.schedule;
  Timeline before = simulate(problem, identityOrder(problem)), after = simulate(problem, schedule.order);
  Bytes peak = peakOf(problem, schedule.order);
  std::string text = "makespan " + formatNs(after.makespan) + ", was " + formatNs(before.makespan) + "; exposed " +
                     formatNs(after.exposedTotal) + ", was " + formatNs(before.exposedTotal) + "; peak " +
                     formatBytes(peak) + ", was " + formatBytes(work.peak);
  if (schedule.limit < kUnlimited)
    text += ", limit " + formatBytes(schedule.limit);
  struct Totals {
    Ns makespan, exposed;
    Bytes peak;
  };
  voice.say([loc = work.loaded.nodes.getBlock().getParentOp()->getLoc(), category = passName.str(),
             text = std::move(text), before = Totals{before.makespan, before.exposedTotal, work.peak},
             after = Totals{after.makespan, after.exposedTotal, peak}] {
    auto remark = remark::analysis(loc, remark::RemarkOpts::name("block").category(category));
    remark << remark::metric("MakespanNsBefore", before.makespan) << remark::metric("MakespanNsAfter", after.makespan)
           << remark::metric("ExposedNsBefore", before.exposed) << remark::metric("ExposedNsAfter", after.exposed)
           << remark::metric("PeakBytesBefore", before.peak) << remark::metric("PeakBytesAfter", after.peak);
    describeRemark(remark, "block", kNoLimitingFactor, text);
  });
}

void commsched::explainReordering(StringRef passName, const BlockWork &work, BlockVoice &voice) {
  const LoadedBlock &block = work.loaded;
  // A rule without a limit is measured by what a report measures it by if nothing else is asked for.
  Bytes limit = work.schedule.limit >= kUnlimited ? work.inputPeak : work.schedule.limit;
  std::vector<StartOutcome> outcomes = explain(block, work.schedule, limit);
  // Indexed by node: why compute waits for a start, in words.
  std::vector<std::string> reasons(block.problem.size());
  for (const StartOutcome &outcome : outcomes)
    reasons[outcome.start] = describe(block, outcome.reason, outcome.start);
  if (voice.hasRemarks()) {
    for (const CollectiveRecord &record : work.schedule.records) {
      NodeId start = block.problem.nodes[record.node].kind == NodeKind::Wait ? block.problem.nodes[record.node].start
                                                                             : record.node;
      sayRecord(passName, block, record, start == kNone ? StringRef() : StringRef(reasons[start]), voice);
    }
    sayTotals(passName, work, voice);
  }
  if (voice.hasJournal())
    voice.write(makeRecord(passName, block, work.schedule, reasons));
}
