//===- Pipelines.cpp - reorder-comm-overlap ---------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Pipelines.h"
#include "CommSched/Support/NearestName.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "ForeignOperations.h"
#include "PipelineOptions.h"
#include "Verify/PlaceCheck.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace commsched;

namespace {

/// Sets `option`, unless the user has.
template <typename Option, typename Value> void setUnlessGiven(Option &option, Value value) {
  if (!option.hasValue())
    option = value;
}

/// Sets the options that the preset is about.
void applyPreset(OverlapOptions &options) {
  switch (options.preset.getValue()) {
  case OverlapOptions::Preset::Balanced:
    return;
  case OverlapOptions::Preset::Safe:
    setUnlessGiven(options.collectiveOrder, CollectiveOrder::Program);
    setUnlessGiven(options.bucketing, false);
    return setUnlessGiven(options.memoryBudgetRatio, 0.0);
  case OverlapOptions::Preset::Fast:
    return setUnlessGiven(options.effort, int64_t(0));
  }
}

/// The fraction by which the peak may exceed the input's: the option, or the default of the pass.
double memoryBudgetRatioOf(const OverlapOptions &options, double ofPass) {
  return options.memoryBudgetRatio == -1.0 ? ofPass : options.memoryBudgetRatio;
}

/// The noise of reports.
NoiseOptions noiseOptionsOf(const OverlapOptions &options) {
  return {options.scenarios, options.collectiveSpreadPermille, options.computeSpreadPermille};
}

/// What a report has to know of the options.
ReportOptions makeReportOptions(const OverlapOptions &options, const MemoryBudget &memory) {
  ReportOptions report;
  report.machine = options.machine;
  report.collectiveOrder = options.collectiveOrder;
  report.bucketing = options.bucketing;
  report.keepsOrder = options.passes.empty(); // Such as comm-bucket, which knows no order.
  report.memory = memory;
  report.noise = noiseOptionsOf(options);
  report.reportFile = options.reportFile;
  report.timelineFile = options.timelineFile;
  report.searchLogFile = options.searchLogFile;
  report.certificateFile = options.certificateFile;
  report.explained = options.explain;
  report.overlapFile = options.overlapFile;
  report.table = options.table;
  return report;
}

/// Copies the options that every scheduling pass has.
template <typename PassOptions> PassOptions makeOptions(const OverlapOptions &options) {
  PassOptions result;
  result.machine = options.machine;
  result.memoryBudgetRatio = memoryBudgetRatioOf(options, result.memoryBudgetRatio);
  result.memoryLimitBytes = options.memoryLimitBytes;
  result.collectiveOrder = options.collectiveOrder;
  return result;
}

/// Copies the options that every pass has that searches for schedules.
template <typename PassOptions> PassOptions makeSearchOptions(const OverlapOptions &options) {
  auto result = makeOptions<PassOptions>(options);
  result.bucketing = options.bucketing;
  result.bucketCapBytes = options.bucketCapBytes;
  result.effort = options.effort;
  return result;
}

/// A pass that searches and has no other options.
template <typename PassOptions, std::unique_ptr<Pass> (*create)(PassOptions)>
std::unique_ptr<Pass> makeSearching(const OverlapOptions &options) {
  return create(makeSearchOptions<PassOptions>(options));
}

std::unique_ptr<Pass> makeSchedule(const OverlapOptions &options) {
  auto passOptions = makeSearchOptions<CommScheduleOptions>(options);
  passOptions.limitedMemory = options.limitedMemory;
  passOptions.objective = options.objective;
  passOptions.timeBudgetRatio = options.timeBudgetRatio;
  return createCommSchedule(passOptions);
}

/// The largest number of strands that `strands` names: 1 for "off", the pass's default for "auto"; none for a text that
/// is neither of these nor a number.
std::optional<int64_t> maxStrandsOf(StringRef strands) {
  if (strands == "off")
    return 1;
  if (strands == "auto")
    return CommSplitStrandsOptions().maxStrands;
  int64_t number = 0;
  return strands.getAsInteger(10, number) ? std::nullopt : std::optional<int64_t>(number);
}

std::unique_ptr<Pass> makeSplitStrands(const OverlapOptions &options) {
  auto passOptions = makeSearchOptions<CommSplitStrandsOptions>(options);
  passOptions.allowReassociation = options.allowReassociation;
  if (options.strands != "off")
    passOptions.maxStrands = maxStrandsOf(options.strands).value_or(passOptions.maxStrands);
  return createCommSplitStrands(passOptions);
}

/// A peak-preserving pass: its other defaults are Inductor's.
template <typename PassOptions, std::unique_ptr<Pass> (*create)(PassOptions)>
std::unique_ptr<Pass> makePeakPreserving(const OverlapOptions &options) {
  return create(makeOptions<PassOptions>(options));
}

/// Nothing that changes results runs without the user's word, so `numerics` is the entry's own option.
std::unique_ptr<Pass> makeMoveCasts(const OverlapOptions &options) {
  CommMoveCastsOptions passOptions;
  passOptions.machine = options.machine;
  return createCommMoveCasts(passOptions);
}

std::unique_ptr<Pass> makeQuantiseGathers(const OverlapOptions &options) {
  CommQuantiseGathersOptions passOptions;
  passOptions.machine = options.machine;
  return createCommQuantiseGathers(passOptions);
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

/// The directory is the entry's own option.
std::unique_ptr<Pass> makeExportChakra(const OverlapOptions &options) {
  CommExportChakraOptions passOptions;
  passOptions.machine = options.machine;
  return createCommExportChakra(passOptions);
}

std::unique_ptr<Pass> makeMultiStream(const OverlapOptions &options) {
  CommMultiStreamOptions passOptions;
  passOptions.machine = options.machine;
  passOptions.memoryBudgetRatio = memoryBudgetRatioOf(options, passOptions.memoryBudgetRatio);
  passOptions.memoryLimitBytes = options.memoryLimitBytes;
  return createCommMultiStream(passOptions);
}

std::unique_ptr<Pass> makeAlignCosts(const OverlapOptions &options) {
  CommAlignCostsOptions passOptions;
  passOptions.machine = options.machine;
  llvm::append_range(passOptions.profiles, options.profiles);
  if (passOptions.profiles.empty())
    passOptions.profiles.push_back(options.machine);
  return createCommAlignCosts(passOptions);
}

/// The table of what the passes before it made of the module.
std::unique_ptr<Pass> makeReport(const OverlapOptions &options) {
  CommReportOptions passOptions;
  passOptions.machine = options.machine;
  NoiseOptions noise = noiseOptionsOf(options);
  passOptions.scenarios = noise.scenarios;
  passOptions.collectiveSpreadPermille = noise.collectiveSpreadPermille;
  passOptions.computeSpreadPermille = noise.computeSpreadPermille;
  return createCommReport(passOptions);
}

/// A pass that the pipeline can run, by name.
struct Stage {
  llvm::StringLiteral name;
  std::unique_ptr<Pass> (*make)(const OverlapOptions &options);
};

/// The passes that take what concerns them from the pipeline's options.
constexpr Stage kStages[] = {
    {"comm-schedule", makeSchedule},
    {"comm-split-strands", makeSplitStrands},
    {"comm-plan-memory", makeSearching<CommPlanMemoryOptions, createCommPlanMemory>},
    {"comm-pipeline-loops", makeSearching<CommPipelineLoopsOptions, createCommPipelineLoops>},
    {"comm-bucket", makeBucket},
    {"comm-move-casts", makeMoveCasts},
    {"comm-quantise-gathers", makeQuantiseGathers},
    {"comm-reinplace-all-gather", makePlain<createCommReinplaceAllGather>},
    {"comm-remove-unsharded-param-usage", makePlain<createCommRemoveUnshardedParamUsage>},
    {"comm-realize-buffers", makePlain<createCommRealizeBuffers>},
    {"comm-raise", makeUnlimited<CommRaiseOptions, createCommRaise>},
    {"comm-sink-waits", makeUnlimited<CommSinkWaitsOptions, createCommSinkWaits>},
    {"comm-reorder-compute-for-overlap",
     makeUnlimited<CommReorderComputeForOverlapOptions, createCommReorderComputeForOverlap>},
    {"comm-reorder-preserving-peak-memory",
     makePeakPreserving<CommReorderPreservingPeakMemoryOptions, createCommReorderPreservingPeakMemory>},
    {"comm-sink-waits-preserving-peak-memory",
     makePeakPreserving<CommSinkWaitsPreservingPeakMemoryOptions, createCommSinkWaitsPreservingPeakMemory>},
    {"comm-order-collectives", makePlain<createCommOrderCollectives>},
    {"comm-order-fsdp", makeUnlimited<CommOrderFsdpOptions, createCommOrderFsdp>},
    {"comm-align-costs", makeAlignCosts},
    {"comm-multi-stream", makeMultiStream},
    {"comm-decompose-all-to-all", makePlain<createCommDecomposeAllToAll>},
    {"comm-pareto", makePareto},
    {"comm-export-chakra", makeExportChakra},
    {"comm-verify", makePlain<createCommVerify>},
    {"comm-report", makeReport},
};

/// What to write instead of a pass that is not registered.
std::string suggestPass(StringRef name) {
  SmallVector<StringRef> known(llvm::map_range(kStages, [](const Stage &stage) -> StringRef { return stage.name; }));
  return (nearestName(name, known).empty() ? "" : suggestName(name, known)) +
         "; any registered pass can be named, and of this project " + llvm::join(known, ", ");
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

  /// Adds what MLIR's parser makes of `text`. Fails with its message in `os`.
  LogicalResult parse(StringRef text, llvm::raw_ostream &os) {
    finish();
    return parsePassPipeline(text, modules, os);
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

/// The first error of MLIR's parser, without the place and the text that it points at.
StringRef firstError(StringRef message) {
  constexpr llvm::StringLiteral kError = "error: ";
  size_t at = message.find(kError);
  return (at == StringRef::npos ? message : message.drop_front(at + kError.size())).split('\n').first;
}

/// The entries of `passes`, and what runs where the user names nothing.
std::vector<std::string> entriesOf(const OverlapOptions &options) {
  std::vector<std::string> entries(options.passes.begin(), options.passes.end());
  return entries.empty() ? std::vector<std::string>{"comm-schedule"} : entries;
}

/// The budget of the whole run: by default, the largest of the defaults of its passes.
llvm::Expected<MemoryBudget> parseBudget(const OverlapOptions &options, ArrayRef<std::string> entries) {
  const bool preservesPeak = isNamed("comm-reorder-preserving-peak-memory", entries) ||
                             isNamed("comm-sink-waits-preserving-peak-memory", entries);
  const double ofPasses = preservesPeak ? CommReorderPreservingPeakMemoryOptions().memoryBudgetRatio
                                        : CommScheduleOptions().memoryBudgetRatio;
  return MemoryBudget::parse(memoryBudgetRatioOf(options, ofPasses), options.memoryLimitBytes);
}

/// All that runs: the entries of `passes`, and what options add.
std::vector<std::string> runOf(const OverlapOptions &options, std::vector<std::string> entries) {
  if (maxStrandsOf(options.strands) != 1)
    entries.push_back("comm-split-strands");
  if (options.memoryPlan == OverlapOptions::MemoryPlanning::On)
    entries.push_back("comm-plan-memory");
  if (options.loops == OverlapOptions::LoopPipelining::Pipeline)
    entries.push_back("comm-pipeline-loops");
  if (!options.paretoFile.empty())
    entries.push_back("comm-pareto");
  return entries;
}

/// Adds one entry of `passes`. Fails with what is wrong in `os`.
LogicalResult addEntry(StageList &stages, StringRef entry, const OverlapOptions &options, llvm::raw_ostream &os) {
  StringRef name = entry.take_until([](char c) { return c == '{'; }), own = entry.drop_front(name.size());
  const Stage *stage = llvm::find_if(kStages, [&](const Stage &known) { return known.name == name.trim(); });
  if (stage == std::end(kStages)) {
    stages.add(createPlaceCheckPass(/*isBefore=*/true));
    std::string message;
    llvm::raw_string_ostream messages(message);
    if (succeeded(stages.parse(entry, messages))) {
      stages.add(createPlaceCheckPass(/*isBefore=*/false));
      return success();
    }
    bool isKnown = PassInfo::lookup(name.trim()) || PassPipelineInfo::lookup(name.trim());
    os << firstError(message) << (isKnown ? "" : suggestPass(name.trim()));
    return failure();
  }
  std::unique_ptr<Pass> pass = stage->make(options);
  if (own.consume_front("{") && !own.consume_back("}")) {
    os << "expected '}' at the end of '" << entry << "'";
    return failure();
  }
  auto report = [&](const llvm::Twine &message) {
    os << message;
    return failure();
  };
  if (failed(pass->initializeOptions(own, report)))
    return failure();
  stages.add(std::move(pass));
  return success();
}

} // namespace

LogicalResult commsched::buildOverlapPipeline(OpPassManager &manager, const OverlapOptions &given,
                                              llvm::function_ref<LogicalResult(const llvm::Twine &)> error,
                                              std::shared_ptr<ReportCollector> collector) {
  if (std::optional<StringRef> root = manager.getOpName(); root && *root != ModuleOp::getOperationName())
    return error("reorder-comm-overlap runs on a 'builtin.module', not on a '" + *root + "'");
  OverlapOptions options;
  options.copyOptionValuesFrom(given);
  applyPreset(options);
  const std::vector<std::string> names = entriesOf(options);
  llvm::Expected<MemoryBudget> memory = parseBudget(options, names);
  if (!memory)
    return error("reorder-comm-overlap: " + llvm::toString(memory.takeError()));
  if (std::string wrong = validate(noiseOptionsOf(options)); !wrong.empty())
    return error("reorder-comm-overlap: " + wrong);
  bool report = options.table || !options.reportFile.empty() || !options.timelineFile.empty() ||
                !options.searchLogFile.empty() || !options.certificateFile.empty() || !options.explain.empty() ||
                !options.overlapFile.empty();
  if (!collector && report)
    collector = std::make_shared<ReportCollector>(makeReportOptions(options, *memory));
  manager.addPass(createForeignOperationsPass(options.assumePure));
  if (!options.paretoFile.empty())
    manager.addPass(makePareto(options));
  if (collector)
    manager.addPass(createReportStagePass(collector, ReportStage::Begin));
  StageList stages(manager);
  std::optional<int64_t> maxStrands = maxStrandsOf(options.strands);
  if (!maxStrands)
    return error("reorder-comm-overlap: strands=" + options.strands + ": expected off, auto, or a number");
  if (std::string wrong = checkReaders(options, runOf(options, names)); !wrong.empty())
    return error("reorder-comm-overlap: " + wrong);
  if (*maxStrands != 1)
    stages.add(makeSplitStrands(options));
  if (options.memoryPlan == OverlapOptions::MemoryPlanning::On)
    stages.add(makeSearching<CommPlanMemoryOptions, createCommPlanMemory>(options));
  if (options.loops == OverlapOptions::LoopPipelining::Pipeline)
    stages.add(makeSearching<CommPipelineLoopsOptions, createCommPipelineLoops>(options));
  for (StringRef entry : names) {
    std::string message;
    llvm::raw_string_ostream os(message);
    if (failed(addEntry(stages, entry, options, os)))
      return error("reorder-comm-overlap: cannot run '" + entry + "' of 'passes': " + message);
  }
  if (options.multiStream)
    stages.add(makeMultiStream(options));
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
      return error("reorder-comm-overlap: " + StringRef(message).rtrim());
    return buildOverlapPipeline(manager, options, error);
  };
  auto visitOptions = [](llvm::function_ref<void(const mlir::detail::PassOptions &)> visit) {
    visit(OverlapOptions());
  };
  registerPassPipeline("reorder-comm-overlap", "hide collectives behind computation under a hard peak-memory limit",
                       build, visitOptions);
}
