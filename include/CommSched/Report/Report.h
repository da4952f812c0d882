//===- Report.h - What a schedule is worth, in numbers ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Measures blocks by the models, before and after a pipeline, and writes what was found: a table for people, JSON for
// programs, a trace for Perfetto, and a page of HTML for people without it.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_REPORT_H
#define COMMSCHED_REPORT_REPORT_H

#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Model/Timeline.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Support/MemoryBudget.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace commsched {

/// One collective of a block.
struct CollectiveRow {
  /// Its location, as far as it is a name or a place in a file: one entry, or several for a merged collective.
  std::vector<std::string> locations;
  CollectiveKind kind = CollectiveKind::Barrier;
  std::string group;
  Bytes bytes = 0;
  Ns cost = 0;
  /// How long the compute lane stood still in its waits, ns.
  Ns exposed = 0;
  /// What keeps it from being hidden, in words; "already hidden" where nothing is exposed.
  std::string limitingFactor;
};

/// One rectangle of a timeline.
struct TimelineSpan {
  std::string name;
  LaneId lane = kComputeLane;
  Ns start = 0, end = 0;
  /// Whether the compute lane stands still here, and why, in the words of CollectiveRow::limitingFactor.
  bool stall = false;
  std::string reason = {};
};

/// A block at one moment.
struct BlockSnapshot {
  int64_t ops = 0, collectives = 0;
  Ns makespan = 0, exposed = 0;
  Bytes peak = 0, arguments = 0;
  /// Bytes of one arena for all buffers of the block at fixed offsets (Scheduling/BufferPlan.h), and the most bytes
  /// that are live together, which no arena can go below. Without workspaces, which belong to one operation each.
  Bytes arena = 0, arenaBound = 0;
  /// Lower bounds on the makespan: of any order of these operations, and of any bucketing and order, ns; and what binds
  /// them ("compute lane", "lane of group @dp", "critical path"). Equal where bucketing was not asked for.
  Ns orderBound = 0, jointBound = 0;
  std::string orderBoundBy, jointBoundBy;
  /// As jointBound and limitBound, whether bucketing was asked for or not, for a program that was merged by another
  /// pass.
  Ns anyBound = 0, anyLimitBound = 0;
  std::string anyBoundBy, anyLimitBoundBy;
  /// The bound on what was allowed (any bucketing, if it was) for peaks within MeasureOptions::boundBudget: not less.
  Ns limitBound = 0;
  std::string limitBoundBy;
  int64_t unknownSizes = 0, unknownCosts = 0;
  /// The first of the values of unknown size, in words: "argument 0", or the operation that makes it.
  std::vector<std::string> unknownValues;
  /// What only passes that do more than order and merge change: one-shot all-reduces, and what computes take together
  /// that no merge adds or removes (packs and casts), ns; and collectives with a time in `comm.cost`, whose buckets may
  /// be priced in several ways.
  int64_t oneShots = 0, measuredCollectives = 0;
  Ns givenTimes = 0;
  /// What operations with regions, and calls, take together, ns: passes change the blocks inside as well.
  Ns nestedTimes = 0;
  /// See LoadedBlock.
  int64_t cutValues = 0, unknownLanes = 0;
  std::string defect;
  std::vector<CollectiveRow> rows;
  std::vector<std::string> lanes;
  std::vector<Ns> laneLoads;
  /// Only where a timeline was asked for: what runs when, and live bytes over time.
  std::vector<TimelineSpan> spans;
  std::vector<std::pair<Ns, Bytes>> memory;
};

/// What measureBlock is asked for.
struct MeasureOptions {
  LoadOptions load;
  bool bounds = true;
  /// With bounds: whether BlockSnapshot::anyBound is needed. A second load where bucketing is not asked for.
  bool anyBound = false;
  bool timeline = false;
  /// The peak limit that the bounds are given for; the input is the block.
  MemoryBudget boundBudget;
  /// The peak limit that limiting factors are judged by; the input is the block.
  MemoryBudget factorBudget;
};

/// Measures `block` as it stands. O((operations + edges) log operations), bounds apart.
BlockSnapshot measureBlock(mlir::Block &block, const OperationCosts &costs, const MeasureOptions &options = {});

/// One block before and after.
struct BlockReport {
  /// The function's name, with ".N" for its Nth inner block.
  std::string name;
  BlockSnapshot before, after;
  /// The peak that was not to be exceeded, bytes.
  Bytes limit = 0;
  /// Time spent between the two snapshots, ns; not part of any comparison.
  Ns solve = 0;
  std::string signature;

  /// Distance of the makespan from the bound for what was allowed (Report: jointBound), as a fraction of the bound; 0
  /// where there is none.
  double gap() const;
};

/// Makes `before`'s bounds those of what was done: of any bucketing if the result beats the bound of every order, and
/// less what regions and callees have become shorter by. If the result beats that, too: returns what is wrong if only
/// the order and the buckets have changed, which is a defect of this library; otherwise there is no bound (jointBound
/// and limitBound are 0) and the returned text is empty.
std::string certify(BlockReport &report);

/// All blocks of a module.
struct Report {
  std::string machine;
  std::vector<BlockReport> blocks;
  /// What each scheduling pass in between did, by block and in the order of the passes.
  std::vector<PassRecord> passes;

  /// R.json of the contract: schema_version 1.
  llvm::json::Value toJSON() const;
};

/// A table for people: totals per block, traffic by kind and group, the worst exposed collectives first. Colours only
/// where `os` has them.
void printTable(const Report &report, llvm::raw_ostream &os);

/// Chrome's trace-event format, which Perfetto reads: per block a process "before" and one "after", a thread per lane,
/// and a counter of live bytes. Times are in µs, as the format wants, with three decimals.
void writeTrace(const Report &report, llvm::raw_ostream &os);

/// The same as one self-contained page: the lanes as SVG, before above after, and the memory curve below.
void writeHtml(const Report &report, llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_REPORT_REPORT_H
