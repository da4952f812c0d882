//===- CommSplitStrands.cpp - The pass comm-split-strands -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Asks the search for the best split of each function, carries it out, and says why or why not.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Report/NumericsReport.h"
#include "CommSched/Report/Report.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "PassBase/MachinePass.h"
#include "StrandSearch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSPLITSTRANDS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

/// The largest number of strands: strands of more parts are tiny kernels, and every candidate costs a solve.
constexpr int64_t kLargestNumberOfStrands = 8;

struct CommSplitStrandsPass : BudgetedPass<commsched::impl::CommSplitStrandsBase<CommSplitStrandsPass>> {
  using BudgetedPass::BudgetedPass;

  LogicalResult checkOptions(MLIRContext *context) final {
    if (maxStrands < 1 || maxStrands > kLargestNumberOfStrands)
      return emitError(UnknownLoc::get(context))
             << "max-strands=" << maxStrands.getValue() << ": expected a number from 1 to " << kLargestNumberOfStrands;
    return success();
  }

  void runWithModel() final {
    besideMessages = sendsOrReceives(getOperation());
    SmallVector<Operation *> functions;
    getOperation().walk([&](FunctionOpInterface function) {
      if (!function.isExternal() && function->getNumRegions() == 1 && function->getRegion(0).hasOneBlock())
        functions.push_back(function);
    });
    for (Operation *function : functions)
      if (failed(splitFunction(function)))
        return signalPassFailure();
  }

private:
  LoadOptions loadOptions() const { return solverOptions().load; }

  /// LoadOptions::besideMessages of all blocks.
  bool besideMessages = false;

  SolverOptions solverOptions() const {
    SolverOptions solver(collectiveOrder, bucketing, bucketCapBytes, effort);
    solver.schedule.memory = memory;
    solver.load.besideMessages = besideMessages;
    return solver;
  }

  LogicalResult splitFunction(Operation *function) {
    Block &block = function->getRegion(0).front();
    if (llvm::none_of(block, [](Operation &op) { return isa<CollectiveOpInterface>(op); }))
      return success();
    SplitSpace space(block, OperationCosts(*model), {allowReassociation, dimension});
    if (force)
      return splitByForce(function, space);
    if (maxStrands == 1)
      return success();
    StrandOutcome outcome =
        searchStrands(function, space, *model, StrandSearchOptions{maxStrands, stagger, window, solverOptions()});
    sayCandidates(space, outcome);
    sayRegions(space, outcome);
    sayBlock(function, space, outcome);
    note(function, outcome);
    if (!outcome.splits())
      return success();
    noteSums(function, space, outcome.trials.front().plan);
    return carryOut(function, outcome.trials.front());
  }

  /// Splits as the options say, whatever it costs.
  LogicalResult splitByForce(Operation *function, const SplitSpace &space) {
    Block &block = function->getRegion(0).front();
    for (const TokenDimension &dimension : space.dimensions()) {
      StrandPlan plan = space.plan(dimension.id, maxStrands, {window > 0 ? window : -1, nullptr});
      if (maxStrands == 1 || plan.isEmpty())
        continue;
      TrafficCheck before(block);
      noteSums(function, space, plan);
      writeAndArrange(block, plan, std::max<int64_t>(0, stagger), *model, loadOptions());
      return before.compare(TrafficCheck(block), function->getLoc(), getArgument());
    }
    return success();
  }

  LogicalResult carryOut(Operation *function, const StrandTrial &trial) {
    Block &block = function->getRegion(0).front();
    TrafficCheck before(block);
    writeAndArrange(block, trial.plan, trial.candidate.stagger, *model, loadOptions());
    OperationCosts costs(*model);
    LoadedBlock loaded = loadBlock(block, costs, loadOptions());
    ScheduleRequirements requirements{trial.schedule.limit, collectiveOrder};
    if (std::string defect = verify(loaded.problem, trial.schedule, requirements); !defect.empty())
      return emitError(function->getLoc())
             << getArgument() << ": the schedule of the strands does not verify: " << defect;
    applySchedule(loaded, trial.schedule);
    if (failed(before.compare(TrafficCheck(block), function->getLoc(), getArgument())))
      return failure();
    comparePrediction(block, OperationCosts(*model), collectiveOrder, trial.schedule.makespan, trial.schedule.peak,
                      getArgument());
    stampSignature(function);
    return success();
  }

