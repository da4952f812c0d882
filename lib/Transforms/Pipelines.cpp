//===- Pipelines.cpp - reorder-comm-overlap ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Pipelines.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace commsched;

namespace {

/// A pass that the pipeline can run, by name.
struct Stage {
  llvm::StringLiteral name;
  /// Adds it to a pass manager of functions.
  void (*add)(OpPassManager &functions, const OverlapOptions &options);
};

/// Copies the options that every scheduling pass has.
template <typename PassOptions> PassOptions makeOptions(const OverlapOptions &options) {
  PassOptions result;
  result.machine = options.machine;
  result.memoryBudgetRatio = options.memoryBudgetRatio;
  result.memoryLimitBytes = options.memoryLimitBytes;
  result.collectiveOrder = options.collectiveOrder;
  return result;
}

void addSchedule(OpPassManager &functions, const OverlapOptions &options) {
  auto passOptions = makeOptions<CommScheduleOptions>(options);
  passOptions.bucketing = options.bucketing;
  passOptions.bucketCapBytes = options.bucketCapBytes;
  passOptions.effort = options.effort;
  functions.addPass(createCommSchedule(passOptions));
}

/// The peak-preserving passes: here they believe the costs, so that no move makes the program slower.
void addReorderPreservingPeak(OpPassManager &functions, const OverlapOptions &options) {
  auto passOptions = makeOptions<CommReorderPreservingPeakMemoryOptions>(options);
  passOptions.useRuntimeEstimates = true;
  functions.addPass(createCommReorderPreservingPeakMemory(passOptions));
}

void addSinkWaitsPreservingPeak(OpPassManager &functions, const OverlapOptions &options) {
  auto passOptions = makeOptions<CommSinkWaitsPreservingPeakMemoryOptions>(options);
  passOptions.useRuntimeEstimates = true;
  passOptions.swapWithCollectives = true;
  functions.addPass(createCommSinkWaitsPreservingPeakMemory(passOptions));
}

/// Adds a pass that knows no memory limit.
template <typename PassOptions, std::unique_ptr<Pass> (*create)(PassOptions)>
void addUnlimited(OpPassManager &functions, const OverlapOptions &options) {
  PassOptions passOptions;
  passOptions.machine = options.machine;
  passOptions.collectiveOrder = options.collectiveOrder;
  functions.addPass(create(std::move(passOptions)));
}

void addBucket(OpPassManager &functions, const OverlapOptions &options) {
  CommBucketOptions passOptions;
  passOptions.machine = options.machine;
  if (options.bucketCapBytes >= 0)
    passOptions.capBytes.push_back(options.bucketCapBytes);
  functions.addPass(createCommBucket(passOptions));
}

std::unique_ptr<Pass> createPareto(const OverlapOptions &options) {
  CommParetoOptions passOptions;
  passOptions.machine = options.machine;
  passOptions.collectiveOrder = options.collectiveOrder;
  passOptions.bucketing = options.bucketing;
  passOptions.bucketCapBytes = options.bucketCapBytes;
  passOptions.effort = options.effort;
  passOptions.file = options.paretoFile;
  return createCommPareto(passOptions);
}

/// All passes that `passes` may name.
constexpr Stage kStages[] = {
    {"comm-schedule", addSchedule},
    {"comm-bucket", addBucket},
    {"comm-reinplace-all-gather",
     [](OpPassManager &functions, const OverlapOptions &) { functions.addPass(createCommReinplaceAllGather()); }},
    {"comm-raise", addUnlimited<CommRaiseOptions, createCommRaise>},
    {"comm-sink-waits", addUnlimited<CommSinkWaitsOptions, createCommSinkWaits>},
    {"comm-reorder-compute-for-overlap",
     addUnlimited<CommReorderComputeForOverlapOptions, createCommReorderComputeForOverlap>},
    {"comm-reorder-preserving-peak-memory", addReorderPreservingPeak},
    {"comm-sink-waits-preserving-peak-memory", addSinkWaitsPreservingPeak},
    {"comm-order-collectives",
     [](OpPassManager &functions, const OverlapOptions &) { functions.addPass(createCommOrderCollectives()); }},
    {"comm-order-fsdp", addUnlimited<CommOrderFsdpOptions, createCommOrderFsdp>},
};

const Stage *findStage(StringRef name) {
  const Stage *stage = llvm::find_if(kStages, [&](const Stage &entry) { return entry.name == name; });
  return stage == std::end(kStages) ? nullptr : stage;
}

std::string listStages() {
  return llvm::join(llvm::map_range(kStages, [](const Stage &stage) { return stage.name.str(); }), ", ");
}

/// What runs where the user names nothing.
std::vector<std::string> defaultPasses(OverlapOptions::Solver solver) {
  if (solver == OverlapOptions::Solver::Seed)
    return {"comm-reorder-preserving-peak-memory", "comm-sink-waits-preserving-peak-memory"};
  return {"comm-schedule"};
}

} // namespace

ReportOptions commsched::getReportOptions(const OverlapOptions &options) {
  ReportOptions report;
  report.machine = options.machine;
  report.collectiveOrder = options.collectiveOrder;
  report.bucketing = options.bucketing;
  report.memoryBudgetRatio = options.memoryBudgetRatio;
  report.memoryLimitBytes = options.memoryLimitBytes;
  report.reportFile = options.reportFile;
  report.timelineFile = options.timelineFile;
  report.table = options.table;
  return report;
}

LogicalResult commsched::buildOverlapPipeline(OpPassManager &manager, const OverlapOptions &options,
                                              llvm::function_ref<LogicalResult(const llvm::Twine &)> error,
                                              std::shared_ptr<ReportCollector> collector) {
  std::vector<std::string> names(options.passes.begin(), options.passes.end());
  if (names.empty())
    names = defaultPasses(options.solver);
  bool report = options.table || !options.reportFile.empty() || !options.timelineFile.empty();
  if (!collector && report)
    collector = std::make_shared<ReportCollector>(getReportOptions(options));
  if (!options.paretoFile.empty())
    manager.addPass(createPareto(options));
  if (collector)
    manager.addPass(createReportStagePass(collector, ReportStage::Begin));
  OpPassManager &functions = manager.nest<func::FuncOp>();
  for (StringRef name : names) {
    const Stage *stage = findStage(name);
    if (!stage)
      return error("reorder-comm-overlap: unknown pass '" + name + "' in 'passes'; known: " + listStages());
    stage->add(functions, options);
  }
  if (collector)
    manager.addPass(createReportStagePass(collector, ReportStage::End));
  return success();
}

void commsched::registerPipelines() {
  auto build = [](OpPassManager &manager, StringRef text,
                  llvm::function_ref<LogicalResult(const llvm::Twine &)> error) -> LogicalResult {
    OverlapOptions options;
    std::string message;
    llvm::raw_string_ostream os(message);
    if (failed(options.parseFromString(text, os)))
      return error("reorder-comm-overlap: " + message);
    return buildOverlapPipeline(manager, options, error);
  };
  auto visitOptions = [](llvm::function_ref<void(const mlir::detail::PassOptions &)> visit) {
    visit(OverlapOptions());
  };
  registerPassPipeline("reorder-comm-overlap", "hide collectives behind computation under a hard peak-memory limit",
                       build, visitOptions);
}
