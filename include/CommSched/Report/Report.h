//===- Report.h - Measured facts of a block, before and after ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Measures blocks by the models, before and after a pipeline, and writes what was found: a table for people, JSON for
// programs, a trace for Perfetto, a page of HTML for people without it, and a picture of it to show to others.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_REPORT_REPORT_H
#define COMMSCHED_REPORT_REPORT_H

#include "CommSched/Analysis/BlockNoise.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "CommSched/Machine/CostTimes.h"
#include "CommSched/Report/ErrorBars.h"
#include "CommSched/Report/NumericsReport.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Answer/LimitingFactor.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Support/MemoryBudget.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace commsched {

/// One collective of a block.
struct CollectiveRow {
  /// The names or file positions of its location: one entry, or several for a merged collective.
  std::vector<std::string> locations;
  CollectiveKind kind = CollectiveKind::Barrier;
  std::string group;
  /// The placement of the group's ranks, and the element type that is moved.
  GroupShape shape;
  ElementType element = ElementType::Other;
  /// Collectives in its start (more than one in the coalesced form), and whether it is a one-shot sum.
  int64_t parts = 1;
  bool isOneShot = false;
  /// `comm.variant`; empty without.
  std::string variant;
  Bytes bytes = 0;
  Ns cost = 0;
  /// Time for which the compute lane waits for it, ns.
  Ns exposed = 0;
  /// By how much it may end later until the block takes longer, ns; none if activities slow each other down, where no
  /// such number says much.
  std::optional<Ns> toleratedDelay;
  /// Why it is not hidden, and the same in words; "already hidden" if nothing is exposed.
  LimitingFactor factor = LimitingFactor::None;
  std::string limitingFactor;
};

/// One rectangle of a timeline.
struct TimelineSpan {
  std::string name;
  LaneId lane = kComputeLane;
  Ns start = 0, end = 0;
  /// Whether the compute lane waits here, and why, in the words of CollectiveRow::limitingFactor.
  bool stall = false;
  std::string reason = {};
  /// Index into TimelineDetails::operations.
  NodeId operation = kNone;
};

/// What a timeline tells of one operation.
struct TimelineOperation {
  /// The operation's name ("comm.all_gather"), or of a `comm.compute` its own ("matmul").
  std::string kind;
  /// Whether it is a matrix product of linalg. They are called by their shapes rather than by their names.
  bool isProduct = false;
  /// The names of its location, or its file positions: several of a merged collective.
  std::vector<std::string> names;
  /// Its file positions ("model.py:7:12"), as far as its location has some.
  std::vector<std::string> places;
  /// Index into BlockSnapshot::streams of the stream that runs it; 0 if there is only one.
  int32_t stream = 0;
  /// When its stream comes to it, ns. A collective begins later if its lane is busy.
  Ns reached = 0;
  Ns cost = 0;
  Bytes workspace = 0;
  /// What is known of the cost's error; none of a view or a wait.
  std::optional<CostEstimate> estimate;
  bool isStart = false;
  /// Of a start or hybrid: its group; of a start also what it moves, how long compute waits for it, and why.
  std::string group;
  Bytes bytes = 0;
  Ns exposed = 0;
  std::string limitingFactor;
  /// Of a wait: the start that it waits for, an index into TimelineDetails::operations; kNone of all others.
  NodeId awaited = kNone;
};

/// One allocation of a timeline: a buffer, or the workspace of one operation.
struct TimelineBuffer {
  Bytes bytes = 0;
  /// The first and the last entry of BlockSnapshot::memory that count it.
  int32_t first = 0, last = 0;
  /// The operation that allocates it, or whose workspace it is; kNone of a donated argument.
  NodeId operation = kNone;
  bool isWorkspace = false;
};

/// What a timeline tells beyond its rectangles.
struct TimelineDetails {
  /// Indexed by node, in the order of the program.
  std::vector<TimelineOperation> operations;
  /// The bytes of those that count in an entry of BlockSnapshot::memory add up to the live bytes of that entry.
  std::vector<TimelineBuffer> buffers;
};

/// How activities that share resources disturb each other in a block (Models.md, "Contention").
struct BlockContention {
  /// The makespan if nothing disturbed anything else, ns.
  Ns undisturbed = 0;
  /// The average use of each resource, in millionths, and the use over time.
  Shares average{};
  std::vector<ResourceUse> uses;
};

/// Operations with one name, operands and results.
struct OperationRow {
  /// As the `ops` of a profile spell them.
  std::string name;
  std::vector<std::string> operands, results;
  int64_t count = 0;
  /// Of all of them together, ns.
  Ns cost = 0;
  CostKnowledge known = CostKnowledge::Model;
};

/// A report has at most this many rows of operations for a block, those that take the most time.
inline constexpr size_t kMostOperationRows = 200;

