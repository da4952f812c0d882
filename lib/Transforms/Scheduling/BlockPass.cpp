//===- BlockPass.cpp - The frame of every pass that schedules blocks --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "BlockPass.h"
#include "CommSched/Analysis/AccessTimes.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/Remarks.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Scheduling/Check/ScheduleVerifier.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "JournalRecords.h"
#include "mlir/IR/Threading.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace commsched;

BlockVoice::BlockVoice(MLIRContext *context)
    : listens(context->getRemarkEngine() != nullptr), journal(journalOf(context)) {}

void BlockVoice::speak() {
  for (const std::function<void()> &emit : remarks)
    emit();
  for (PassRecord &record : records)
    journal->add(std::move(record));
}

SmallVector<Operation *> commsched::findFunctions(Operation *root) {
  SmallVector<Operation *> functions;
  if (!isa<FunctionOpInterface>(root))
    root->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (op == root || !isa<FunctionOpInterface>(op) || !op->hasTrait<OpTrait::IsIsolatedFromAbove>())
        return WalkResult::advance();
      functions.push_back(op);
      return WalkResult::skip();
    });
  if (functions.empty())
    functions.push_back(root);
  return functions;
}

namespace {

/// What is known of one function in the end.
struct FunctionOutcome {
  explicit FunctionOutcome(MLIRContext *context) : voice(context) {}

  BlockVoice voice;
  std::vector<std::pair<Block *, Bytes>> inputPeaks;
  bool changed = false;
  /// An error was emitted, or is to be: at `failedAt`, unless that is null.
  bool failed = false;
  Operation *failedAt = nullptr;
  std::string error;
};

/// One function on its way through the frame.
class FunctionWorker {
public:
  FunctionWorker(StringRef passName, const CostModel &model, const BlockRule &rule, const LoadOptions &load,
                 const InputPeaks *known, FunctionOutcome &outcome)
      : passName(passName), rule(rule), load(load), known(known), costs(model), outcome(outcome) {}

  void run(Operation *function) {
    this->function = function;
    for (Block *block : findSchedulableBlocks(function)) {
      if (succeeded(schedule(*block)))
        continue;
      outcome.failed = true;
      return;
    }
  }

private:
  LogicalResult schedule(Block &block) {
    BlockWork work{loadBlock(block, costs, load), 0, 0, {}, {}, {}};
    const Problem &problem = work.loaded.problem;
    // The loader has validated the problem and said what is wrong.
    if (!work.loaded.defect.empty())
      return failure();
    if (problem.hasStreams())
      return sayHasStreams(block), success();
    work.peak = work.inputPeak = peakOf(problem, identityOrder(problem));
    if (known)
      if (auto before = known->peaks.find(&block); before != known->peaks.end())
        work.inputPeak = before->second;
    outcome.inputPeaks.emplace_back(&block, work.inputPeak);
    if (failed(rule.solveBlock(work, outcome.voice)))
      return failure();
    if (changes(work.schedule) || outcome.voice.hasJournal())
      work.accesses = deriveAccesses(block);
    if (failed(checkAnswer(work)))
      return failure();
    if (outcome.voice.hasRemarks() || outcome.voice.hasJournal())
      rule.explainBlock(work, outcome.voice);
    return apply(work);
  }

  /// Streams and events were chosen for the order that the block has.
  void sayHasStreams(Block &block) {
    outcome.voice.say([loc = block.getParentOp()->getLoc(), category = passName.str()] {
      auto remark = remark::missed(loc, remark::RemarkOpts::name("streams").category(category));
      describeRemark(remark, "block", "streams",
                     "the block keeps its order, for its operations are on several streams; choose streams last");
    });
  }

  LogicalResult checkAnswer(const BlockWork &work) {
    ScheduleRequirements requirements;
    requirements.collectiveOrder = load.order;
    if (work.schedule.limit < kUnlimited)
      requirements.peakLimit = std::max(work.schedule.limit, work.peak);
    outcome.error = work.schedule.defect;
    if (outcome.error.empty())
      outcome.error = verify(work.loaded.problem, work.schedule, requirements);
    if (outcome.error.empty() && changes(work.schedule))
      outcome.error = describeViolation(work);
    if (outcome.error.empty())
      return success();
    outcome.failedAt = work.loaded.nodes.getBlock().getParentOp();
    return failure();
  }