  /// Leaves at the function that a plan adds the terms of sums in another order, if it does.
  static void noteSums(Operation *function, const SplitSpace &space, const StrandPlan &plan) {
    bool isEqual = llvm::all_of(llvm::zip_equal(space.operations(), plan.axisOf), [&](auto entry) {
      auto [op, axis] = entry;
      return axis < 0 || isExact(op, plan.axes[axis]);
    });
    if (!isEqual)
      addNumerics(function, {Numerics::Reassociated});
  }

  /// Leaves the numbers that a report shows at the function.
  void note(Operation *function, const StrandOutcome &outcome) {
    Builder builder(function->getContext());
    SmallVector<NamedAttribute> facts = {
        builder.getNamedAttr(kSplitBoundName, builder.getI64IntegerAttr(outcome.lowerBound)),
        builder.getNamedAttr(kSplitBoundByName, builder.getStringAttr(outcome.lowerBoundBy)),
        builder.getNamedAttr(kUnsplitName, builder.getI64IntegerAttr(outcome.unsplit.makespan)),
    };
    if (outcome.splits())
      facts.push_back(builder.getNamedAttr(kBreakEvenName, builder.getI64IntegerAttr(outcome.breakEvenPermille)));
    function->setAttr(kStrandsAttrName, builder.getDictionaryAttr(facts));
  }

  /// What the first answers of the solver say about each dimension and number of strands, at their best stagger.
  void sayCandidates(const SplitSpace &space, const StrandOutcome &outcome) {
    for (const TokenDimension &dimension : space.dimensions()) {
      llvm::SmallDenseSet<int64_t> said;
      for (const StrandTrial &trial : outcome.trials) {
        if (trial.candidate.dimension != dimension.id || !said.insert(trial.candidate.parts).second)
          continue;
        auto options = remark::RemarkOpts::name("candidate").category(getArgument());
        auto remark = remark::analysis(dimension.firstStart->getLoc(), options);
        if (!remark)
          return;
        addNumbers(remark, trial);
        describeRemark(remark, remarkKind(dimension.firstStart),
                       trial.isWithinLimit() ? StringRef(kNoLimitingFactor) : "the memory limit",
                       "a dimension of " + std::to_string(dimension.size) + ", in " +
                           std::to_string(trial.candidate.parts) + " strands, takes " +
                           formatNs(trial.schedule.makespan) + ", " + formatNs(outcome.unsplit.makespan) + " unsplit");
      }
    }
  }

  void addNumbers(remark::detail::InFlightRemark &remark, const StrandTrial &trial) {
    remark << remark::metric("Strands", trial.candidate.parts) << remark::metric("Stagger", trial.candidate.stagger)
           << remark::metric("WindowPercent", trial.candidate.window) << remark::metric("AddedNs", trial.addedWork)
           << remark::metric("Collectives", trial.plan.numStarts)
           << remark::metric("Operations", static_cast<int64_t>(trial.plan.axes.size()))
           << remark::metric("Regions", static_cast<int64_t>(trial.plan.numRegions))
           << remark::metric("Slices", trial.slices) << remark::metric("SlicesCopied", trial.copies)
           << remark::metric("Joins", trial.joins) << remark::metric("JoinsInPlace", trial.inPlace)
           << remark::metric("Sums", trial.sums) << remark::metric("MakespanNs", trial.schedule.makespan);
  }

  /// Why each region of the best candidate was or was not split.
  void sayRegions(const SplitSpace &space, const StrandOutcome &outcome) {
    if (outcome.trials.empty())
      return;
    const StrandTrial &best = outcome.trials.front();
    StrandPlan plan = space.plan(best.candidate.dimension, best.candidate.parts,
                                 {best.candidate.window, nullptr, best.candidate.sums});
    std::vector<RegionNumbers> regions(plan.numRegions);
    for (auto [index, op] : llvm::enumerate(space.operations()))
      if (int32_t region = plan.regionOf[index]; region >= 0)
        regions[region].add(op, space.times()[index]);
    for (auto [index, numbers] : llvm::enumerate(regions))
      sayRegion(numbers, plan.classOf[index], outcome);
  }

  struct RegionNumbers {
    Operation *firstStart = nullptr;
    int64_t operations = 0, starts = 0;
    Ns computation = 0, communication = 0;

