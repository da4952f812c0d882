//===- StrandSearch.cpp - Which split of a block is the fastest -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "StrandSearch.h"
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"

using namespace mlir;
using namespace commsched;

/// Dimensions that the search tries: those of most collectives. Others have at most as many, and a block has few that
/// mean different splits.
static constexpr size_t kTriedDimensions = 4;
/// Staggers that are tried first, in quarters of the distance between two collectives of one strand.
static constexpr int64_t kTriedStaggers[] = {0, 2, 4, 6, 8};
/// Candidates that are searched with the whole effort.
static constexpr size_t kSearchedInFull = 2;

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

/// A copy of a function beside the original, where its symbols resolve; erased in the end.
class FunctionCopy {
public:
  explicit FunctionCopy(Operation *function) : copy(function->clone()) {
    function->getBlock()->getOperations().insertAfter(function->getIterator(), copy);
  }
  FunctionCopy(const FunctionCopy &) = delete;
  FunctionCopy &operator=(const FunctionCopy &) = delete;
  ~FunctionCopy() { copy->erase(); }

  Block &block() { return copy->getRegion(0).front(); }

private:
  Operation *copy;
};

class StrandSearch {
public:
  StrandSearch(Operation *function, const SplitSpace &space, const CostModel &model, const StrandSearchOptions &options)
      : function(function), space(space), model(model), options(options) {}

  StrandOutcome run() {
    ScheduleOptions solver = options.solver.schedule;
    OperationCosts costs(model);
    LoadedBlock given = loadBlock(function->getRegion(0).front(), costs, options.solver.load);
    outcome.unsplit = solve(given, solver);
    limit = outcome.unsplit.limit;
    for (const TokenDimension &dimension : space.dimensions().take_front(kTriedDimensions))
      for (int64_t parts = 2; parts <= options.maxStrands; ++parts)
        tryDimension(dimension.id, parts);
    sortTrials();
    size_t searched = std::min(kSearchedInFull, outcome.trials.size());
    if (solver.effort != 0)
      for (size_t i = 0; i < searched; ++i)
        outcome.trials[i] = tryCandidate(outcome.trials[i].candidate, outcome.trials[i].plan, solver.effort);
    std::stable_sort(outcome.trials.begin(), outcome.trials.begin() + searched, isBetter);
    return std::move(outcome);
  }

private:
  static bool isBetter(const StrandTrial &a, const StrandTrial &b) {
    return std::pair(!a.isWithinLimit(), a.schedule.makespan) < std::pair(!b.isWithinLimit(), b.schedule.makespan);
  }

  void sortTrials() { llvm::stable_sort(outcome.trials, isBetter); }

  Schedule solve(const LoadedBlock &loaded, ScheduleOptions solver) const {
    solver.slowDown = loaded.slowDown;
    return schedule(loaded.problem, solver);
  }

  void tryDimension(int32_t dimension, int64_t parts) {
    StrandPlan plan = space.plan(dimension, parts);
    if (plan.isEmpty())
      return;
    int64_t distance = std::max<int64_t>(1, static_cast<int64_t>(plan.axes.size()) / plan.numStarts);
    if (options.stagger >= 0)
      return keep(tryCandidate({dimension, parts, options.stagger}, plan, 0));
    for (int64_t quarters : kTriedStaggers)
      keep(tryCandidate({dimension, parts, distance * quarters / 4}, plan, 0));
  }

  void keep(StrandTrial trial) {
    ++outcome.tried;
    outcome.trials.push_back(std::move(trial));
  }

  StrandTrial tryCandidate(StrandCandidate candidate, const StrandPlan &plan, int64_t effort) const {
    FunctionCopy copy(function);
    WrittenStrands written = writeAndArrange(copy.block(), plan, candidate.stagger, model, options.solver.load);
    OperationCosts costs(model);
    LoadedBlock loaded = loadBlock(copy.block(), costs, options.solver.load);
    ScheduleOptions solver = options.solver.schedule;
    solver.effort = effort;
    solver.memory.limit = limit;
    return {candidate, plan, solve(loaded, solver), written.slices, written.joins};
  }

  Operation *function;
  const SplitSpace &space;
  const CostModel &model;
  const StrandSearchOptions &options;
  StrandOutcome outcome;
  /// What the peak of every candidate may be, bytes.
  Bytes limit = kUnlimited;
};

} // namespace

StrandOutcome commsched::searchStrands(Operation *function, const SplitSpace &space, const CostModel &model,
                                       const StrandSearchOptions &options) {
  return StrandSearch(function, space, model, options).run();
}
