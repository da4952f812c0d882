//===- CommPlanMemory.cpp - The pass comm-plan-memory -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Decides on a copy of the function, where everything that may be made again is made again, and carries the decision
// out on the function.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/AccessTimes.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Lenses/Lenses.h"
#include "CommSched/Scheduling/Lenses/MemoryPlan.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "PassBase/FunctionCopy.h"
#include "PassBase/MachinePass.h"
#include "ReadCheck.h"
#include "Repetitions.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/FormatVariadic.h"

namespace commsched {
#define GEN_PASS_DEF_COMMPLANMEMORY
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

/// A value is cloned if the gap between two readers has this share of the block's computation, in thousandths.
static constexpr int64_t kLeastGapPermille = 15;
/// A value is cloned if it has this share of the block's peak, in millionths. Small values are always kept.
static constexpr int64_t kLeastBytesPpm = 20;

namespace {

/// A block in which everything that may be made again is made again.
struct RepeatedBlock {
  std::vector<RepeatedOps> ops;
  /// Indexed as `ops`.
  std::vector<Repetition> repetitions;
  /// Indexed as `ops`: what the program keeps.
  llvm::BitVector given;
};

/// What was decided for one value.
struct ValuePlan {
  /// Where it is made first.
  Location loc;
  std::string kind;
  /// Whether it is made again, in the program and by the plan.
  bool isGivenAgain, isAgain;
  Bytes bytes;
  /// The time of making it again.
  Ns time;
};

/// What was decided for a block, and what it brings.
struct BlockPlan {
  /// Indexed as RepeatedBlock::ops: what is left out. Empty if the block stays as it is.
  llvm::BitVector leftOut;
  Schedule schedule;
  /// The nodes of the block with everything made again that are left, in the order given to the solver.
  std::vector<NodeId> order;
  /// Indexed by node of the rewritten block: what its schedule knows of starts that may be merged.
  std::vector<MergeMember> members;
  /// Values, and their bytes, that the program makes again and the plan keeps, and the reverse.
  int64_t kept = 0, again = 0;
  Bytes keptBytes = 0, againBytes = 0;
  /// All values that may be kept or made again.
  std::vector<ValuePlan> values;
  int64_t candidates = 0, tried = 0;
  /// MemoryPlan::lowerBound.
  Ns lowerBound = 0;

  bool changes() const { return !leftOut.empty(); }
};

struct CommPlanMemoryPass : BudgetedPass<commsched::impl::CommPlanMemoryBase<CommPlanMemoryPass>> {
  using BudgetedPass::BudgetedPass;

  void runWithModel() final {
    besideMessages = sendsOrReceives(getOperation());
    SmallVector<Operation *> functions;
    getOperation().walk([&](FunctionOpInterface function) {
      if (!function.isExternal() && function->hasTrait<OpTrait::IsIsolatedFromAbove>())
        functions.push_back(function);
    });
    for (Operation *function : functions)
      for (size_t index = 0, count = findSchedulableBlocks(function).size(); index < count; ++index)
        if (failed(planBlock(function, index)))
          return signalPassFailure();
  }

private:
  /// LoadOptions::besideMessages of all blocks.
  bool besideMessages = false;

  SolverOptions solverOptions() const {
    SolverOptions solver(collectiveOrder, bucketing, bucketCapBytes, effort);
    solver.schedule.memory = memory;
    solver.load.besideMessages = besideMessages;
    solver.schedule.objective = Objective::Robust;
    return solver;
  }

  LoadedBlock load(Block &block) const { return loadBlock(block, OperationCosts(*model), solverOptions().load); }

  /// Decides on one block of a function, by its number among those that are scheduled.
  LogicalResult planBlock(Operation *function, size_t index) {
    Block &block = *findSchedulableBlocks(function)[index];
    Location loc = block.getParentOp()->getLoc();
    LoadedBlock given = load(block);
    if (!given.defect.empty())
      return failure();
    if (given.problem.hasStreams())
      return success();
    CloneLimits limits = limitsOf(given.problem);
    Schedule known = schedule(given.problem, solverOptions().schedule);
    BlockPlan plan;
    {
      FunctionCopy copy(function);
      FailureOr<BlockPlan> found = decide(*findSchedulableBlocks(copy.function())[index], limits, known);
      if (failed(found))
        return failure();
      plan = std::move(*found);
    }
    say(loc, plan, known);
    for (const ValuePlan &value : plan.values)
      say(value, plan.changes());
    return plan.changes() ? carryOut(function, block, limits, plan) : success();
  }

