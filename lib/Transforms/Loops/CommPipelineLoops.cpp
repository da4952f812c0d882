//===- CommPipelineLoops.cpp - The pass comm-pipeline-loops -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides loop by loop, from the inside out, on copies of the function whose blocks are all scheduled.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/AccessTimes.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Report/PassJournal.h"
#include "CommSched/Scheduling/Bounds/IntervalBound.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "LoopPipeline.h"
#include "LoopStages.h"
#include "PassBase/FunctionCopy.h"
#include "PassBase/MachinePass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace commsched {
#define GEN_PASS_DEF_COMMPIPELINELOOPS
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

/// Whether blocks contain collectives by themselves, not in regions of their operations.
bool hasCollectives(ArrayRef<Region *> regions) {
  return llvm::any_of(regions, [](Region *region) {
    return llvm::any_of(region->getOps(), [](Operation &op) { return isa<comm::CollectiveOpInterface>(op); });
  });
}

/// The loops of a function whose bodies contain collectives, innermost first.
SmallVector<scf::ForOp> findLoops(Operation *function) {
  SmallVector<scf::ForOp> loops;
  function->walk([&](scf::ForOp loop) {
    if (hasCollectives(&loop.getRegion()))
      loops.push_back(loop);
  });
  return loops;
}

/// The loops of a function one after the other. Each gets a number when it has been looked at. Writing a loop as a
/// pipeline copies the loops inside of it in front of it and behind it; the copies have the numbers of their originals.
class LoopNumbers {
public:
  explicit LoopNumbers(Operation *function) : function(function) {}
  ~LoopNumbers() { drop(); }

  /// Removes the numbers.
  void drop() {
    for (scf::ForOp loop : findLoops(function))
      loop->removeDiscardableAttr(kName);
  }

  /// The index (findLoops) of the first loop without a number.
  std::optional<size_t> findNext() const {
    SmallVector<scf::ForOp> loops = findLoops(function);
    const auto *next = llvm::find_if(loops, [](scf::ForOp loop) { return !loop->hasAttr(kName); });
    return next == loops.end() ? std::nullopt : std::optional<size_t>(next - loops.begin());
  }

  void number(scf::ForOp loop) { loop->setDiscardableAttr(kName, Builder(function).getIndexAttr(next++)); }
  static size_t numberOf(scf::ForOp loop) { return loop->getAttrOfType<IntegerAttr>(kName).getInt(); }

private:
  static constexpr StringLiteral kName = "commsched_loop_number";
  Operation *function;
  int64_t next = 0;
};

/// What a function takes when all of its blocks are scheduled.
struct FunctionTime {
  Ns makespan = 0;
  /// The peak of the outermost block.
  Bytes peak = 0;
  /// Indexed by loop (findLoops): the time of one iteration.
  std::vector<Ns> intervals;
  /// Indexed by loop: why no pipeline of its body, as it was before its block was scheduled, has a shorter iteration.
  std::vector<IntervalProof> proofs;
  /// Why the blocks could not be scheduled; empty if they are.
  std::string defect;
};

/// How one loop is written, and what the function takes then.
struct LoopTrial {
  MovedCollectives moved = MovedCollectives::Both;
  LoopStages stages;
  /// What the blocks were scheduled with.
  MemoryBudget budget;
  FunctionTime time;
};

/// Schedules the blocks of a function, and plays it.
class FunctionScheduler {
public:
  FunctionScheduler(const CostModel &model, const SolverOptions &solver) : model(model), solver(solver) {}

  /// Schedules every block, each under the limit that its own peak and the budget give.
  FunctionTime schedule(Operation *function, const MemoryBudget &budget) const {
    FunctionTime result;
    CallSummaries summaries;
    AccessOrder accesses(function, summaries);
    SmallVector<scf::ForOp> loops = findLoops(function);
    result.proofs.resize(loops.size());
    for (Block *block : findSchedulableBlocks(function)) {
      // The blocks inside of this one are scheduled, so loops inside count with what they take from now on.
      for (auto [index, loop] : llvm::enumerate(loops))
        if (loop.getBody() == block)
          result.proofs[index] = proveLoop(loop);
      if (result.defect = scheduleBlock(*block, accesses, budget); !result.defect.empty())
        return result;
    }
    LoadedBlock outermost = load(function->getRegion(0).front());
    result.defect = outermost.defect;
    if (!result.defect.empty())
      return result;
    std::vector<NodeId> order = identityOrder(outermost.problem);
    result.makespan = makespanOf(outermost.problem, order);
    result.peak = peakOf(outermost.problem, order);
    for (scf::ForOp loop : loops) {
      LoadedBlock body = load(*loop.getBody());
      result.intervals.push_back(makespanOf(body.problem, identityOrder(body.problem)));
    }
    return result;
  }

