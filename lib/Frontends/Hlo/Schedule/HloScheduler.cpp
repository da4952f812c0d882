//===- HloScheduler.cpp - Order the instructions of a module of XLA ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Load, solve, verify, apply, for each computation that the program runs. A computation whose order would not become
// faster keeps it.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Schedule/HloScheduler.h"
#include "CommSched/Frontends/Hlo/Graph/HloPrices.h"
#include "CommSched/Scheduling/Answer/Explain.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/Arithmetic.h"
#include "EntryProblem.h"
#include "Hlo/Graph/HloProblem.h"
#include "Hlo/Write/HloWriter.h"
#include "Hlo/Write/RewriteCollectives.h"
#include "HloTemporaries.h"
#include "LoopPipelining.h"
#include "llvm/ADT/STLExtras.h"
#include <random>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

class ModuleScheduler {
public:
  ModuleScheduler(const HloModule &module, const CostModel &model, const HloOptions &options)
      : module(module), costs(module, model, {&options.times, options.estimates, options.judgedBy}),
        plannedCosts(module, model, {nullptr, options.estimates, options.plannedBy}), options(options),
        carried(module.computations.size()), callees(module.computations.size()),
        plannedCallees(module.computations.size()), mergeKeys(module.computations.size()), counts(countRuns(module)) {}

  Error run(HloResult &result);

  /// Where to write what is found out about loops; null if nobody asks.
  LoopForecast *forecast = nullptr;
  /// What to do with the entry when all that it runs has been scheduled; null: nothing.
  function_ref<void(const HloGraph &, const Problem &)> visitEntry = nullptr;

private:
  std::vector<bool> findRunning() const;
  Expected<ComputationResult> runComputation(int32_t index);
  Error findMergeKeys();
  Error solve(const HloGraph &graph, const LoadedComputation &loaded, ComputationResult &result);
  /// The limit on the peak of a computation whose given order has the peak `given`.
  Bytes limitOf(Bytes given, bool isEntry) const;
  Schedule search(const Problem &problem, Bytes limit) const;
  Expected<Schedule> searchPlanned(const Problem &problem, Bytes limit) const;
  Error explainStarts(const HloGraph &graph, const LoadedComputation &loaded, const Schedule &schedule,
                      ComputationResult &result);
  void forecastLoop(const HloGraph &graph, const LoadedComputation &loaded, const ComputationResult &result);

  /// Whether orders are searched with other costs than those they are judged by.
  bool plansOtherwise() const { return !options.plannedBy.isModel(); }

  const HloModule &module;
  HloCosts costs, plannedCosts;
  const HloOptions &options;
  /// Indexed by computation. The last: with times by `plannedCosts`, if orders are searched with them.
  std::vector<Carried> carried;
  std::vector<CalleeWork> callees, plannedCallees;
  /// The computation that is searched now by `plannedCosts`; null if it is not.
  const Problem *planned = nullptr;
  /// Indexed by computation: what may be merged, with its keys by start.
  std::vector<std::vector<CollectivePair>> pairs;
  std::vector<MergeKeys> mergeKeys;
  std::vector<RunCount> counts;
  /// The new orders, with buckets.
  std::vector<MergedOrder> merged;
};

/// A random order that respects all edges and the order of pinned nodes. O(nodes + edges).
Order shuffled(const Problem &problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> missing(problem.size());
  NodeId lastPinned = kNone;
  // Indexed by node: the pinned node that may run after it, or kNone.
  std::vector<NodeId> nextPinned(problem.size(), kNone);
  std::vector<NodeId> ready;
  for (NodeId id = 0; id < problem.size(); ++id) {
    missing[id] = static_cast<int32_t>(problem.preds[id].size());
    if (problem.nodes[id].pinned) {
      if (lastPinned != kNone) {
        nextPinned[lastPinned] = id;
        ++missing[id];
      }
      lastPinned = id;
    }
    if (missing[id] == 0)
      ready.push_back(id);
  }
  Order order;
  auto release = [&](NodeId id) {
    if (--missing[id] == 0)
      ready.push_back(id);
  };
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    NodeId id = ready.back();
    ready.pop_back();
    order.push_back(id);
    llvm::for_each(problem.succs[id], release);
    if (nextPinned[id] != kNone)
      release(nextPinned[id]);
  }
  return order;
}

bool isAsynchronous(const HloInstruction &instruction) { return isStart(instruction) && !isSynchronous(instruction); }

