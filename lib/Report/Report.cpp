//===- Report.cpp - Measured facts of a block, before and after -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Measures one block: loads it, plays it, and asks for every exposed collective what stands in its way.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "CommSched/Analysis/Casts.h"
#include "CommSched/Report/Explanations.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Bounds/SampledBound.h"
#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Solver/Settle.h"
#include "ContentionReport.h"
#include "TimelineSnapshot.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <map>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

//===-----------------------------------------------------------------------------------------===//
// Words
//===-----------------------------------------------------------------------------------------===//

/// Values of unknown size that a report names.
static constexpr size_t kNamedValues = 8;

static std::string nameValue(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return "argument " + std::to_string(argument.getArgNumber());
  Operation *op = value.getDefiningOp();
  return op->getName().getStringRef().str() + " (" + nameOperation(op) + ")";
}

//===-----------------------------------------------------------------------------------------===//
// Measuring
//===-----------------------------------------------------------------------------------------===//

/// One row per start, with the exposed time of its waits.
static std::vector<CollectiveRow> makeRows(const LoadedBlock &block, const OperationCosts &costs, Bytes limit) {
  std::vector<CollectiveRow> rows;
  std::vector<Ns> delays;
  if (!block.problem.hasContention() && !block.problem.hasStreams())
    delays = toleratedDelays(block.problem, identityOrder(block.problem));
  for (const StartOutcome &outcome : explain(block, keepOrder(block.problem), limit)) {
    const Node &start = block.problem.nodes[outcome.start];
    Operation *op = block.nodes[outcome.start];
    CollectiveRow row;
    row.locations = describeLocation(op->getLoc());
    row.kind = start.collective;
    auto collective = cast<CollectiveOpInterface>(op);
    row.group = ("@" + collective.getGroupAttr().getValue()).str();
    row.shape = costs.shapeOf(collective);
    row.element = costs.elementOf(collective);
    row.parts = std::max<int64_t>(1, static_cast<int64_t>(collective.getCollectiveInputs().size()));
    row.isOneShot = op->hasAttr("one_shot");
    if (auto variant = op->getAttrOfType<StringAttr>(CommDialect::kVariantAttrName))
      row.variant = variant.str();
    row.bytes = start.bytes;
    row.cost = start.cost;
    row.exposed = outcome.exposedAfter;
    if (!delays.empty())
      row.toleratedDelay = delays[outcome.start];
    row.factor = outcome.reason.factor;
    row.limitingFactor = describe(block, outcome.reason, outcome.start);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Counts what tells a reordered and merged program from one that was changed otherwise.
static void countChangeable(BlockSnapshot &snapshot, const LoadedBlock &loaded) {
  for (NodeId node = 0; node < loaded.problem.size(); ++node) {
    Operation *op = loaded.nodes[node];
    Ns time = loaded.problem.nodes[node].cost;
    auto cost = op->getAttrOfType<CostAttr>(CommDialect::kCostAttrName);
    bool collective = isa<CollectiveOpInterface>(op);
    snapshot.oneShots += op->hasAttr("one_shot");
    snapshot.measuredCollectives += collective && cost && cost.getTime();
    if (op->getNumRegions() > 0 || isa<CallOpInterface>(op))
      snapshot.nestedTimes += time;
    else if (!collective && !isElementTypeCast(op) &&
             !isa<FsdpAllGatherCopyInOp, FsdpSplitWithSizesCopyOp, FsdpChunkCatOp>(op))
      snapshot.givenTimes += time;
  }
}

static void measureScenarios(BlockSnapshot &snapshot, const LoadedBlock &loaded, const OperationCosts &costs,
                             const MeasureOptions &options) {
  Noise noise = noiseOf(loaded, costs, options.noise);
  snapshot.sampled = summarize(ScenarioSampler(loaded.problem, noise).play(keepOrder(loaded.problem)));
  if (options.bounds)
    snapshot.sampledOrderBound = sampledLowerBound(loaded.problem, noise, /*bucketing=*/false);
  if (options.bounds)
    snapshot.sampledBound = options.load.bucketing ? sampledLowerBound(loaded.problem, noise, /*bucketing=*/true)
                                                   : snapshot.sampledOrderBound;
}

/// Takes over what comm-split-strands left at the function.
static void readStrands(Block &block, BlockSnapshot &snapshot) {
  Operation *function = block.getParentOp();
  auto facts = function ? function->getAttrOfType<DictionaryAttr>(kStrandsAttrName) : DictionaryAttr();
  if (!facts)
    return;
  auto number = [&](StringRef name, int64_t otherwise) {
    auto attr = facts.getAs<IntegerAttr>(name);
    return attr && attr.getType().isSignlessInteger(64) ? attr.getInt() : otherwise;
  };
  snapshot.splitBound = number(kSplitBoundName, 0);
  snapshot.unsplit = number(kUnsplitName, 0);
  snapshot.breakEvenPermille = number(kBreakEvenName, -1);
  if (auto by = facts.getAs<StringAttr>(kSplitBoundByName))
    snapshot.splitBoundBy = by.getValue();
}

/// Whether no operation is over before one that an edge puts in front of it. On several streams some edges order only
/// how operations are issued, and bounds take all of them for an order in time.
static bool keepsEdgesInTime(const Problem &problem, const Timeline &timeline) {
  for (NodeId id = 0; id < problem.size(); ++id)
    for (NodeId pred : problem.preds[id])
      if (problem.nodes[pred].kind != NodeKind::Start && timeline.end[id] < timeline.end[pred])
        return false;
  return true;
}

BlockSnapshot commsched::measureBlock(Block &block, const OperationCosts &costs, const MeasureOptions &options) {
  LoadedBlock loaded = loadBlock(block, costs, options.load);
  const Problem &problem = loaded.problem;
  Order order = identityOrder(problem);
  Timeline timeline = simulate(problem, order);
  MemoryProfile memory = memoryProfile(problem, order);
  BlockSnapshot snapshot;
  snapshot.ops = problem.size();
  snapshot.streams = problem.streams;
  snapshot.makespan = timeline.makespan;
  snapshot.exposed = timeline.exposedTotal;
  snapshot.peak = memory.peak;
  snapshot.arguments = problem.argumentBytes;
  BufferPlan plan = planBuffers(liveIntervals(problem, order));
  snapshot.arena = plan.total;
  snapshot.arenaBound = plan.bound;
  snapshot.unknownSizes = loaded.unknownSizes;
  for (Value value : ArrayRef<Value>(loaded.unknownValues).take_front(kNamedValues))
    snapshot.unknownValues.push_back(nameValue(value));
  snapshot.unknownCosts = loaded.unknownCosts;
  measureOperations(block, costs, snapshot);
  snapshot.cutValues = loaded.cutValues;
  snapshot.unknownLanes = loaded.unknownLanes;
  snapshot.defect = loaded.defect;
  snapshot.contention = measureContention(problem, timeline);
  snapshot.lanes = problem.laneNames;
  snapshot.laneLoads = timeline.load;
  if (options.bounds && problem.hasStreams() && !keepsEdgesInTime(problem, timeline)) {
    snapshot.jointBoundBy = snapshot.limitBoundBy = snapshot.orderBoundBy = snapshot.anyBoundBy =
        snapshot.anyLimitBoundBy = "none: operations on several streams pass each other";
  } else if (options.bounds) {
    BoundOptions limited;
    limited.limit = options.boundBudget.limitFor(memory.peak);
    LowerBound bound = lowerBound(problem, limited);
    LowerBound joint = options.load.bucketing ? jointLowerBound(problem, limited) : bound;
    snapshot.orderBound = bound.makespan;
    snapshot.orderBoundBy = bound.describe(problem);
    snapshot.jointBound = joint.makespan;
    snapshot.jointBoundBy = joint.describe(problem);
    snapshot.limitBound = joint.withLimit;
    snapshot.limitBoundBy = joint.describeWithLimit(problem);
    LowerBound any = joint;
    LoadOptions merging = options.load;
    merging.bucketing = true;
    if (options.anyOrder)
      merging.order = CollectiveOrder::Free;
    if (options.anyBound && (!options.load.bucketing || merging.order != options.load.order))
      any = jointLowerBound(loadBlock(block, costs, merging).problem, limited);
    snapshot.anyBound = any.makespan;
    snapshot.anyBoundBy = any.describe(problem);
    snapshot.anyLimitBound = any.withLimit;
    snapshot.anyLimitBoundBy = any.describeWithLimit(problem);
  }
  readStrands(block, snapshot);
  countChangeable(snapshot, loaded);
  snapshot.rows = makeRows(loaded, costs, options.factorBudget.limitFor(memory.peak));
  snapshot.collectives = snapshot.rows.size();
  // With several streams a shorter computation may let another one in first, so the makespan is not monotone.
  if (options.errorBars && *options.errorBars && !problem.hasStreams())
    snapshot.errorBars = options.errorBars->measure(block, options.load, snapshot.makespan);
  if (options.noise.scenarios > 0)
    measureScenarios(snapshot, loaded, costs, options);
  if (options.timeline)
    addTimeline(snapshot, loaded, costs, timeline, memory);
  return snapshot;
}

//===-----------------------------------------------------------------------------------------===//
// JSON
//===-----------------------------------------------------------------------------------------===//

double BlockReport::gap() const {
  if (before.jointBound <= 0)
    return 0;
  return static_cast<double>(after.makespan - before.jointBound) / static_cast<double>(before.jointBound);
}

/// Whether two snapshots are of programs that differ in order and buckets alone, as far as they tell.
static bool isSameProgram(const BlockSnapshot &before, const BlockSnapshot &after) {
  std::map<std::pair<std::string, CollectiveKind>, Bytes> traffic;
  for (const CollectiveRow &row : before.rows)
    traffic[{row.group, row.kind}] += row.bytes;
  for (const CollectiveRow &row : after.rows)
    traffic[{row.group, row.kind}] -= row.bytes;
  bool sameTraffic = llvm::all_of(traffic, [](const auto &entry) { return entry.second == 0; });
  bool samePrices = before.collectives == after.collectives ? before.measuredCollectives == after.measuredCollectives
                                                            : before.measuredCollectives == 0;
  // Without merging, no pass of ours takes work from compute or erases operations: another one has, for example what
  // has no reader, and what it kept apart.
  bool sameWork = before.collectives != after.collectives || before.laneLoads.empty() || after.laneLoads.empty() ||
                  (after.laneLoads[kComputeLane] >= before.laneLoads[kComputeLane] && after.ops >= before.ops);
  return sameTraffic && samePrices && sameWork && before.streams == after.streams &&
         before.oneShots == after.oneShots && before.givenTimes == after.givenTimes;
}

/// A sampled bound is about the operations and the bucketing that were allowed: another pass may have changed more.
static void dropBeatenSampledBounds(BlockReport &report) {
  const std::optional<SampledMakespan> &after = report.after.sampled;
  for (std::optional<SampledMakespan> *bound : {&report.before.sampledBound, &report.before.sampledOrderBound})
    if (*bound && after && (after->mean < (*bound)->mean || after->p95 < (*bound)->p95))
      bound->reset();
}

/// Another program than the given one is measured: no bound of the given one holds.
static void dropBounds(BlockSnapshot &before) {
  before.jointBound = before.limitBound = before.orderBound = 0;
  before.jointBoundBy = before.limitBoundBy = before.orderBoundBy =
      "none: more has changed than the order and the buckets";
}

std::string commsched::certify(BlockReport &report) {
  BlockSnapshot &before = report.before;
  Ns makespan = report.after.makespan;
  dropBeatenSampledBounds(report);
  bool isWithin = report.after.peak <= report.limit;
  auto bound = [&] { return isWithin ? std::max(before.jointBound, before.limitBound) : before.jointBound; };
  if (makespan < bound() && before.anyBound > 0) {
    before.jointBound = before.anyBound;
    before.jointBoundBy = before.anyBoundBy;
    before.limitBound = before.anyLimitBound;
    before.limitBoundBy = before.anyLimitBoundBy;
  }
  // Less work takes at most that much less time.
  if (Ns saved = before.nestedTimes - report.after.nestedTimes; saved > 0) {
    before.limitBound = before.jointBound = std::max<Ns>(before.jointBound - saved, 0);
    before.orderBound = std::max<Ns>(before.orderBound - saved, 0);
    if (before.jointBound == 0)
      dropBounds(before);
  }
  if (makespan >= bound())
    return {};
  if (!report.hasOtherPasses && isSameProgram(before, report.after))
    return llvm::formatv("{0} takes {1} ns, which is less than its lower bound of {2} ns", report.name, makespan,
                         bound())
        .str();
  dropBounds(before);
  return {};
}

/// The exposed time before of the collectives that became `row`, taken out of what is left to be matched.
static Ns takeExposedBefore(const CollectiveRow &row, std::map<std::string, std::vector<Ns>> &exposedBefore) {
  Ns exposed = 0;
  for (const std::string &location : row.locations)
    if (auto it = exposedBefore.find(location); it != exposedBefore.end() && !it->second.empty()) {
      exposed += it->second.back();
      it->second.pop_back();
    }
  return exposed;
}

/// What is known of the error of a collective's cost.
static void addCostToJSON(const std::optional<CostEstimate> &cost, llvm::json::Object &row) {
  if (!cost)
    return;
  row["cost_lo_ns"] = cost->lo;
  row["cost_hi_ns"] = cost->hi;
  row["cost_source"] = stringify(cost->origin);
  row["samples"] = cost->samples;
  if (!cost->flags.empty())
    row["flags"] = llvm::json::Array(cost->flags);
}

static llvm::json::Object toJSON(const TimeInterval &interval) {
  return llvm::json::Object{{"value", interval.value}, {"lo", interval.lo}, {"hi", interval.hi}};
}

/// The interval of a snapshot's makespan; of no width without error bars.
static TimeInterval makespanOf(const BlockSnapshot &snapshot) {
  return snapshot.errorBars ? snapshot.errorBars->makespan
                            : TimeInterval{snapshot.makespan, snapshot.makespan, snapshot.makespan};
}

/// The object "error_bars" of a block that has some.
static llvm::json::Object errorBarsToJSON(const BlockReport &block) {
  const BlockSnapshot &before = block.before, &after = block.after;
  llvm::json::Object byScenario;
  for (auto [index, scenario] : llvm::enumerate(scenarios()))
    byScenario[scenario.name] =
        llvm::json::Object{{"before", before.errorBars ? before.errorBars->byScenario[index] : before.makespan},
                           {"after", after.errorBars ? after.errorBars->byScenario[index] : after.makespan}};
  const CostCounts &counts = (after.errorBars ? after : before).errorBars->counts;
  llvm::json::Object sources, flags;
  for (unsigned origin = 0; origin < kNumCostOrigins; ++origin)
    sources[stringify(static_cast<CostOrigin>(origin))] = counts.byOrigin[origin];
  for (const auto &[flag, count] : counts.flagged)
    flags[flag] = count;
  return llvm::json::Object{
      {"makespan_ns", llvm::json::Object{{"before", toJSON(makespanOf(before))}, {"after", toJSON(makespanOf(after))}}},
      {"gain_ns", toJSON(block.gain())},
      {"scenarios_ns", std::move(byScenario)},
      {"cost_sources", std::move(sources)},
      {"costs_with_error_bars", counts.withErrorBar},
      {"flags", std::move(flags)}};
}

static llvm::json::Array operationsToJSON(const BlockSnapshot &snapshot) {
  llvm::json::Array rows;
  for (const OperationRow &row : snapshot.operations)
    rows.push_back(llvm::json::Object{{"name", row.name},
                                      {"operands", llvm::json::Array(row.operands)},
                                      {"results", llvm::json::Array(row.results)},
                                      {"count", row.count},
                                      {"cost_ns", row.cost},
                                      {"known_from", stringify(row.known)}});
  return rows;
}

static llvm::json::Array rowsToJSON(const BlockReport &block) {
  std::map<std::string, std::vector<Ns>> exposedBefore;
  for (const CollectiveRow &row : llvm::reverse(block.before.rows))
    for (const std::string &location : row.locations)
      exposedBefore[location].push_back(&location == &row.locations.front() ? row.exposed : 0);
  llvm::json::Array rows;
  for (auto [index, row] : llvm::enumerate(block.after.rows)) {
    llvm::json::Object entry{
        {"loc", llvm::join(row.locations, " + ")},
        {"kind", stringify(row.kind)},
        {"group", row.group},
        {"ranks", row.shape.ranks},
        {"nodes", row.shape.nodes},
        {"element", stringify(row.element)},
        {"bytes", row.bytes},
        {"cost_ns", row.cost},
        {"exposed_ns", llvm::json::Object{{"before", takeExposedBefore(row, exposedBefore)}, {"after", row.exposed}}},
        {"limiting_factor", row.limitingFactor}};
    if (row.toleratedDelay)
      entry["tolerated_delay_ns"] = *row.toleratedDelay;
    if (!row.variant.empty())
      entry["variant"] = row.variant;
    if (block.after.errorBars)
      addCostToJSON(block.after.errorBars->starts[index], entry);
    rows.push_back(std::move(entry));
  }
  return rows;
}

/// Collectives and bytes by kind and group.
static llvm::json::Array trafficToJSON(const BlockSnapshot &snapshot) {
  std::map<std::pair<std::string, std::string>, std::pair<int64_t, Bytes>> traffic;
  for (const CollectiveRow &row : snapshot.rows) {
    auto &[count, bytes] = traffic[{stringify(row.kind).str(), row.group}];
    ++count;
    bytes += row.bytes;
  }
  llvm::json::Array result;
  for (const auto &[key, value] : traffic)
    result.push_back(llvm::json::Object{
        {"kind", key.first}, {"group", key.second}, {"collectives", value.first}, {"bytes", value.second}});
  return result;
}

/// The object "scenarios" of a block.
static llvm::json::Object scenariosToJSON(const Report &report, const BlockReport &block) {
  const SampledMakespan &before = *block.before.sampled, &after = *block.after.sampled;
  llvm::json::Object mean{{"before", before.mean}, {"after", after.mean}};
  llvm::json::Object p95{{"before", before.p95}, {"after", after.p95}};
  for (auto [name, bound] : {std::pair("lower_bound", block.before.sampledBound),
                             std::pair("order_lower_bound", block.before.sampledOrderBound)})
    if (bound) {
      mean[name] = bound->mean;
      p95[name] = bound->p95;
    }
  return llvm::json::Object{{"count", report.noise.scenarios},
                            {"collective_spread_permille", report.noise.collectiveSpreadPermille},
                            {"compute_spread_permille", report.noise.computeSpreadPermille},
                            {"mean_ns", std::move(mean)},
                            {"p95_ns", std::move(p95)}};
}

/// Adds what comm-split-strands found, if it ran.
static void addStrands(const BlockSnapshot &after, llvm::json::Object &function) {
  if (after.splitBound == 0)
    return;
  llvm::json::Object &makespan = *function.getObject("makespan_ns");
  makespan["split_lower_bound"] = after.splitBound;
  makespan["split_lower_bound_by"] = after.splitBoundBy;
  makespan["unsplit"] = after.unsplit;
  if (after.breakEvenPermille >= 0)
    function["split_break_even_permille"] = after.breakEvenPermille;
}

llvm::json::Value Report::toJSON() const {
  llvm::json::Array functions;
  for (const BlockReport &block : blocks) {
    const BlockSnapshot &before = block.before, &after = block.after;
    llvm::json::Object function{
        {"name", block.name},
        {"ops", after.ops},
        {"collectives", after.collectives},
        {"makespan_ns", llvm::json::Object{{"before", before.makespan},
                                           {"after", after.makespan},
                                           {"lower_bound", before.jointBound},
                                           {"lower_bound_by", before.jointBoundBy},
                                           {"limit_lower_bound", before.limitBound},
                                           {"limit_lower_bound_by", before.limitBoundBy},
                                           {"order_lower_bound", before.orderBound},
                                           {"order_lower_bound_by", before.orderBoundBy}}},
        {"gap", block.gap()},
        {"exposed_ns", llvm::json::Object{{"before", before.exposed}, {"after", after.exposed}}},
        {"peak_bytes",
         llvm::json::Object{
             {"before", before.peak}, {"after", after.peak}, {"limit", block.limit}, {"arguments", after.arguments}}},
        {"buffer_plan_bytes",
         llvm::json::Object{{"before", before.arena}, {"after", after.arena}, {"lower_bound", after.arenaBound}}},
        {"solve_ns", block.solve},
        {"unknown_sizes", after.unknownSizes},
        {"unknown_values", llvm::json::Array(after.unknownValues)},
        {"unknown_costs", after.unknownCosts},
        {"cost_times_ns", after.costTimes.toJSON()},
        {"cut_values", after.cutValues},
        {"futures_without_lane", after.unknownLanes},
        {"signature", block.signature},
        {"numerics", block.numerics.toJSON()},
        {"traffic", llvm::json::Object{{"before", trafficToJSON(before)}, {"after", trafficToJSON(after)}}},
        {"per_collective", rowsToJSON(block)},
        {"per_operation", operationsToJSON(after)}};
    if (before.errorBars || after.errorBars)
      function["error_bars"] = errorBarsToJSON(block);
    if (before.sampled && after.sampled)
      function["scenarios"] = scenariosToJSON(*this, block);
    if (before.contention || after.contention)
      function["contention"] = contentionToJSON(block);
    addStrands(after, function);
    functions.push_back(std::move(function));
  }
  llvm::json::Object report{{"schema_version", 1},
                            {"machine", machine},
                            {"functions", std::move(functions)},
                            {"passes", commsched::toJSON(passes)}};
  if (!lostBlocks.empty())
    report["lost_blocks"] = llvm::json::Array(lostBlocks);
  if (!newBlocks.empty())
    report["new_blocks"] = llvm::json::Array(newBlocks);
  llvm::json::Array wholes;
  for (const RebuiltFunction &whole : rebuilt) {
    llvm::json::Object peak{{"before", whole.peak.before}, {"after", whole.peak.after}};
    if (whole.limit < kUnlimited)
      peak["limit"] = whole.limit;
    wholes.push_back(llvm::json::Object{
        {"name", whole.name},
        {"makespan_ns", llvm::json::Object{{"before", whole.makespan.before}, {"after", whole.makespan.after}}},
        {"peak_bytes", std::move(peak)}});
  }
  if (!wholes.empty())
    report["rebuilt_functions"] = std::move(wholes);
  return report;
}