  /// The limit on the peak of the outermost block, from that of the block as given.
  Bytes limitOf(Operation *function) const {
    LoadedBlock given = load(function->getRegion(0).front());
    return solver.schedule.memory.limitFor(peakOf(given.problem, identityOrder(given.problem)));
  }

private:
  IntervalProof proveLoop(scf::ForOp loop) const {
    LoadedBlock body = load(*loop.getBody());
    Operation *yield = loop.getBody()->getTerminator();
    std::vector<LoopEdge> carried;
    for (auto [argument, value] : llvm::zip_equal(loop.getRegionIterArgs(), yield->getOperands()))
      if (Operation *def = value.getDefiningOp())
        for (Operation *user : argument.getUsers())
          if (NodeId from = body.nodes.find(def), to = body.nodes.find(user); from != kNone && to != kNone)
            carried.push_back({from, to});
    return proveInterval(body.problem, carried);
  }

  LoadedBlock load(Block &block) const { return loadBlock(block, OperationCosts(model), solver.load); }

  std::string scheduleBlock(Block &block, const AccessOrder &order, const MemoryBudget &budget) const {
    LoadedBlock loaded = load(block);
    if (!loaded.defect.empty() || loaded.problem.hasStreams())
      return loaded.defect;
    ScheduleOptions options = solver.schedule;
    options.memory = budget;
    Schedule answer = commsched::schedule(loaded.problem, options);
    if (!answer.isWithinLimit())
      return "the limit on memory is below the least peak that was found";
    ScheduleRequirements requirements{answer.limit, solver.load.order};
    if (std::string wrong = verify(loaded.problem, answer, requirements); !wrong.empty())
      return wrong;
    if (findViolation(order.derive(block), accessTimesOf(loaded.problem, answer)))
      return "two accesses to one memory are in the wrong order; please report this";
    applySchedule(loaded, answer);
    return "";
  }

  const CostModel &model;
  const SolverOptions &solver;
};

/// What a loop stays as it is for, or what it becomes.
struct LoopOutcome {
  std::optional<LoopTrial> best;
  /// The fastest pipeline that is above the limit, or not faster.
  std::optional<LoopTrial> refused;
  std::string obstacle;
  /// The least time of an iteration in any pipeline, ns.
  Ns leastInterval = 0;
};

struct CommPipelineLoopsPass : BudgetedPass<commsched::impl::CommPipelineLoopsBase<CommPipelineLoopsPass>> {
  using BudgetedPass::BudgetedPass;

  void runWithModel() final {
    besideMessages = sendsOrReceives(getOperation());
    SmallVector<Operation *> functions;
    getOperation().walk([&](FunctionOpInterface function) {
      if (!function.isExternal() && function->getNumRegions() == 1 && function->getRegion(0).hasOneBlock())
        functions.push_back(function);
    });
    for (Operation *function : functions) {
      sayOtherLoops(function);
      if (!findLoops(function).empty() && failed(pipelineFunction(function)))
        return signalPassFailure();
    }
  }

private:
  /// LoadOptions::besideMessages of all blocks.
  bool besideMessages = false;

  SolverOptions solverOptions() const {
    SolverOptions solver(collectiveOrder, bucketing, bucketCapBytes, effort);
    solver.schedule.memory = memory;
    solver.load.besideMessages = besideMessages;
    return solver;
  }

  /// Says of loops that are no scf.for why they stay as they are.
  void sayOtherLoops(Operation *function) {
    function->walk([&](LoopLikeOpInterface loop) {
      if (isa<scf::ForOp>(loop) || !hasCollectives(loop.getLoopRegions()))
        return;
      if (auto remark = remark::missed(loop.getLoc(), remark::RemarkOpts::name("loop").category(getArgument()))) {
        std::string reason = "only scf.for is pipelined";
        if (loop->getName().getStringRef() == "affine.for")
          reason += "; --lower-affine makes one of an affine.for";
        describeRemark(remark, loop->getName().getStringRef(), reason, "not pipelined: " + reason);
      }
    });
  }