/// The schedule of a computation in terms of its instructions.
MergedOrder mergedOrder(const HloGraph &graph, int32_t computation, const Schedule &schedule,
                        ArrayRef<CollectivePair> pairs) {
  MergedOrder result;
  result.computation = computation;
  DenseMap<int32_t, const CollectivePair *> pairOf;
  for (const CollectivePair &pair : pairs)
    pairOf[pair.start] = &pair;
  for (const Bucket &bucket : schedule.buckets) {
    std::vector<CollectivePair> &members = result.buckets.emplace_back();
    for (NodeId member : bucket.members)
      members.push_back(*pairOf.find(graph.nodes[member].instruction)->second);
  }
  const ExpandedProblem &expanded = schedule.expanded;
  for (NodeId node : schedule.order) {
    NodeId origin = schedule.isExpanded() ? expanded.origin[node] : node;
    if (origin != kNone)
      result.order.push_back({graph.nodes[origin].instruction, -1, false});
    else
      result.order.push_back({-1, expanded.bucketOf[node], node == expanded.buckets[expanded.bucketOf[node]].wait});
  }
  return result;
}

std::string reasonToKeep(const HloComputation &computation) {
  for (const HloInstruction &instruction : computation.instructions)
    if (instruction.isAnnotated)
      return ("'" + instruction.name + "' is in a scheduling group of the user").str();
  return none_of(computation.instructions, isAsynchronous) ? "it has no asynchronous work" : "";
}

} // namespace

/// Indexed by computation: whether the entry runs it by itself or through loops, branches and calls.
std::vector<bool> ModuleScheduler::findRunning() const {
  std::vector<bool> running(module.computations.size(), false);
  running[module.entry] = true;
  for (int32_t index : reverse(module.calleesFirst))
    if (running[index])
      for (const HloInstruction &instruction : module.computations[index].instructions)
        if (runsComputations(instruction))
          for (int32_t callee : instruction.called)
            running[callee] = true;
  return running;
}

Error ModuleScheduler::explainStarts(const HloGraph &graph, const LoadedComputation &loaded, const Schedule &schedule,
                                     ComputationResult &result) {
  auto nameOf = [&](NodeId node) { return "'" + graph.instructionOf(node).name.str() + "'"; };
  for (const StartOutcome &outcome : explain(loaded.problem, schedule, result.limit)) {
    const HloInstruction &start = graph.instructionOf(outcome.start);
    result.starts.push_back({start.name.str(), loaded.problem.nodes[outcome.start].cost, outcome.exposedBefore,
                             outcome.exposedAfter, describe(outcome.reason, nameOf)});
    Expected<std::optional<CollectiveCost>> collective = costs.ofCollective(start, graph.computation());
    if (!collective)
      return collective.takeError();
    if (!*collective)
      continue;
    result.starts.back().kind = (*collective)->kind;
    result.starts.back().shape = (*collective)->shape;
    result.starts.back().bytes = (*collective)->bytes;
  }
  return Error::success();
}

/// The share of the solver's own effort, in percent, that a search with buckets gets here. It is four searches in one
/// (with and without buckets, each with and without contention), and XLA compiles a program in some seconds. Up to
/// kLeastEffortWithBuckets, a fortieth of a second, it gets all of it.
static constexpr int64_t kEffortWithBucketsPercent = 30, kLeastEffortWithBuckets = 100'000;

Bytes ModuleScheduler::limitOf(Bytes given, bool isEntry) const {
  const MemoryBudget share = {options.memory.ppm, std::nullopt};
  if (isEntry || !options.memory.limit)
    return options.memory.limitFor(given);
  return std::min(share.limitFor(given), *options.memory.limit);
}

/// The reason to reject an answer of a search under `limit`; empty if it is taken. A slower answer is taken if the
/// given order is above the limit that was asked for.
static std::string reasonToReject(const Schedule &schedule, Bytes limit, Bytes askedFor, Bytes leastPeak) {
  if (schedule.inputPeak > askedFor && schedule.peak > limit)
    return leastPeak > askedFor ? ("no order is within the limit on memory: each has " + Twine(leastPeak) +
                                   " bytes of temporaries live at once, and the limit is " + Twine(askedFor))
                                      .str()
                                : "no order within the limit on memory was found";
  if (schedule.inputPeak > askedFor)
    return "";
  return schedule.makespan >= schedule.inputMakespan || schedule.peak > limit ? "no faster order was found" : "";
}