  CloneLimits limitsOf(const Problem &problem) const {
    CloneLimits limits;
    Ns computation = 0;
    for (const Node &node : problem.nodes) {
      limits.computeTimes.push_back(node.kind == NodeKind::Compute ? node.cost : 0);
      computation += limits.computeTimes.back();
    }
    if (force != ForcedPlan::None)
      return limits;
    limits.leastGap = std::max<Ns>(1, mulDiv(computation, kLeastGapPermille, 1000));
    limits.leastBytes = std::max<Bytes>(1, mulDiv(peakOf(problem, identityOrder(problem)), kLeastBytesPpm, 1000000));
    return limits;
  }

  /// Makes everything again that may be, in `block`.
  static std::vector<RepeatedOps> repeatAll(Block &block, const CloneLimits &limits) {
    std::vector<RepeatedOps> ops = findRepetitions(block);
    llvm::append_range(ops, cloneForLateReaders(block, limits));
    return ops;
  }

  /// Says which repetitions the solver can leave out; others are left in if they are the program's.
  static RepeatedBlock describe(std::vector<RepeatedOps> ops, const LoadedBlock &loaded) {
    RepeatedBlock block;
    for (RepeatedOps &pair : ops) {
      Repetition repetition;
      for (auto [first, again] : llvm::zip_equal(pair.first, pair.again)) {
        repetition.first.push_back(loaded.nodes.find(first));
        repetition.again.push_back(loaded.nodes.find(again));
      }
      if (pair.isGiven && !validate(loaded.problem, repetition).empty())
        continue;
      block.given.push_back(!pair.isGiven);
      block.repetitions.push_back(std::move(repetition));
      block.ops.push_back(std::move(pair));
    }
    return block;
  }

  /// Finds the best plan on a block of a copy, which is rewritten.
  FailureOr<BlockPlan> decide(Block &block, const CloneLimits &limits, const Schedule &known) {
    std::vector<RepeatedOps> ops = repeatAll(block, limits);
    BlockPlan plan;
    if (ops.empty())
      return plan;
    LoadedBlock loaded = load(block);
    if (!loaded.defect.empty())
      return failure();
    RepeatedBlock repeated = describe(std::move(ops), loaded);
    if (std::string wrong = validate(loaded.problem, repeated.repetitions); !wrong.empty()) {
      emitWarning(block.getParentOp()->getLoc())
          << getArgument() << ": " << wrong << "; the block is not planned; please report this";
      return plan;
    }
    MemoryPlan best = force == ForcedPlan::None ? planMemory(loaded.problem, repeated.repetitions, repeated.given,
                                                             known, solverOptions().schedule)
                                                : forcedPlan(loaded.problem, repeated.repetitions);
    plan.candidates = static_cast<int64_t>(repeated.ops.size());
    plan.tried = best.tried;
    plan.lowerBound = best.lowerBound;
    const bool isGiven = best.kept == repeated.given;
    llvm::BitVector leftOut = isGiven ? best.kept : leftOutBy(repeated, best.reduced);
    noteValues(plan, repeated, loaded.problem, leftOut);
    if (isGiven)
      return plan;
    plan.order = std::move(best.reduced.origin);
    reduce(loaded, repeated, leftOut, plan.order);
    plan.schedule = std::move(best.schedule);
    plan.members = std::move(best.reduced.problem.members);
    if (holds(block, plan, known))
      plan.leftOut = std::move(leftOut);
    return plan;
  }

  /// What the option `force` asks for.
  MemoryPlan forcedPlan(const Problem &problem, ArrayRef<Repetition> repetitions) const {
    MemoryPlan plan;
    for (size_t index = 0; index < repetitions.size(); ++index)
      plan.kept.push_back(force == ForcedPlan::Keep || (force == ForcedPlan::Mixed && index % 2 == 0));
    plan.reduced = lateProblem(problem, repetitions, plan.kept);
    ScheduleOptions options = solverOptions().schedule;
    options.memory.limit = kUnlimited;
    plan.schedule = schedule(plan.reduced.problem, options);
    return plan;
  }

  static llvm::BitVector leftOutBy(const RepeatedBlock &repeated, const ReducedProblem &reduced) {
    llvm::BitVector leftOut;
    for (const Repetition &repetition : repeated.repetitions)
      leftOut.push_back(reduced.image[repetition.again.front()] == kNone);
    return leftOut;
  }

