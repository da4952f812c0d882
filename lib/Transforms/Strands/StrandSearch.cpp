//===- StrandSearch.cpp - Search for the fastest split of a block -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "StrandSearch.h"
#include "CommSched/Analysis/Storage.h"
#include "CommSched/Dialect/Comm/CommSizes.h"
#include "CommSched/Scheduling/Bounds/SplitBound.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "PassBase/FunctionCopy.h"
#include <set>

using namespace mlir;
using namespace commsched;

/// Dimensions that the search tries: those of most collectives. Others have at most as many, and a block has few that
/// mean different splits.
static constexpr size_t kTriedDimensions = 3;
/// Windows that are tried, in percent of the time of a collective. A collective is hidden by as much work as it takes
/// itself; more work on either side bridges what cannot be split.
static constexpr int64_t kTriedWindows[] = {60, 100, 170, -1};
/// Windows that are tried around the best one, in percent of it.
static constexpr int64_t kNextWindows[] = {80, 125};
/// Staggers that are tried, in quarters of the distance between two collectives of one strand.
static constexpr int64_t kTriedStaggers[] = {4, 2};
/// Classes of regions that are tried without: those of most collectives.
static constexpr int32_t kTriedClasses = 4;
/// Candidates that are searched with the whole effort.
static constexpr size_t kSearchedInFull = 2;
/// Writing and loading one operation takes the time of about this many steps of a search (measured).
static constexpr int64_t kStepsPerOperation = 10;
/// Share of the steps, in percent, that is left for the candidates that are searched with effort.
static constexpr int64_t kFullPercent = 30;
/// A block is not split if no split gains this share of its time, in thousandths.
static constexpr int64_t kLeastGainPermille = 2;

bool StrandOutcome::isHopeless() const {
  return unsplit.isWithinLimit() && (unsplit.makespan - lowerBound) * 1000 < unsplit.makespan * kLeastGainPermille;
}

bool StrandOutcome::splits() const {
  return !trials.empty() && trials.front().isWithinLimit() &&
         (trials.front().schedule.makespan < unsplit.makespan || !unsplit.isWithinLimit());
}

/// Gives `block` the order `order` of `loaded`.
static void arrange(Block &block, const LoadedBlock &loaded, const Order &order) {
  std::vector<Operation *> ops;
  for (NodeId node : order)
    ops.push_back(loaded.nodes[node]);
  applyOrder(block, ops);
}

WrittenStrands commsched::writeAndArrange(Block &block, const StrandPlan &plan, int64_t stagger, const CostModel &model,
                                          const LoadOptions &load) {
  OperationCosts costs(model);
  WrittenStrands written = writeStrands(block, plan, costs);
  OperationCosts after(model);
  LoadedBlock loaded = loadBlock(block, after, load);
  if (loaded.defect.empty())
    arrange(block, loaded, staggeredOrder(loaded, written, stagger));
  return written;
}

namespace {

class StrandSearch {
public:
  StrandSearch(Operation *function, const SplitSpace &space, const CostModel &model, const StrandSearchOptions &options)
      : function(function), space(space), model(model), options(options) {
    for (auto [index, op] : llvm::enumerate(space.operations()))
      indexOf[op] = static_cast<NodeId>(index);
  }

  StrandOutcome run() {
    ScheduleOptions solver = options.solver.schedule;
    OperationCosts costs(model);
    LoadedBlock given = loadBlock(function->getRegion(0).front(), costs, options.solver.load);
    outcome.unsplit = solve(given, solver);
    limit = outcome.unsplit.limit;
    if (solver.effort != 0) {
      int64_t least = mulDiv(defaultEffort(given.problem.size()), kLeastSearchPercent, 100);
      budget = kMostTimes * std::max(outcome.unsplit.steps, least);
      steps = outcome.unsplit.steps + kStepsPerOperation * given.problem.size() * (options.maxStrands + 1);
    }
    for (Ns time : space.times())
      unsplitWork += time;
    findBound();
    if (outcome.isHopeless())
      return std::move(outcome);
    tryCandidates();
    sortTrials();
    searchBest();
    if (outcome.splits())
      findBreakEven();
    return std::move(outcome);
  }

private:
  static bool isBetter(const StrandTrial &a, const StrandTrial &b) {
    return std::pair(!a.isWithinLimit(), a.schedule.makespan) < std::pair(!b.isWithinLimit(), b.schedule.makespan);
  }

  void sortTrials() { llvm::stable_sort(outcome.trials, isBetter); }