/// An answer of a problem that differs in its costs alone, as one of `problem`.
static Expected<Schedule> carriedOver(const Problem &problem, Schedule answer) {
  if (answer.isExpanded()) {
    Expected<ExpandedProblem> expanded = expandBuckets(problem, answer.buckets);
    if (!expanded)
      return expanded.takeError();
    answer.expanded = std::move(*expanded);
  }
  measure(problem, answer);
  answer.claims = {answer.makespan, answer.peak};
  answer.leastOrder = answer.leastSchedule = std::nullopt;
  answer.scales.clear();
  answer.regretPpm = std::nullopt;
  return std::move(answer);
}

Expected<Schedule> ModuleScheduler::searchPlanned(const Problem &problem, Bytes limit) const {
  if (!planned)
    return search(problem, limit);
  return carriedOver(problem, search(*planned, limit));
}

Schedule ModuleScheduler::search(const Problem &problem, Bytes limit) const {
  ScheduleOptions search;
  search.memory.limit = limit;
  search.bucketing = !problem.mergeKeys.empty();
  search.objective = options.objective;
  search.effort = options.effort;
  if (options.effort < 0 && search.bucketing)
    search.effort = std::max(std::min(defaultEffort(problem.size()), kLeastEffortWithBuckets),
                             mulDiv(defaultEffort(problem.size()), kEffortWithBucketsPercent, 100));
  return schedule(problem, search);
}

Error ModuleScheduler::solve(const HloGraph &graph, const LoadedComputation &loaded, ComputationResult &result) {
  const Problem &problem = loaded.problem;
  if (options.shuffle) {
    Schedule schedule = keepOrder(problem);
    schedule.order = shuffled(problem, *options.shuffle);
    measure(problem, schedule);
    if (std::string why = verify(problem, schedule, {kUnlimited, CollectiveOrder::Free}); !why.empty())
      return createStringError("the random order of '" + graph.computation().name + "' does not hold: " + why);
    result.keepReason.clear();
    result.sequence = graph.instructionsInOrder(schedule.order);
    result.makespanAfter = schedule.makespan;
    result.peakAfter = schedule.peak;
    return Error::success();
  }
  const Bytes limit = result.limit - mulDiv(result.limit, options.squeezePpm, kMillion);
  Expected<Schedule> found = result.keepReason.empty() ? searchPlanned(problem, limit) : keepOrder(problem);
  if (!found)
    return found.takeError();
  Schedule schedule = std::move(*found);
  if (!schedule.defect.empty())
    return createStringError("the solver's answer for '" + graph.computation().name +
                             "' does not hold: " + schedule.defect);
  measure(problem, schedule);
  schedule.limit = result.limit;
  if (result.keepReason.empty())
    result.keepReason = reasonToReject(schedule, limit, result.limit, result.leastPeak);
  if (!result.keepReason.empty()) {
    schedule = keepOrder(problem);
    measure(problem, schedule);
  } else {
    if (std::string why = verify(problem, schedule, {result.limit, CollectiveOrder::Free}); !why.empty())
      return createStringError("the new order of '" + graph.computation().name + "' does not hold: " + why);
    result.buckets = static_cast<int32_t>(schedule.buckets.size());
    if (schedule.buckets.empty())
      result.sequence = graph.instructionsInOrder(schedule.order);
    if (options.buckets)
      merged.push_back(mergedOrder(graph, result.computation, schedule, pairs[result.computation]));
  }
  if (planned) {
    Expected<Schedule> played = carriedOver(*planned, schedule);
    if (!played)
      return played.takeError();
    plannedCallees[result.computation].after = played->makespan;
  }
  result.makespanAfter = schedule.makespan;
  result.exposedAfter = simulate(schedule.carriedOut(problem), schedule.order).exposedTotal + loaded.exposedInCallees;
  result.peakAfter = schedule.peak;
  return explainStarts(graph, loaded, schedule, result);
}

/// Effort of the search for the steady state of a loop: its time is a forecast.
static constexpr int64_t kPipeliningEffort = 100'000;