  static bool changes(const Schedule &schedule) {
    return !schedule.buckets.empty() || !schedule.variants.empty() || !llvm::is_sorted(schedule.order);
  }

  BlockAccesses deriveAccesses(Block &block) {
    // Blocks are visited from the inside out, so the values that come into a block are still those of the beginning.
    if (!accessOrder)
      accessOrder.emplace(function, summaries);
    return accessOrder->derive(block);
  }

  /// Says which two accesses to one memory are in the wrong order; empty if none are.
  static std::string describeViolation(const BlockWork &work) {
    std::vector<AccessTime> times = accessTimesOf(work.loaded.problem, work.schedule);
    std::optional<OrderViolation> violation = findViolation(work.accesses, times);
    if (!violation)
      return "";
    auto name = [&](int32_t node) { return "'" + nameOperation(work.loaded.nodes[node]) + "'"; };
    return name(violation->second) + " comes before " + name(violation->first) +
           ", and both may access the same memory; please report this";
  }

  LogicalResult apply(const BlockWork &work) {
    const Schedule &schedule = work.schedule;
    if (!changes(schedule))
      return success();
    outcome.changed = true;
    Block &block = work.loaded.nodes.getBlock();
    Location loc = block.getParentOp()->getLoc();
    TrafficCheck before(block);
    applySchedule(work.loaded, schedule);
    TrafficCheck after(block);
    rule.reportTraffic(loc, before.total(), after.total(), outcome.voice);
    if (failed(before.compare(after, loc, passName)))
      return failure();
    if (schedule.claims)
      comparePrediction(block, costs, load.order, schedule.makespan, schedule.peak, passName);
    return success();
  }

  StringRef passName;
  const BlockRule &rule;
  const LoadOptions &load;
  const InputPeaks *known;
  OperationCosts costs;
  FunctionOutcome &outcome;
  Operation *function = nullptr;
  CallSummaries summaries;
  std::optional<AccessOrder> accessOrder;
};

} // namespace

/// Whether a function's cost is that of another one, which must not change meanwhile.
static bool callsFunctions(ArrayRef<Operation *> functions) {
  return llvm::any_of(functions, [](Operation *function) {
    return function->walk([](CallOpInterface) { return WalkResult::interrupt(); }).wasInterrupted();
  });
}

FailureOr<bool> commsched::scheduleBlocks(Operation *root, StringRef passName, const CostModel &model,
                                          const BlockRule &rule, InputPeaks *inputPeaks) {
  SmallVector<Operation *> functions = findFunctions(root);
  LoadOptions load = rule.loadOptions();
  load.besideMessages = sendsOrReceives(root);
  std::vector<FunctionOutcome> outcomes(functions.size(), FunctionOutcome(root->getContext()));
  auto run = [&](size_t index) {
    FunctionWorker(passName, model, rule, load, inputPeaks, outcomes[index]).run(functions[index]);
  };
  if (callsFunctions(functions))
    llvm::for_each(llvm::seq<size_t>(0, functions.size()), run);
  else
    parallelFor(root->getContext(), 0, functions.size(), run);
  bool changed = false;
  for (auto [function, outcome] : llvm::zip_equal(functions, outcomes)) {
    outcome.voice.speak();
    if (outcome.failedAt)
      emitError(outcome.failedAt->getLoc()) << passName << ": the new order does not verify: " << outcome.error;
    if (outcome.failed)
      return failure();
    if (inputPeaks)
      for (auto [block, peak] : outcome.inputPeaks)
        inputPeaks->peaks.try_emplace(block, peak);
    if (outcome.changed && isa<FunctionOpInterface>(function) && !rule.stampsUnchanged())
      stampSignature(function);
    changed |= outcome.changed;
  }
  if (rule.stampsUnchanged())
    stampSignature(root);
  return changed;
}