  /// Searches the best candidates with effort: each with what is left, divided by their number.
  void searchBest() {
    int64_t effort = options.solver.schedule.effort;
    size_t searched = std::min(kSearchedInFull, outcome.trials.size());
    for (size_t i = 0; effort != 0 && i < searched; ++i) {
      // Half of it for the order alone, and half for order and buckets.
      int64_t left = std::max<int64_t>(0, budget - steps) / static_cast<int64_t>(searched - i) / 2;
      int64_t wanted =
          effort < 0 ? defaultEffort(static_cast<NodeId>(outcome.trials[i].schedule.order.size())) : effort;
      StrandTrial first = std::move(outcome.trials[i]);
      outcome.trials[i] = tryCandidate(first.candidate, std::min(left, wanted));
      if (isBetter(first, outcome.trials[i]))
        outcome.trials[i] = std::move(first);
    }
    std::stable_sort(outcome.trials.begin(), outcome.trials.begin() + searched, isBetter);
  }

  Schedule solve(const LoadedBlock &loaded, ScheduleOptions solver) const { return schedule(loaded.problem, solver); }

  ArrayRef<TokenDimension> dimensions() const { return space.dimensions().take_front(kTriedDimensions); }

  //===---------------------------------------------------------------------------------------===//
  // Candidates
  //===---------------------------------------------------------------------------------------===//

  StrandPlan planOf(const StrandCandidate &candidate) const {
    StrandPlan plan = space.plan(candidate.dimension, candidate.parts, {candidate.window, nullptr, candidate.sums});
    if (candidate.droppedClass < 0)
      return plan;
    llvm::BitVector kept(plan.numRegions, true);
    for (int32_t region = 0; region < plan.numRegions; ++region)
      if (plan.classOf[region] == candidate.droppedClass)
        kept.reset(region);
    return space.plan(candidate.dimension, candidate.parts, {candidate.window, &kept, candidate.sums});
  }

  /// The windows to try: one if the options give one.
  SmallVector<int64_t> windows() const {
    if (options.window >= 0)
      return {options.window == 0 ? -1 : options.window};
    return SmallVector<int64_t>(std::begin(kTriedWindows), std::end(kTriedWindows));
  }

  /// Coordinate by coordinate: the dimension and the window with the fewest strands, then the number of strands, the
  /// stagger and the window again, then the regions.
  void tryCandidates() {
    int64_t stagger = options.stagger >= 0 ? options.stagger : kPhases;
    for (const TokenDimension &dimension : dimensions())
      for (int64_t parts = 2, found = 0; parts <= options.maxStrands && !found; ++parts)
        for (int64_t window : windows())
          found += tryNext({dimension.id, parts, stagger, window, -1, true});
    if (outcome.trials.empty())
      return;
    if (space.hasSums())
      tryVariants([&](StrandCandidate best, auto consider) {
        best.sums = false;
        consider(best);
      });
    tryVariants([&](StrandCandidate best, auto consider) {
      for (best.parts += 1; best.parts <= options.maxStrands; ++best.parts)
        consider(best);
    });
    if (options.stagger < 0)
      tryVariants([&](StrandCandidate best, auto consider) {
        StrandPlan plan = planOf(best);
        int64_t distance = std::max<int64_t>(1, static_cast<int64_t>(plan.axes.size()) / plan.numStarts);
        for (int64_t quarters : kTriedStaggers) {
          best.stagger = distance * quarters / 4;
          consider(best);
        }
      });
    if (options.window < 0)
      tryVariants([&](StrandCandidate best, auto consider) {
        for (int64_t percent : kNextWindows)
          if (StrandCandidate next = best; best.window > 0) {
            next.window = best.window * percent / 100;
            consider(next);
          }
      });
    tryVariants([&](StrandCandidate best, auto consider) {
      int32_t classes = planOf(best).numClasses;
      for (int32_t dropped = 0; classes > 1 && dropped < std::min(classes, kTriedClasses); ++dropped) {
        best.droppedClass = dropped;
        consider(best);
      }
    });
  }

  /// Calls `vary` with the best candidate so far and a function that tries another one.
  template <typename Vary> void tryVariants(Vary vary) {
    vary(bestCandidate(), [&](const StrandCandidate &next) { tryNext(next); });
  }

  StrandCandidate bestCandidate() {
    return std::min_element(outcome.trials.begin(), outcome.trials.end(), isBetter)->candidate;
  }

  /// What tells plans apart: the axis of each operation.
  static std::vector<int64_t> formOf(const StrandPlan &plan) {
    std::vector<int64_t> form;
    for (int32_t index : plan.axisOf) {
      form.push_back(index < 0 ? 0 : 1);
      if (index < 0)
        continue;
      llvm::append_range(form, plan.axes[index].operands);
      llvm::append_range(form, plan.axes[index].results);
    }
    return form;
  }

