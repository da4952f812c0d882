//===- Pipelines.cpp - reorder-comm-overlap ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===-----------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Pipelines.h"
#include "CommSched/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace commsched;

namespace {

/// Copies the options that every scheduling pass has.
template <typename PassOptions> PassOptions makeOptions(const OverlapOptions &options) {
  PassOptions result;
  result.machine = options.machine;
  result.memoryBudgetRatio = options.memoryBudgetRatio;
  result.memoryLimitBytes = options.memoryLimitBytes;
  result.collectiveOrder = options.collectiveOrder;
  return result;
}

std::unique_ptr<Pass> makeSchedule(const OverlapOptions &options) {
  auto passOptions = makeOptions<CommScheduleOptions>(options);
  passOptions.bucketing = options.bucketing;
  passOptions.bucketCapBytes = options.bucketCapBytes;
  passOptions.effort = options.effort;
  return createCommSchedule(passOptions);
}

/// The peak-preserving passes: here they believe the costs, so that no move makes the program slower.
std::unique_ptr<Pass> makeReorderPreservingPeak(const OverlapOptions &options) {
  auto passOptions = makeOptions<CommReorderPreservingPeakMemoryOptions>(options);
  passOptions.useRuntimeEstimates = true;
  return createCommReorderPreservingPeakMemory(passOptions);
}

std::unique_ptr<Pass> makeSinkWaitsPreservingPeak(const OverlapOptions &options) {
  auto passOptions = makeOptions<CommSinkWaitsPreservingPeakMemoryOptions>(options);
  passOptions.useRuntimeEstimates = true;
  passOptions.swapWithCollectives = true;
  return createCommSinkWaitsPreservingPeakMemory(passOptions);
}

/// A pass that knows no memory limit.
template <typename PassOptions, std::unique_ptr<Pass> (*create)(PassOptions)>
std::unique_ptr<Pass> makeUnlimited(const OverlapOptions &options) {
  PassOptions passOptions;
  passOptions.machine = options.machine;
  passOptions.collectiveOrder = options.collectiveOrder;
  return create(std::move(passOptions));
}

/// A pass that has no options, or whose defaults hold.
template <std::unique_ptr<Pass> (*create)()> std::unique_ptr<Pass> makePlain(const OverlapOptions &) {
  return create();
}

std::unique_ptr<Pass> makeBucket(const OverlapOptions &options) {
  CommBucketOptions passOptions;
  passOptions.machine = options.machine;
  if (options.bucketCapBytes >= 0)
    passOptions.capBytes.push_back(options.bucketCapBytes);
  return createCommBucket(passOptions);
}

std::unique_ptr<Pass> makePareto(const OverlapOptions &options) {
  CommParetoOptions passOptions;
  passOptions.machine = options.machine;
  passOptions.collectiveOrder = options.collectiveOrder;
  passOptions.bucketing = options.bucketing;
  passOptions.bucketCapBytes = options.bucketCapBytes;
  passOptions.effort = options.effort;
  passOptions.file = options.paretoFile;
  return createCommPareto(passOptions);
}

std::unique_ptr<Pass> makeAlignCosts(const OverlapOptions &options) {
  CommAlignCostsOptions passOptions;
  llvm::append_range(passOptions.profiles, options.profiles);
  if (passOptions.profiles.empty())
    passOptions.profiles.push_back(options.machine);
  return createCommAlignCosts(passOptions);
}

/// The table of what the passes before it made of the module.
std::unique_ptr<Pass> makeReport(const OverlapOptions &options) {
  CommReportOptions passOptions;
  passOptions.machine = options.machine;
  return createCommReport(passOptions);
}

/// A pass that the pipeline can run, by name.
struct Stage {
  llvm::StringLiteral name;
  std::unique_ptr<Pass> (*make)(const OverlapOptions &options);
};

/// All passes that `passes` may name.
constexpr Stage kStages[] = {
    {"comm-schedule", makeSchedule},
    {"comm-bucket", makeBucket},
    {"comm-reinplace-all-gather", makePlain<createCommReinplaceAllGather>},
    {"comm-remove-unsharded-param-usage", makePlain<createCommRemoveUnshardedParamUsage>},
    {"comm-realize-buffers", makePlain<createCommRealizeBuffers>},
    {"comm-raise", makeUnlimited<CommRaiseOptions, createCommRaise>},
    {"comm-sink-waits", makeUnlimited<CommSinkWaitsOptions, createCommSinkWaits>},
    {"comm-reorder-compute-for-overlap",
     makeUnlimited<CommReorderComputeForOverlapOptions, createCommReorderComputeForOverlap>},
    {"comm-reorder-preserving-peak-memory", makeReorderPreservingPeak},
    {"comm-sink-waits-preserving-peak-memory", makeSinkWaitsPreservingPeak},
    {"comm-order-collectives", makePlain<createCommOrderCollectives>},
    {"comm-order-fsdp", makeUnlimited<CommOrderFsdpOptions, createCommOrderFsdp>},
    {"comm-align-costs", makeAlignCosts},
    {"comm-verify", makePlain<createCommVerify>},
    {"comm-report", makeReport},
};

std::unique_ptr<Pass> makePass(StringRef name, const OverlapOptions &options) {
  const Stage *stage = llvm::find_if(kStages, [&](const Stage &entry) { return entry.name == name; });
  return stage == std::end(kStages) ? nullptr : stage->make(options);
}

std::string listStages() {
  return llvm::join(llvm::map_range(kStages, [](const Stage &stage) { return stage.name.str(); }), ", ");
}

/// Adds passes to a pass manager of modules. Those that any operation will do for run on what a module holds:
/// functions, whatever their operation, in parallel, and modules inside, whose functions they find for themselves.
class StageList {
public:
  explicit StageList(OpPassManager &modules) : modules(modules) {}

  void add(std::unique_ptr<Pass> pass) {
    if (!pass->getOpName())
      return inside.addPass(std::move(pass));
    finish();
    modules.addPass(std::move(pass));
  }

  void finish() {
    if (inside.empty())
      return;
    modules.nestAny() = inside;
    inside.clear();
  }

private:
  OpPassManager &modules;
  OpPassManager inside;
};

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
    manager.addPass(makePareto(options));
  if (collector)
    manager.addPass(createReportStagePass(collector, ReportStage::Begin));
  StageList stages(manager);
  for (StringRef name : names) {
    std::unique_ptr<Pass> pass = makePass(name, options);
    if (!pass)
      return error("reorder-comm-overlap: unknown pass '" + name + "' in 'passes'; known: " + listStages());
    stages.add(std::move(pass));
  }
  stages.finish();
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
      return error("reorder-comm-overlap: cannot read '" + text + "'" + (message.empty() ? "" : ": ") +
                   StringRef(message).rtrim());
    return buildOverlapPipeline(manager, options, error);
  };
  auto visitOptions = [](llvm::function_ref<void(const mlir::detail::PassOptions &)> visit) {
    visit(OverlapOptions());
  };
  registerPassPipeline("reorder-comm-overlap", "hide collectives behind computation under a hard peak-memory limit",
                       build, visitOptions);
}