/// The measures of a block, before or after the passes.
struct BlockSnapshot {
  int64_t ops = 0, collectives = 0;
  /// Problem::streams.
  std::vector<int64_t> streams;
  Ns makespan = 0, exposed = 0;
  Bytes peak = 0, arguments = 0;
  /// Bytes of one arena that holds all buffers of the block at fixed offsets (Scheduling/BufferPlan.h), and the largest
  /// sum of bytes that are live at once, a lower bound for every arena. Workspaces are not included.
  Bytes arena = 0, arenaBound = 0;
  /// What comm-split-strands found for the function; splitBound is 0 if it did not run. ns, words, ns, and thousandths
  /// (-1 if the function was not split).
  int64_t splitBound = 0;
  std::string splitBoundBy;
  int64_t unsplit = 0, breakEvenPermille = -1;
  /// Lower bounds on the makespan, ns: for any order of these operations, and for any bucketing and order; and the
  /// resource that determines each ("compute lane", "lane of group @dp", "critical path"). Equal if bucketing is not
  /// allowed.
  Ns orderBound = 0, jointBound = 0;
  std::string orderBoundBy, jointBoundBy;
  /// As jointBound and limitBound, with bucketing always allowed, and any order if MeasureOptions::anyOrder: for a
  /// program that a pass has merged or reordered beyond the options.
  Ns anyBound = 0, anyLimitBound = 0;
  std::string anyBoundBy, anyLimitBoundBy;
  /// The bound for schedules whose peak is within MeasureOptions::boundBudget; at least the bound without that limit.
  Ns limitBound = 0;
  std::string limitBoundBy;
  int64_t unknownSizes = 0, unknownCosts = 0;
  /// The times of the block's operations by what they are known from, and the operations that take the most time.
  CostTimes costTimes;
  std::vector<OperationRow> operations;
  /// The first values of unknown size, in words: "argument 0", or the operation that defines the value.
  std::vector<std::string> unknownValues;
  /// Counts that reordering and merging do not change: one-shot all-reduces, the total time of computations other than
  /// packs and casts, ns, and collectives with a time in `comm.cost`, whose buckets can be priced in several ways.
  int64_t oneShots = 0, measuredCollectives = 0;
  Ns givenTimes = 0;
  /// The total time of calls and operations with regions, ns. Passes also change the blocks inside them.
  Ns nestedTimes = 0;
  /// See LoadedBlock.
  int64_t cutValues = 0, unknownLanes = 0;
  /// Filled in if the block has demands.
  std::optional<BlockContention> contention;
  std::string defect;
  std::vector<CollectiveRow> rows;
  /// Filled in if any cost has an error bar (MeasureOptions::errorBars).
  std::optional<BlockErrorBars> errorBars;
  /// Makespans in the scenarios of MeasureOptions::noise, and what cannot be beaten in them: by any order, if
  /// MeasureOptions::load allows bucketing with any buckets, and by any order of these operations. None without
  /// scenarios, and no bounds without MeasureOptions::bounds.
  std::optional<SampledMakespan> sampled, sampledBound, sampledOrderBound;
  /// Names of the lanes; with a timeline, also of the streams other than 0, after the lanes.
  std::vector<std::string> lanes;
  /// By lane.
  std::vector<Ns> laneLoads;
  /// Filled in if a timeline was requested: what runs when; the live bytes over time, each from its time until that of
  /// the next entry; and what is behind both.
  std::vector<TimelineSpan> spans;
  std::vector<std::pair<Ns, Bytes>> memory;
  TimelineDetails details;
};

/// Options of measureBlock.
struct MeasureOptions {
  LoadOptions load;
  bool bounds = true;
  /// Whether to compute BlockSnapshot::anyBound. This loads the block a second time if it allows more than `load`.
  bool anyBound = false;
  /// Whether BlockSnapshot::anyBound holds for collectives in any order, whatever `load` says.
  bool anyOrder = false;
  bool timeline = false;
  /// The costs of the module in other scenarios; null if no error bars are wanted.
  const ErrorBars *errorBars = nullptr;
  /// The scenarios in which the makespan is sampled.
  NoiseOptions noise;
  /// The peak limit for the bounds. Ratios refer to the peak of the block.
  MemoryBudget boundBudget;
  /// The peak limit for limiting factors. Ratios refer to the peak of the block.
  MemoryBudget factorBudget;
};

/// Fills in BlockSnapshot::costTimes and operations. An operation with regions, or a call, is known from a model.
/// Collectives have rows of their own. O(operations log operations).
void measureOperations(mlir::Block &block, const OperationCosts &costs, BlockSnapshot &snapshot);

/// On a function: what comm-split-strands found, for the report. A dictionary of these names.
inline constexpr llvm::StringLiteral kStrandsAttrName = "strands";
/// The bound for every split, ns, and its argument in words.
inline constexpr llvm::StringLiteral kSplitBoundName = "lower_bound", kSplitBoundByName = "lower_bound_by";
/// The best makespan without a split, ns.
inline constexpr llvm::StringLiteral kUnsplitName = "unsplit";
/// By how much parts of computations may be slower than the model says until the split no longer pays, thousandths.
inline constexpr llvm::StringLiteral kBreakEvenName = "break_even_permille";