  /// Returns false if nothing can be split so, or the same has been tried.
  bool tryNext(const StrandCandidate &candidate) {
    bool isSpent = budget > 0 && steps > mulDiv(budget, 100 - kFullPercent, 100);
    if (outcome.tried >= kMostCandidates || (isSpent && outcome.tried > 0))
      return false;
    StrandPlan plan = planOf(candidate);
    if (plan.isEmpty() || !known.insert({candidate.parts, candidate.stagger, formOf(plan)}).second)
      return !plan.isEmpty();
    ++outcome.tried;
    outcome.trials.push_back(tryCandidate(candidate, 0));
    return true;
  }

  StrandTrial tryCandidate(const StrandCandidate &candidate, int64_t effort) {
    FunctionCopy copy(function);
    StrandTrial trial{candidate, planOf(candidate), {}};
    OperationCosts costs(model);
    WrittenStrands written = writeStrands(copy.block(), trial.plan, costs);
    LoadedBlock loaded = loadBlock(copy.block(), costs, options.solver.load);
    if (loaded.defect.empty())
      loaded.problem = inOrder(loaded.problem, staggeredOrder(loaded, written, candidate.stagger));
    ScheduleOptions solver = options.solver.schedule;
    solver.effort = effort;
    solver.memory.limit = limit;
    trial.schedule = solve(loaded, solver);
    steps += trial.schedule.steps + kStepsPerOperation * loaded.problem.size();
    trial.slices = written.slices;
    trial.copies = written.copies;
    trial.joins = written.joins;
    trial.inPlace = written.inPlace;
    trial.sums = written.sums;
    for (const Node &node : loaded.problem.nodes)
      trial.addedWork += node.kind == NodeKind::Wait ? 0 : node.cost;
    trial.addedWork -= unsplitWork;
    return trial;
  }

  //===---------------------------------------------------------------------------------------===//
  // The bound
  //===---------------------------------------------------------------------------------------===//

  /// A split has one dimension and one number of strands. So the least of the bounds for each of these holds.
  void findBound() {
    Block &block = function->getRegion(0).front();
    OperationCosts costs(model);
    LoadOptions load = options.solver.load;
    load.order = CollectiveOrder::Free;
    LoadedBlock loaded = loadBlock(block, costs, load);
    bool isFirst = true;
    auto consider = [&](ArrayRef<PartCosts> parts) {
      LowerBound bound = splitLowerBound(loaded.problem, parts);
      if (!isFirst && bound.makespan >= outcome.lowerBound)
        return;
      isFirst = false;
      outcome.lowerBound = bound.makespan;
      outcome.lowerBoundBy = bound.describe(loaded.problem);
    };
    for (const TokenDimension &dimension : dimensions())
      for (int64_t parts = 2; parts <= options.maxStrands; ++parts) {
        std::vector<PartCosts> costsOfParts(loaded.problem.size());
        llvm::DenseSet<std::pair<NodeId, NodeId>> partwise;
        for (bool sums : {true, false})
          if (StrandPlan plan = space.plan(dimension.id, parts, {-1, nullptr, sums});
              !plan.isEmpty() && (sums || space.hasSums())) {
            addPartCosts(plan, loaded.problem, costsOfParts);
            addPartwiseUses(plan, partwise);
          }
        addWholeUses(partwise, loaded.problem, costsOfParts);
        consider(costsOfParts);
      }
    if (isFirst)
      consider(std::vector<PartCosts>(loaded.problem.size()));
  }

  /// Adds the pairs of nodes of which a part of the second reads one part of the first alone.
  void addPartwiseUses(const StrandPlan &plan, llvm::DenseSet<std::pair<NodeId, NodeId>> &uses) const {
    llvm::DenseMap<Value, int64_t> dimOf;
    ArrayRef<Operation *> ops = space.operations();
    for (size_t i = 0; i < ops.size(); ++i) {
      if (plan.axisOf[i] < 0)
        continue;
      const SplitAxis &axis = plan.axes[plan.axisOf[i]];
      for (auto [operand, dim] : llvm::zip_equal(ops[i]->getOperands(), axis.operands))
        if (auto known = dimOf.find(operand); known != dimOf.end() && known->second == dim)
          uses.insert({indexOf.lookup(operand.getDefiningOp()), static_cast<NodeId>(i)});
      for (auto [result, dim] : llvm::zip_equal(ops[i]->getResults(), axis.results))
        if (dim != kPartialResult)
          dimOf[result] = dim;
    }
  }