  /// Leaves out what a plan leaves out, and gives what is left the order that the solver was given.
  static void reduce(const LoadedBlock &loaded, const RepeatedBlock &repeated, const llvm::BitVector &leftOut,
                     ArrayRef<NodeId> order) {
    SmallVector<Operation *> ops;
    for (NodeId node : order)
      ops.push_back(loaded.nodes[node]);
    eraseRepetitions(select(repeated.ops, leftOut));
    applyOrder(loaded.nodes.getBlock(), ops);
  }

  static SmallVector<const RepeatedOps *> select(ArrayRef<RepeatedOps> ops, const llvm::BitVector &which) {
    SmallVector<const RepeatedOps *> selected;
    for (int index : which.set_bits())
      selected.push_back(&ops[index]);
    return selected;
  }

  /// Notes what was decided for each value, and counts what is kept or made again unlike in the program. A clone that
  /// nobody reads is no value made again.
  static void noteValues(BlockPlan &plan, const RepeatedBlock &repeated, const Problem &problem,
                         const llvm::BitVector &leftOut) {
    llvm::SmallPtrSet<Operation *, 8> madeTwice;
    for (const RepeatedOps &ops : repeated.ops)
      if (ops.isGiven)
        madeTwice.insert(ops.first.front());
    for (auto [index, repetition] : llvm::enumerate(repeated.repetitions)) {
      const RepeatedOps &ops = repeated.ops[index];
      Operation *maker = ops.first.front();
      ValuePlan value{maker->getLoc(), remarkKind(maker), ops.isGiven, !leftOut[index], 0, 0};
      for (NodeId node : repetition.again) {
        value.time += problem.nodes[node].cost;
        for (BufferId buffer : problem.touches[node])
          if (problem.buffers[buffer].def == node)
            value.bytes += problem.buffers[buffer].bytes;
      }
      if (value.isAgain != value.isGivenAgain) {
        ++(value.isAgain ? plan.again : plan.kept);
        (value.isAgain ? plan.againBytes : plan.keptBytes) += value.bytes;
      }
      // What the program makes twice need not be said to be made no third time.
      if (ops.isGiven || value.isAgain || !madeTwice.contains(maker))
        plan.values.push_back(std::move(value));
    }
  }

  /// Loads a rewritten block. A cast that has lost a reader could now be part of a pack; the schedule does not know.
  LoadedBlock loadRewritten(Block &block, const BlockPlan &plan) const {
    LoadedBlock loaded = load(block);
    if (loaded.problem.members.size() == plan.members.size())
      for (auto [member, planned] : llvm::zip_equal(loaded.problem.members, plan.members))
        if (planned.cast == kNone) {
          member.cast = kNone;
          member.castInputBytes = 0;
        }
    return loaded;
  }

  /// Whether a schedule that was found for a reduced problem is one for the rewritten block, shorter than `known`. The
  /// nodes of both have the same order. Otherwise the block gets a new one: bufferization may reuse a buffer that has
  /// lost a reader.
  bool holds(Block &block, BlockPlan &plan, const Schedule &known) {
    LoadedBlock loaded = loadRewritten(block, plan);
    if (!loaded.defect.empty())
      return false;
    ScheduleRequirements requirements{plan.schedule.limit, collectiveOrder};
    if (!verify(loaded.problem, plan.schedule, requirements).empty()) {
      ScheduleOptions again = solverOptions().schedule;
      again.memory.limit = plan.schedule.limit;
      plan.schedule = schedule(loaded.problem, again);
      plan.members = loaded.problem.members;
    }
    return force != ForcedPlan::None || isWorthIt(plan.schedule, known);
  }

  LogicalResult carryOut(Operation *function, Block &block, const CloneLimits &limits, const BlockPlan &plan) {
    Location loc = block.getParentOp()->getLoc();
    ReadCheck reads(block);
    std::vector<RepeatedOps> ops = repeatAll(block, limits);
    LoadedBlock whole = load(block);
    RepeatedBlock repeated = describe(std::move(ops), whole);
    reduce(whole, repeated, plan.leftOut, plan.order);
    if (Operation *op = reads.findChange(block))
      return op->emitError() << getArgument() << ": the operation reads another value than before; please report this";
    LoadedBlock loaded = loadRewritten(block, plan);
    ScheduleRequirements requirements{plan.schedule.limit, collectiveOrder};
    std::string wrong = verify(loaded.problem, plan.schedule, requirements);
    if (wrong.empty())
      wrong = findWrongAccess(function, block, loaded, plan.schedule);
    if (!wrong.empty())
      return emitError(loc) << getArgument() << ": the schedule of the plan does not verify: " << wrong;
    applySchedule(loaded, plan.schedule);
    comparePrediction(block, OperationCosts(*model), collectiveOrder, plan.schedule.makespan, plan.schedule.peak,
                      getArgument());
    stampSignature(function);
    return success();
  }