  /// Writes all loops that can be written so as pipelines, and leaves the order of the blocks as it is then.
  LogicalResult pipelineByForce(Operation *function) {
    LoopNumbers numbers(function);
    while (std::optional<size_t> index = numbers.findNext()) {
      scf::ForOp loop = findLoops(function)[*index];
      CallSummaries summaries;
      LoopBody body(loop, AccessOrder(function, summaries), besideMessages);
      std::optional<LoopStages> stages;
      for (MovedCollectives moved : {MovedCollectives::Both, MovedCollectives::Ahead, MovedCollectives::Behind})
        if (!stages && body.obstacle().empty())
          stages = body.stages(moved);
      if (stages && findTripCountObstacle(loop, stages->last + 1).empty()) {
        FailureOr<scf::ForOp> pipelined = pipelineLoop(loop, *stages);
        if (failed(pipelined))
          return emitError(function->getLoc()) << getArgument() << ": a loop could not be written as a pipeline";
        loop = *pipelined;
      }
      numbers.number(loop);
    }
    return success();
  }

  LogicalResult pipelineFunction(Operation *function) {
    if (force)
      return pipelineByForce(function);
    SolverOptions solver = solverOptions();
    FunctionScheduler scheduler(*model, solver);
    Bytes limit = scheduler.limitOf(function);
    MemoryBudget budget = memory;
    FunctionTime now = tried(function, scheduler, budget, {});
    if (!now.defect.empty())
      return emitError(function->getLoc()) << getArgument() << ": " << now.defect;
    LoopNumbers numbers(function);
    bool changes = false;
    std::vector<IntervalProof> proofs;
    while (std::optional<size_t> index = numbers.findNext()) {
      LoopOutcome outcome = decide(function, *index, scheduler, limit, now);
      scf::ForOp loop = findLoops(function)[*index];
      outcome.leastInterval = now.proofs[*index].bound();
      say(loop, *index, outcome, now, limit);
      proofs.push_back(std::move(now.proofs[*index]));
      if (outcome.best) {
        FailureOr<scf::ForOp> pipelined = pipelineLoop(loop, outcome.best->stages);
        if (failed(pipelined))
          return emitError(function->getLoc()) << getArgument() << ": a loop could not be written as a pipeline";
        loop = *pipelined;
        now = std::move(outcome.best->time);
        budget = outcome.best->budget;
        changes = true;
      }
      numbers.number(loop);
    }
    noteProofs(function, proofs);
    numbers.drop();
    if (!changes)
      return success();
    if (std::string defect = scheduler.schedule(function, budget).defect; !defect.empty())
      return emitError(function->getLoc()) << getArgument() << ": " << defect;
    stampSignature(function);
    return success();
  }

  /// Leaves the proofs to the certificates of the loops' bodies, if some are written. Indexed by number of the loop.
  void noteProofs(Operation *function, ArrayRef<IntervalProof> proofs) {
    Environment *environment = Environment::of(function->getContext());
    PassJournal *journal = environment ? environment->journal.get() : nullptr;
    if (!journal || !journal->certifies)
      return;
    // A new name would change those of the blocks without one.
    SmallVector<std::pair<scf::ForOp, std::string>> names;
    for (scf::ForOp loop : findLoops(function))
      names.emplace_back(loop, reportNameOf(*loop.getBody()));
    for (auto &[loop, name] : names) {
      // A pipeline has a new terminator. With a name, no later pass gives its number to another block.
      loop.getBody()->getTerminator()->setDiscardableAttr(kReportedNameAttrName,
                                                          StringAttr::get(function->getContext(), name));
      journal->noteLoop(name, {proofs[LoopNumbers::numberOf(loop)], bucketing});
    }
  }

  /// What a copy of the function takes in which one loop is written as a pipeline.
  FunctionTime tried(Operation *function, const FunctionScheduler &scheduler, const MemoryBudget &budget,
                     std::optional<std::pair<size_t, const LoopStages *>> rewrite) {
    FunctionCopy copy(function);
    if (rewrite && failed(pipelineLoop(findLoops(copy.function())[rewrite->first], *rewrite->second))) {
      FunctionTime refused;
      refused.defect = "the loop cannot be written as a pipeline";
      return refused;
    }
    return scheduler.schedule(copy.function(), budget);
  }