  /// All other nodes whose operation reads a result read all parts. What reads the whole of a view reads the whole of
  /// what the view shows, so views count only if they cost nothing.
  void addWholeUses(const llvm::DenseSet<std::pair<NodeId, NodeId>> &partwise, const Problem &problem,
                    std::vector<PartCosts> &result) const {
    // The terminator is no node.
    for (auto [index, op] : llvm::enumerate(space.operations().take_front(problem.size()))) {
      auto node = static_cast<NodeId>(index);
      for (Value operand : op->getOperands()) {
        auto def = indexOf.find(operand.getDefiningOp());
        if (def == indexOf.end() || partwise.contains({def->second, node}))
          continue;
        bool isView = getAliasedValue(cast<OpResult>(operand)) != nullptr;
        if (result[def->second].splits && !(isView && problem.nodes[def->second].cost > 0))
          result[node].wholePreds.push_back(def->second);
      }
    }
  }

  void addPartCosts(const StrandPlan &plan, const Problem &problem, std::vector<PartCosts> &result) const {
    FunctionCopy copy(function);
    OperationCosts costs(model);
    WrittenStrands written = writeStrands(copy.block(), plan, costs);
    OperationCosts after(model);
    // Indexed by node: the sum over its parts.
    std::vector<Ns> sums(problem.size(), 0);
    for (Operation &op : copy.block()) {
      auto origin = written.originOf.find(&op);
      if (origin == written.originOf.end())
        continue;
      const Node &node = problem.nodes[origin->second];
      PartCosts &part = result[origin->second];
      Ns time = after.costOf(&op).time;
      if (!part.splits)
        part = {true, node.cost, node.cost, node.bytes};
      sums[origin->second] += time;
      part.part = std::min(part.part, time);
      if (auto start = dyn_cast<comm::CollectiveOpInterface>(op))
        part.bytes = std::min(part.bytes, comm::getCollectiveBytes(start));
    }
    for (auto [sum, part] : llvm::zip_equal(sums, result))
      if (sum > 0)
        part.total = std::min(part.total, sum);
  }

  //===---------------------------------------------------------------------------------------===//
  // The break-even inefficiency
  //===---------------------------------------------------------------------------------------===//

  /// Bisects over the inefficiency and plays the answer, whose order and buckets stay as they are.
  void findBreakEven() {
    const StrandTrial &best = outcome.trials.front();
    FunctionCopy copy(function);
    WrittenStrands written =
        writeAndArrange(copy.block(), best.plan, best.candidate.stagger, model, options.solver.load);
    OperationCosts costs(model);
    LoadedBlock loaded = loadBlock(copy.block(), costs, options.solver.load);
    const Problem &given = best.schedule.carriedOut(loaded.problem);
    std::vector<NodeId> slowed;
    for (NodeId node = 0; node < loaded.problem.size(); ++node)
      if (loaded.problem.nodes[node].kind == NodeKind::Compute && written.originOf.contains(loaded.nodes[node]))
        slowed.push_back(best.schedule.imageOf(node));
    llvm::erase(slowed, kNone);
    Problem played = given;
    auto pays = [&](int64_t permille) {
      for (NodeId node : slowed)
        played.nodes[node].cost = given.nodes[node].cost + given.nodes[node].cost * permille / 1000;
      return makespanOf(played, best.schedule.order) < outcome.unsplit.makespan;
    };
    int64_t low = 0, high = kLargestInefficiency;
    while (low < high)
      if (int64_t middle = (low + high + 1) / 2; pays(middle))
        low = middle;
      else
        high = middle - 1;
    outcome.breakEvenPermille = low;
  }

  Operation *function;
  const SplitSpace &space;
  const CostModel &model;
  const StrandSearchOptions &options;
  /// Indexed by operation: its place in the block, which is its node.
  llvm::DenseMap<Operation *, NodeId> indexOf;
  StrandOutcome outcome;
  /// All computations and collectives of the block as it is, ns.
  Ns unsplitWork = 0;
  /// The steps that the whole search may take, 0 for any number, and those that it has taken.
  int64_t budget = 0, steps = 0;
  /// Splits that have been tried: strands, stagger, form.
  std::set<std::tuple<int64_t, int64_t, std::vector<int64_t>>> known;
  /// What the peak of every candidate may be, bytes.
  Bytes limit = kUnlimited;
};

} // namespace

StrandOutcome commsched::searchStrands(Operation *function, const SplitSpace &space, const CostModel &model,
                                       const StrandSearchOptions &options) {
  return StrandSearch(function, space, model, options).run();
}