void ModuleScheduler::forecastLoop(const HloGraph &graph, const LoadedComputation &loaded,
                                   const ComputationResult &result) {
  const RunCount &count = counts[result.computation];
  if (count.runs <= count.entries)
    return;
  Pipelining pipelining = findPipelining(graph, loaded.problem);
  PipelinedLoop loop;
  for (NodeId copy : pipelining.copies)
    loop.copies += loaded.problem.nodes[copy].cost;
  Ns idle = result.exposedAfter - loaded.exposedInCallees + loop.copies;
  forecast->idle = saturateAmount(static_cast<Wide>(idle) * count.runs + forecast->idle);
  if (pipelining.empty() || idle == 0)
    return;
  Problem body = pipelinedBody(loaded.problem, pipelining, loop.carried);
  ScheduleOptions search;
  search.memory.limit = saturateAmount(static_cast<Wide>(result.limit) + loop.carried);
  search.effort = kPipeliningEffort;
  Schedule schedule = commsched::schedule(body, search);
  if (!schedule.defect.empty())
    return;
  // The collectives of the first iteration come before the loop, and those of the last one after it.
  Wide outside = 0;
  for (NodeId start : concat<const NodeId>(pipelining.ahead, pipelining.behind)) {
    outside += loaded.problem.nodes[start].cost;
    loop.collectives.push_back(graph.instructionOf(start).name.str());
  }
  for (NodeId start : pipelining.barred)
    loop.barred.push_back(graph.instructionOf(start).name.str());
  loop.body = graph.computation().name.str();
  loop.runs = count.runs;
  loop.iteration = result.makespanAfter;
  loop.pipelined = schedule.makespan;
  loop.gain = saturateAmount(static_cast<Wide>(loop.iteration - loop.pipelined) * count.runs - outside * count.entries);
  if (loop.gain > 0)
    forecast->loops.push_back(std::move(loop));
}

Expected<ComputationResult> ModuleScheduler::runComputation(int32_t index) {
  const HloComputation &computation = module.computations[index];
  if (computation.sequence.empty())
    return createStringError("the computation '" + computation.name + "' has no order");
  bool isEntry = index == module.entry;
  HloGraph graph(module, index, carried);
  carried[index] = graph.carriedOver;
  ComputationResult result;
  result.computation = index;
  result.nodes = static_cast<int32_t>(graph.nodes.size());
  result.keepReason = options.measureOnly          ? "it is only measured"
                      : options.keepReason.empty() ? reasonToKeep(computation)
                                                   : options.keepReason;
  const MergeKeys &keys = mergeKeys[index];

  Expected<LoadedComputation> before = loadComputation(graph, costs, callees, CalleeCost::Before, isEntry, keys);
  if (!before)
    return before.takeError();
  Order given = identityOrder(before->problem);
  Timeline line = simulate(before->problem, given);
  result.makespanBefore = line.makespan;
  result.exposedBefore = line.exposedTotal + before->exposedInCallees;
  result.peakBefore = peakOf(before->problem, given);
  result.limit = limitOf(result.peakBefore, isEntry);
  result.collectives = before->collectives;
  result.unknownKernels = before->unknownKernels;
  result.unknownLoops = before->unknownLoops;
  result.untimed = before->untimed;

  Expected<LoadedComputation> least = loadComputation(graph, costs, callees, CalleeCost::Bound, isEntry, keys);
  if (!least)
    return least.takeError();
  BoundOptions boundOptions;
  boundOptions.limit = result.limit;
  LowerBound bound = options.measureOnly ? LowerBound() : jointLowerBound(least->problem, boundOptions);
  result.bound = bound.makespan;
  result.boundWithinLimit = std::max(bound.makespan, bound.withLimit);
  result.boundArgument = bound.describe(least->problem);
  if (!options.measureOnly)
    result.leastPeak = peakLowerBoundWithBuckets(least->problem);

  Expected<LoadedComputation> after = loadComputation(graph, costs, callees, CalleeCost::After, isEntry, keys);
  if (!after)
    return after.takeError();
  std::optional<LoadedComputation> otherwise;
  if (plansOtherwise()) {
    Expected<LoadedComputation> loaded =
        loadComputation(graph, plannedCosts, plannedCallees, CalleeCost::After, isEntry, keys);
    if (!loaded)
      return loaded.takeError();
    otherwise = std::move(*loaded);
    planned = &otherwise->problem;
  }
  if (Error error = solve(graph, *after, result))
    return std::move(error);
  planned = nullptr;
  if (forecast)
    forecastLoop(graph, *after, result);
  if (visitEntry && isEntry)
    visitEntry(graph, after->problem);

  callees[index] = before->work;
  callees[index].before = result.makespanBefore;
  callees[index].after = result.makespanAfter;
  callees[index].bound = result.bound;
  callees[index].exposedBefore = result.exposedBefore;
  callees[index].exposedAfter = result.exposedAfter;
  callees[index].peakBefore = result.peakBefore;
  callees[index].peakAfter = result.peakAfter;
  callees[index].leastPeak = result.leastPeak;
  const Ns plannedAfter = plannedCallees[index].after;
  plannedCallees[index] = callees[index];
  plannedCallees[index].after = plannedAfter;
  return std::move(result);
}