  LoopOutcome decide(Operation *function, size_t index, const FunctionScheduler &scheduler, Bytes limit,
                     const FunctionTime &now) {
    LoopOutcome outcome;
    scf::ForOp loop = findLoops(function)[index];
    if (collectiveOrder != CollectiveOrder::Free) {
      outcome.obstacle = "collectives have to keep their order";
      return outcome;
    }
    CallSummaries summaries;
    LoopBody body(loop, AccessOrder(function, summaries), besideMessages);
    outcome.obstacle = body.obstacle();
    for (MovedCollectives moved : {MovedCollectives::Both, MovedCollectives::Ahead, MovedCollectives::Behind}) {
      std::optional<LoopStages> stages = outcome.obstacle.empty() ? body.stages(moved) : std::nullopt;
      if (!stages)
        continue;
      if (std::string why = findTripCountObstacle(loop, stages->last + 1); !why.empty()) {
        outcome.obstacle = why;
        return outcome;
      }
      auto tryWith = [&](const MemoryBudget &budget) {
        return LoopTrial{moved, *stages, budget, tried(function, scheduler, budget, std::pair(index, &*stages))};
      };
      LoopTrial trial = tryWith(memory);
      // The budget is that of the whole function. A block by itself may have to leave it to what crosses iterations.
      if (trial.time.defect.empty() && trial.time.peak > limit && memory.ppm > 0)
        trial = tryWith(MemoryBudget());
      if (!trial.time.defect.empty())
        continue;
      bool isFaster = trial.time.makespan < now.makespan, fits = trial.time.peak <= limit;
      std::optional<LoopTrial> &known = isFaster && fits ? outcome.best : outcome.refused;
      if (!known || trial.time.makespan < known->time.makespan)
        known = std::move(trial);
    }
    if (!outcome.best && !outcome.refused && outcome.obstacle.empty())
      outcome.obstacle = "what other iterations access does not let a collective move";
    return outcome;
  }

  void say(scf::ForOp loop, size_t index, const LoopOutcome &outcome, const FunctionTime &before, Bytes limit) {
    auto options = remark::RemarkOpts::name("loop").category(getArgument());
    Location loc = loop.getLoc();
    auto remark = outcome.best ? remark::passed(loc, options) : remark::missed(loc, options);
    if (!remark)
      return;
    const std::optional<LoopTrial> &shown = outcome.best ? outcome.best : outcome.refused;
    if (!shown)
      return describeRemark(remark, "scf.for", outcome.obstacle, "not pipelined: " + outcome.obstacle);
    const FunctionTime &after = shown->time;
    remark << remark::metric("Ahead", static_cast<int64_t>(shown->stages.ahead.size()))
           << remark::metric("Behind", static_cast<int64_t>(shown->stages.behind.size()))
           << remark::metric("IterationNsBefore", before.intervals[index])
           << remark::metric("IterationNsAfter", after.intervals[index])
           << remark::metric("IterationNsBound", outcome.leastInterval)
           << remark::metric("MakespanNsBefore", before.makespan) << remark::metric("MakespanNsAfter", after.makespan)
           << remark::metric("PeakBytesBefore", before.peak) << remark::metric("PeakBytesAfter", after.peak);
    std::string times = formatNs(after.makespan) + ", " + formatNs(before.makespan) + " without; an iteration takes " +
                        formatNs(after.intervals[index]) + ", " + formatNs(before.intervals[index]) +
                        " without, at least " + formatNs(outcome.leastInterval) + " in any pipeline; peak " +
                        formatBytes(after.peak) + ", " + formatBytes(before.peak) + " without";
    if (outcome.best)
      return describeRemark(remark, "scf.for", kNoLimitingFactor,
                            "pipelined: " + stringify(shown->moved).str() + "; " + times);
    bool fits = after.peak <= limit;
    std::string reason =
        fits ? "no pipeline is faster"
             : "the peak would exceed the limit of " + formatBytes(limit) + " by " + formatBytes(after.peak - limit);
    describeRemark(remark, "scf.for", fits ? StringRef(reason) : "the memory limit",
                   "not pipelined: " + reason + "; " + stringify(shown->moved).str() + " would take " + times);
  }
};

} // namespace