    void add(Operation *op, Ns time) {
      bool isStart = isa<CollectiveOpInterface>(op);
      if (isStart && !firstStart)
        firstStart = op;
      ++operations;
      starts += isStart;
      (isStart ? communication : computation) += time;
    }
  };

  void sayRegion(const RegionNumbers &numbers, int32_t regionClass, const StrandOutcome &outcome) {
    if (!numbers.firstStart)
      return;
    const StrandTrial &best = outcome.trials.front();
    bool isDropped = regionClass == best.candidate.droppedClass;
    bool isSplit = outcome.splits() && !isDropped;
    auto options = remark::RemarkOpts::name("region").category(getArgument());
    Location loc = numbers.firstStart->getLoc();
    auto remark = isSplit ? remark::passed(loc, options) : remark::missed(loc, options);
    if (!remark)
      return;
    remark << remark::metric("Strands", best.candidate.parts) << remark::metric("Collectives", numbers.starts)
           << remark::metric("Operations", numbers.operations) << remark::metric("ComputationNs", numbers.computation)
           << remark::metric("CommunicationNs", numbers.communication) << remark::metric("Class", regionClass)
           << remark::metric("MakespanNs", best.schedule.makespan);
    std::string text = std::to_string(numbers.operations) + " operations of " + formatNs(numbers.computation) +
                       " around " + std::to_string(numbers.starts) + " collectives of " +
                       formatNs(numbers.communication);
    for (const StrandTrial &other : outcome.trials)
      if (other.candidate.droppedClass == regionClass && &other != &best) {
        remark << remark::metric("MakespanNsWithout", other.schedule.makespan);
        text += "; without regions of this class the block takes " + formatNs(other.schedule.makespan);
        break;
      }
    StringRef reason = isSplit                ? StringRef(kNoLimitingFactor)
                       : isDropped            ? "the block is faster if regions of this class stay whole"
                       : best.isWithinLimit() ? "the best split is not faster"
                                              : "no split is within the memory limit";
    describeRemark(remark, remarkKind(numbers.firstStart), reason, (isSplit ? "split: " : "not split: ") + text);
  }

  /// The decision for a block, in numbers.
  void sayBlock(Operation *function, const SplitSpace &space, const StrandOutcome &outcome) {
    auto options = remark::RemarkOpts::name("strands").category(getArgument());
    Location loc = function->getLoc();
    if (outcome.trials.empty()) {
      auto remark = remark::missed(loc, options);
      std::string reason = space.dimensions().empty() ? "no collective carries a dimension that the rules can split"
                           : outcome.isHopeless()     ? "no split can gain 0.2 %"
                                                      : "no dimension of a collective divides into the strands";
      remark << remark::metric("MakespanNsUnsplit", outcome.unsplit.makespan)
             << remark::metric("SplitLowerBoundNs", outcome.lowerBound);
      describeRemark(remark, "block", reason,
                     "not split: " + reason + "; " + formatNs(outcome.unsplit.makespan) + " unsplit, at least " +
                         formatNs(outcome.lowerBound) + " in any split (" + outcome.lowerBoundBy + ")");
      return;
    }
    const StrandTrial &best = outcome.trials.front();
    auto remark = outcome.splits() ? remark::passed(loc, options) : remark::missed(loc, options);
    if (!remark)
      return;
    addNumbers(remark, best);
    remark << remark::metric("Tried", outcome.tried) << remark::metric("MakespanNsUnsplit", outcome.unsplit.makespan)
           << remark::metric("SplitLowerBoundNs", outcome.lowerBound);
    if (outcome.splits())
      remark << remark::metric("BreakEvenPermille", outcome.breakEvenPermille);
    std::string numbers = formatNs(best.schedule.makespan) + " in " + std::to_string(best.candidate.parts) +
                          " strands, " + formatNs(outcome.unsplit.makespan) + " unsplit, at least " +
                          formatNs(outcome.lowerBound) + " in any split (" + outcome.lowerBoundBy + ")";
    if (outcome.splits())
      return describeRemark(remark, "block", kNoLimitingFactor, "split: " + numbers);
    std::string reason = best.isWithinLimit() ? "the best split is not faster" : "no split is within the memory limit";
    describeRemark(remark, "block", reason, "not split: " + numbers);
  }
};

} // namespace