Error ModuleScheduler::findMergeKeys() {
  pairs = findPairs(module);
  StringMap<int32_t> numbers;
  for (auto [index, list] : enumerate(pairs))
    for (const CollectivePair &pair : list) {
      if (!pair.elements.empty() || isSynchronous(module.computations[index].instructions[pair.start]))
        continue;
      Expected<std::string> key = mergeKeyOf(module, static_cast<int32_t>(index), pair);
      if (!key)
        return key.takeError();
      if (!key->empty())
        mergeKeys[index][pair.start] = numbers.try_emplace(*key, numbers.size()).first->second;
    }
  return Error::success();
}

Error ModuleScheduler::run(HloResult &result) {
  if (options.buckets)
    if (Error error = findMergeKeys())
      return error;
  std::vector<bool> running = findRunning();
  std::vector<std::vector<int32_t>> sequences(module.computations.size());
  for (int32_t index : module.calleesFirst) {
    if (!running[index])
      continue;
    Expected<ComputationResult> one = runComputation(index);
    if (!one)
      return one.takeError();
    sequences[index] = one->sequence;
    result.isChanged |= !one->sequence.empty() || one->buckets > 0;
    result.computations.push_back(std::move(*one));
  }
  if (any_of(merged, [](const MergedOrder &order) { return !order.buckets.empty(); })) {
    result.module = mergeCollectives(module, merged);
    return Error::success();
  }
  Expected<std::string> written = writeModule(module, sequences);
  if (!written)
    return written.takeError();
  result.module = std::move(*written);
  return Error::success();
}

static Expected<HloResult> scheduleOnce(const HloModule &module, const CostModel &model, const HloOptions &options) {
  HloResult result;
  if (Error error = ModuleScheduler(module, model, options).run(result))
    return std::move(error);
  Expected<std::vector<PricedInstruction>> prices = priceInstructions(module, model);
  if (!prices)
    return prices.takeError();
  for (const PricedInstruction &price : *prices)
    result.costTimes.add(price.known, price.time);
  return std::move(result);
}

/// Indexed by computation: its new order, or nothing.
static std::vector<std::vector<int32_t>> sequencesOf(const HloModule &module, const HloResult &result) {
  std::vector<std::vector<int32_t>> sequences(module.computations.size());
  for (const ComputationResult &one : result.computations)
    sequences[one.computation] = one.sequence;
  return sequences;
}

Expected<HloResult> commsched::hlo::scheduleModule(const HloModule &module, const CostModel &model,
                                                   const HloOptions &options) {
  // What is merged has to be written before its temporaries are known: see rewriteModule().
  if (options.measureOnly || options.shuffle || options.buckets)
    return scheduleOnce(module, model, options);
  const TemporariesLimit temporaries(module, options);
  HloResult result;
  Expected<bool> fits = searchWithinTemporaries(options, [&](const HloOptions &own) -> Expected<TemporariesOutcome> {
    Expected<HloResult> answer = scheduleOnce(module, model, own);
    if (!answer)
      return answer.takeError();
    result = std::move(*answer);
    if (!result.isChanged)
      return TemporariesOutcome();
    return TemporariesOutcome{true, temporaries.excessPpm(module, sequencesOf(module, result))};
  });
  if (!fits)
    return fits.takeError();
  if (*fits || !result.isChanged)
    return std::move(result);
  HloOptions own = options;
  own.keepReason = "XLA would need more memory for the temporaries of a faster order";
  return scheduleOnce(module, model, own);
}

Error commsched::hlo::visitEntry(const HloModule &module, const CostModel &model,
                                 function_ref<void(const HloGraph &, const Problem &)> visit) {
  HloOptions measure;
  measure.measureOnly = true;
  ModuleScheduler scheduler(module, model, measure);
  scheduler.visitEntry = visit;
  HloResult measured;
  return scheduler.run(measured);
}

Expected<LoopForecast> commsched::hlo::forecastLoops(const HloModule &module, const CostModel &model,
                                                     const HloOptions &options) {
  HloOptions measure = options;
  measure.measureOnly = true;
  LoopForecast forecast;
  ModuleScheduler scheduler(module, model, measure);
  scheduler.forecast = &forecast;
  HloResult measured;
  if (Error error = scheduler.run(measured))
    return std::move(error);
  return std::move(forecast);
}
