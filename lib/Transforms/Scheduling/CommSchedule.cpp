//===- CommSchedule.cpp - The pass comm-schedule ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Loads each block, lets the solver decide, carries the decision out, and says what became of each collective.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Locations.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Report/Explanations.h"
#include "CommSched/Report/SearchLog.h"
#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Rewrites/BucketWriter.h"
#include "CommSched/Transforms/Rewrites/TrafficCheck.h"
#include "CommSched/Transforms/Scheduling/SchedulingOptions.h"
#include "JournalRecords.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"

namespace commsched {
#define GEN_PASS_DEF_COMMSCHEDULE
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

/// The other members of a bucket: "all_gather_2, all_gather_3 and 5 more".
std::string namesOfOthers(const LoadedBlock &loaded, const Bucket &bucket, NodeId start) {
  constexpr size_t kNamed = 3;
  SmallVector<std::string> names;
  for (NodeId member : bucket.members)
    if (member != start && names.size() < kNamed)
      names.push_back(nameOperation(loaded.nodes[member]));
  size_t more = bucket.members.size() - 1 - names.size();
  return llvm::join(names, ", ") + (more == 0 ? "" : " and " + std::to_string(more) + " more");
}

/// One remark per collective: passed where its exposed time fell, missed where some is left, analysis otherwise.
void remarkOutcomes(const LoadedBlock &loaded, const Schedule &result, ArrayRef<StartOutcome> outcomes) {
  for (const StartOutcome &outcome : outcomes) {
    Location loc = loaded.nodes[outcome.start]->getLoc();
    auto options = remark::RemarkOpts::name("schedule").category("comm-schedule");
    bool better = outcome.exposedAfter < outcome.exposedBefore;
    auto remark = outcome.exposedAfter > 0 && !better ? remark::missed(loc, options)
                  : better                            ? remark::passed(loc, options)
                                                      : remark::analysis(loc, options);
    remark << remark::metric("PositionBefore", outcome.positionBefore)
           << remark::metric("PositionAfter", outcome.positionAfter)
           << remark::metric("ExposedNsBefore", outcome.exposedBefore)
           << remark::metric("ExposedNsAfter", outcome.exposedAfter);
    if (outcome.bucket != kNone) {
      const Bucket &bucket = result.buckets[outcome.bucket];
      remark << remark::metric("BucketSize", static_cast<int64_t>(bucket.members.size()))
             << remark::metric("BucketForm", stringify(bucket.form).str())
             << remark::metric("MergedWith", namesOfOthers(loaded, bucket, outcome.start));
    }
    remark << remark::metric("LimitingFactor", describe(loaded, outcome.reason));
  }
}

/// Watches the search of one block for the journal: counts its trials, and logs them if a log is written.
class SearchWatch {
public:
  /// Adds the observers to `options`, which must not outlive the watch. Does nothing if the journal is null.
  SearchWatch(Block &block, PassJournal *journal, ScheduleOptions &options) {
    if (!journal)
      return;
    options.observers.push_back(&statistics);
    if (!journal->logsSearch)
      return;
    log.emplace(reportNameOf(block), text);
    options.observers.push_back(&*log);
  }

  PassRecord addTo(PassRecord record) {
    record.search = std::move(statistics);
    record.searchLog = std::move(text);
    return record;
  }

private:
  SearchStatistics statistics;
  std::string text;
  std::optional<SearchLog> log;
};

struct CommSchedulePass : public commsched::impl::CommScheduleBase<CommSchedulePass> {
  using CommScheduleBase::CommScheduleBase;

  LogicalResult initialize(MLIRContext *context) final {
    if (failed(checkMemoryBudget(context, memoryBudgetRatio, memoryLimitBytes)))
      return failure();
    model = loadCostModel(context, machine);
    return success(model != nullptr);
  }

  void runOnOperation() final {
    OperationCosts costs(*model);
    for (Block *block : findSchedulableBlocks(getOperation()))
      if (failed(scheduleBlock(*block, costs)))
        return signalPassFailure();
    stampSignature(getOperation());
  }

private:
  LogicalResult scheduleBlock(Block &block, const OperationCosts &costs) {
    SolverOptions solver(collectiveOrder, bucketing,
                         {bucketCapBytes, allGatherCapBytes, reduceScatterCapBytes, allReduceCapBytes}, effort);
    LoadedBlock loaded = loadBlock(block, costs, solver.load);
    if (!loaded.defect.empty())
      return failure();
    if (loaded.cutValues > 0)
      emitWarning(block.getParentOp()->getLoc())
          << loaded.cutValues << " times or sizes are too large to be added up and were cut; no collectives are merged";
    solver.schedule.memoryBudgetPpm = toPpm(memoryBudgetRatio);
    solver.schedule.memoryLimitBytes = memoryLimitBytes;
    solver.schedule.slowDown = loaded.slowDown;
    Operation *parent = block.getParentOp();
    PassJournal *journal = journalOf(parent->getContext());
    SearchWatch watch(block, journal, solver.schedule);
    Schedule result = schedule(loaded.problem, solver.schedule);
    // What is left is an answer that was verified.
    if (!result.defect.empty())
      emitWarning(parent->getLoc()) << "an answer of the solver does not hold and was dropped (" << result.defect
                                    << "); please report this";
    if (!result.isWithinLimit())
      return emitError(parent->getLoc()) << "no order was found with a peak of at most " << formatBytes(result.limit)
                                         << " (" << result.limit << " bytes): the lowest is "
                                         << formatBytes(result.peak) << ", " << (result.peak - result.limit)
                                         << " bytes too much";
    std::vector<StartOutcome> outcomes = explain(loaded, result, result.limit);
    remarkOutcomes(loaded, result, outcomes);
    if (journal)
      journal->add(watch.addTo(makeRecord(getArgument(), loaded, result, outcomes)));
    TrafficCheck traffic(block);
    applySchedule(loaded, result.buckets, result.expanded, result.order);
    if (failed(traffic.compare(TrafficCheck(block), parent->getLoc(), getArgument())))
      return failure();
    comparePrediction(block, costs, collectiveOrder, result.makespan, result.peak, getArgument());
    return success();
  }

  std::shared_ptr<const CostModel> model;
};

} // namespace