/// Measures `block` in its current order. O((operations + edges) log operations), apart from the bounds.
BlockSnapshot measureBlock(mlir::Block &block, const OperationCosts &costs, const MeasureOptions &options = {});

/// One block before and after.
struct BlockReport {
  /// The function's name, with ".N" for its Nth inner block before the passes.
  std::string name;
  BlockSnapshot before, after;
  /// The peak limit, bytes.
  Bytes limit = 0;
  /// Time between the two snapshots, ns. No comparison uses it.
  Ns solve = 0;
  std::string signature;
  /// That of the function after the passes.
  NumericsReport numerics;
  /// True if nothing ran between the two measurements, so that `after` is a copy of `before`.
  bool isOneMeasurement = false;
  /// True if passes of another project ran between them.
  bool hasOtherPasses = false;

  /// The gain in makespan, with its interval (ErrorBars.h).
  TimeInterval gain() const { return gainOf(before.makespan, before.errorBars, after.makespan, after.errorBars); }

  /// Distance of the makespan from jointBound, as a fraction of the bound; 0 if there is no bound.
  double gap() const;
};

/// Adapts the bounds of `before` to the change that was made. If the result is shorter than the bound for every order,
/// the bound for any bucketing applies; time that regions and callees lost is subtracted. If the result is shorter than
/// that as well, the change was more than order and buckets, and the bounds become 0. If only order and buckets have
/// changed, and no pass of another project ran, this is a defect of the library, and the returned text describes it;
/// otherwise the text is empty.
std::string certify(BlockReport &report);

/// A function of which a pass has rebuilt blocks, as a whole: its body with all that is inside.
struct RebuiltFunction {
  std::string name;
  /// ns, bytes.
  BeforeAfter makespan, peak;
  Bytes limit = kUnlimited;
};

/// All blocks of a module.
struct Report {
  std::string machine;
  /// What pages call the two measurements of a block.
  llvm::StringRef sides[2] = {"before", "after"};
  /// The scenarios of BlockSnapshot::sampled.
  NoiseOptions noise;
  std::vector<BlockReport> blocks;
  /// The names of blocks that cannot be compared: those that were measured before the passes and not found after them,
  /// and those that were found after them alone.
  std::vector<std::string> lostBlocks, newBlocks;
  /// The functions of these blocks that are there before and after the passes.
  std::vector<RebuiltFunction> rebuilt;
  /// The records of the scheduling passes, by block and in the order of the passes.
  std::vector<PassRecord> passes;

  /// R.json of the contract: schema_version 1.
  llvm::json::Value toJSON() const;
};

/// Prints a table: totals per block, traffic by kind and group, and the exposed collectives, worst first. Uses colours
/// if `os` supports them.
void printTable(const Report &report, llvm::raw_ostream &os);

/// Explains the collectives of the result that are called `name`: where each is, when it runs, which computation hides
/// it, what is live meanwhile, what limits it, and what may help. A name is that of an operation's location, with or
/// without an @ in front; a file position, with or without its column and its first folders, is one too. Fails if no
/// collective is called so, with the nearest name. Needs the timelines (MeasureOptions::timeline). O(operations +
/// spans).
llvm::Error printExplanation(const Report &report, llvm::StringRef name, llvm::raw_ostream &os);

/// Prints a table of what each pass did to each collective, with all that a record has, and then every block's
/// operations in their order, one line each: a bar is in front of what is issued between a start and its wait. This is
/// the form of PyTorch Inductor's logs. Needs the timelines (MeasureOptions::timeline). O(operations + rows).
void printOverlap(const Report &report, llvm::raw_ostream &os);

/// One end of an arrow: a moment on a row of a timeline, inside of a rectangle.
struct ArrowEnd {
  LaneId row = kNone;
  Ns when = 0;
};

/// An arrow from a collective to a wait for it.
struct WaitArrow {
  ArrowEnd start, wait;
};

/// The arrows from each start that takes time to each of its waits, in the order of the waits. An arrow ends where
/// compute goes on. O(operations + spans).
std::vector<WaitArrow> arrowsOf(const BlockSnapshot &snapshot);

/// Writes Chrome's trace-event format, which Perfetto reads. Each block has a process "before" and one "after" with a
/// thread per lane, an arrow (a flow) from each start to each of its waits, and a counter of live bytes. Times are in
/// µs with three decimals, as the format requires.
void writeTrace(const Report &report, llvm::raw_ostream &os);

/// Writes the timeline as one self-contained HTML page, one measurement above the other: the data as JSON, and the
/// program that draws them (lib/Report/Page). The page needs no network. O((operations + buffers) log operations).
void writeHtml(const Report &report, llvm::raw_ostream &os);

/// Writes the block that takes longest as a picture (SVG) of 1200 x 630 pixels: the lanes and the live bytes, before
/// above after, on one axis of time. O(operations log operations).
void writeCard(const Report &report, llvm::raw_ostream &os);

} // namespace commsched

#endif // COMMSCHED_REPORT_REPORT_H