  /// Says which two accesses to one memory are in the wrong order; empty if none are.
  static std::string findWrongAccess(Operation *function, Block &block, const LoadedBlock &loaded,
                                     const Schedule &schedule) {
    CallSummaries summaries;
    BlockAccesses accesses = AccessOrder(function, summaries).derive(block);
    std::optional<OrderViolation> violation = findViolation(accesses, accessTimesOf(loaded.problem, schedule));
    if (!violation)
      return "";
    return "'" + nameOperation(loaded.nodes[violation->second]) + "' comes before '" +
           nameOperation(loaded.nodes[violation->first]) + "', and both may access the same memory; please report this";
  }

  /// How far a schedule may be from the best plan; nothing if no bound is known, or if the schedule is above the limit.
  static std::string describeGap(const BlockPlan &plan, const Schedule &schedule) {
    if (plan.lowerBound <= 0 || !schedule.isWithinLimit())
      return "";
    if (schedule.makespan <= plan.lowerBound)
      return "; no plan is shorter";
    double percent = 100.0 * (static_cast<double>(schedule.makespan) / static_cast<double>(plan.lowerBound) - 1);
    return llvm::formatv("; at most {0:f1} % from the best plan", percent).str();
  }

  /// Says what was decided for a value; if the block stays as it is, that is what the program does.
  void say(const ValuePlan &value, bool changes) {
    const bool isAgain = changes ? value.isAgain : value.isGivenAgain;
    const bool isChanged = isAgain != value.isGivenAgain;
    auto options = remark::RemarkOpts::name("value").category(getArgument());
    auto remark = isChanged ? remark::passed(value.loc, options) : remark::missed(value.loc, options);
    if (!remark)
      return;
    remark << remark::metric("Bytes", value.bytes) << remark::metric("AgainNs", value.time);
    std::string sentence = isAgain ? "made again" : "kept";
    sentence += isChanged ? isAgain ? " instead of kept" : " instead of made again" : ", as in the program";
    describeRemark(remark, value.kind,
                   isChanged ? StringRef(kNoLimitingFactor) : StringRef("no plan that changes it is shorter"),
                   sentence + ": " + formatBytes(value.bytes) + "; making it again takes " + formatNs(value.time));
  }

  void say(Location loc, const BlockPlan &plan, const Schedule &known) {
    auto options = remark::RemarkOpts::name("plan").category(getArgument());
    auto remark = plan.changes() ? remark::passed(loc, options) : remark::missed(loc, options);
    if (!remark)
      return;
    const Schedule &after = plan.changes() ? plan.schedule : known;
    remark << remark::metric("Candidates", plan.candidates) << remark::metric("Tried", plan.tried)
           << remark::metric("MakespanNsBefore", known.makespan) << remark::metric("MakespanNsAfter", after.makespan)
           << remark::metric("PeakBytesBefore", known.peak) << remark::metric("PeakBytesAfter", after.peak)
           << remark::metric("LowerBoundNs", plan.lowerBound);
    if (!plan.changes()) {
      StringRef reason = plan.candidates == 0 ? "no value can be made again" : "no other plan is shorter";
      return describeRemark(remark, "block", reason,
                            "unchanged: " + reason.str() + "; " + formatNs(known.makespan) + ", peak " +
                                formatBytes(known.peak) + describeGap(plan, known));
    }
    remark << remark::metric("Kept", plan.kept) << remark::metric("KeptBytes", plan.keptBytes)
           << remark::metric("Again", plan.again) << remark::metric("AgainBytes", plan.againBytes);
    describeRemark(
        remark, "block", kNoLimitingFactor,
        "kept instead of made again: " + formatCount(plan.kept, "value") + " of " + formatBytes(plan.keptBytes) +
            "; made again instead of kept: " + formatCount(plan.again, "value") + " of " +
            formatBytes(plan.againBytes) + "; " + formatNs(after.makespan) + ", was " + formatNs(known.makespan) +
            "; peak " + formatBytes(after.peak) + ", was " + formatBytes(known.peak) + describeGap(plan, after));
  }
};

} // namespace
