//===- ReportCollector.cpp - One report over several passes -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Scheduling/ReportCollector.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/ScheduleSignature.h"
#include "CommSched/Report/Certificate.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Support/OutputFile.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace commsched;

LogicalResult commsched::writeReportFile(Location loc, StringRef file,
                                         llvm::function_ref<void(llvm::raw_ostream &)> print) {
  if (file.empty())
    return success();
  llvm::Error error = writeWhole(file, [&](llvm::raw_ostream &os) {
    print(os);
    return llvm::Error::success();
  });
  if (error)
    return emitError(loc) << "cannot write '" << file << "': " << llvm::toString(std::move(error));
  return success();
}

/// SHA-256 of the file that comm-opt makes of the module, as 64 hexadecimal digits.
static std::string hashOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os, OpPrintingFlags().assumeVerified());
  os << "\n";
  return llvm::toHex(llvm::SHA256::hash(llvm::arrayRefFromStringRef(text)), /*LowerCase=*/true);
}

/// Whether something of what is asked for is read off timelines.
static bool needsTimeline(const ReportOptions &options) {
  return !options.timelineFile.empty() || !options.explained.empty() || !options.overlapFile.empty();
}

/// The time and the peak of a function's body with all that is inside.
static std::pair<Ns, Bytes> measureWhole(FunctionOpInterface function, const OperationCosts &costs,
                                         CollectiveOrder order) {
  LoadedBlock loaded = loadBlock(function.getFunctionBody().front(), costs, {order});
  Order given = identityOrder(loaded.problem);
  return {makespanOf(loaded.problem, given), peakOf(loaded.problem, given)};
}

LogicalResult ReportCollector::begin(ModuleOp module) {
  llvm::Expected<MachineModel> machine = loadMachine(module.getContext(), options.machine);
  if (!machine)
    return emitError(module.getLoc()) << llvm::toString(machine.takeError());
  CostModel model(*machine);
  OperationCosts costs(model);
  result = {};
  result.machine = machineName(module.getContext(), options.machine);
  result.noise = options.noise;
  wholes.clear();
  MeasureOptions measure;
  measure.load = {options.collectiveOrder, options.bucketing};
  measure.boundBudget = options.memory;
  measure.timeline = needsTimeline(options);
  measure.anyBound = true;
  measure.anyOrder = !options.keepsOrder;
  measure.noise = options.noise;
  ErrorBars errorBars(costs, module);
  measure.errorBars = &errorBars;
  FunctionOpInterface measured;
  RebuiltFunction whole;
  for (ReportedBlock &reported : findReportedBlocks(module)) {
    if (reported.block->getParentOp() != reported.function && reported.function.getFunctionBody().hasOneBlock()) {
      if (measured != reported.function) {
        whole.name = functionNameOf(reported).str();
        std::tie(whole.makespan.before, whole.peak.before) =
            measureWhole(reported.function, costs, options.collectiveOrder);
        whole.limit = options.memory.limitFor(whole.peak.before);
        measured = reported.function;
      }
      wholes[reported.name] = whole;
    }
    BlockReport report;
    report.name = std::move(reported.name);
    report.before = measureBlock(*reported.block, costs, measure);
    report.limit = options.memory.limitFor(report.before.peak);
    result.blocks.push_back(std::move(report));
  }
  bool certifies = !options.certificateFile.empty();
  journal = std::make_shared<PassJournal>(/*logsSearch=*/!options.searchLogFile.empty(), certifies);
  if (certifies)
    inputHash = hashOf(module);
  if (Environment *environment = Environment::of(module.getContext()))
    outerJournal = std::exchange(environment->journal, journal);
  ownsNames = !outerJournal;
  nameReportedBlocks(module);
  began = std::chrono::steady_clock::now();
  return success();
}

/// Takes what passes wrote down since begin(), by block in the order of the report.
void ReportCollector::takeJournal(ModuleOp module) {
  if (Environment *environment = Environment::of(module.getContext()))
    environment->journal = std::exchange(outerJournal, nullptr);
  result.passes = journal->take();
  llvm::StringMap<size_t> rank;
  for (auto [index, block] : llvm::enumerate(result.blocks))
    rank[block.name] = index;
  auto rankOf = [&](const PassRecord &record) {
    auto it = rank.find(record.block);
    return it == rank.end() ? rank.size() : it->second;
  };
  llvm::stable_sort(result.passes, [&](const PassRecord &a, const PassRecord &b) { return rankOf(a) < rankOf(b); });
}

LogicalResult ReportCollector::end(ModuleOp module) {
  takeJournal(module);
  Ns spent = std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
  llvm::Expected<MachineModel> machine = loadMachine(module.getContext(), options.machine);
  if (!machine)
    return emitError(module.getLoc()) << llvm::toString(machine.takeError());
  CostModel model(*machine);
  OperationCosts costs(model);
  MeasureOptions measure;
  measure.load = {options.collectiveOrder, /*bucketing=*/false};
  measure.bounds = false;
  measure.noise = options.noise;
  ErrorBars errorBars(costs, module);
  measure.errorBars = &errorBars;
  measure.timeline = needsTimeline(options);
  std::vector<ReportedBlock> reportedBlocks = findReportedBlocks(module);
  abandon(module);
  llvm::StringMap<BlockReport *> byName;
  for (BlockReport &block : result.blocks)
    byName[block.name] = &block;
  bool consistent = true;
  llvm::SmallPtrSet<const BlockReport *, 8> compared;
  for (ReportedBlock &reported : reportedBlocks) {
    BlockReport *report = byName.lookup(reported.name);
    if (!report) {
      result.newBlocks.push_back(reported.name);
      continue;
    }
    compared.insert(report);
    report->solve = spent;
    consistent &= measureAfter(reported, *report, measure, costs);
  }
  keepCompared(compared);
  measureRebuilt(reportedBlocks, costs);
  return failure(failed(write(module)) || !consistent);
}

/// Measures a block after the passes. Returns false, with a diagnostic, if the report contradicts itself.
bool ReportCollector::measureAfter(ReportedBlock &reported, BlockReport &report, MeasureOptions &measure,
                                   const OperationCosts &costs) {
  measure.factorBudget.limit = report.limit;
  report.after = measureBlock(*reported.block, costs, measure);
  report.signature = scheduleSignature(reported.function);
  report.numerics = numericsOf(reported.function);
  report.hasOtherPasses = journal && journal->hasOtherPasses();
  std::string wrong = report.after.defect.empty() ? certify(report) : report.after.defect;
  if (!wrong.empty())
    emitError(reported.block->getParentOp()->getLoc())
        << "a report contradicts itself (" << wrong << "); please report this";
  return wrong.empty();
}

/// Keeps the blocks that were found again, and only the names of the others.
void ReportCollector::keepCompared(const llvm::SmallPtrSetImpl<const BlockReport *> &compared) {
  std::vector<BlockReport> kept;
  for (BlockReport &block : result.blocks)
    if (compared.contains(&block))
      kept.push_back(std::move(block));
    else
      result.lostBlocks.push_back(block.name);
  result.blocks = std::move(kept);
}

/// Measures the functions of blocks that were not found again, as a whole.
void ReportCollector::measureRebuilt(ArrayRef<ReportedBlock> reportedBlocks, const OperationCosts &costs) {
  llvm::StringMap<const RebuiltFunction *> wanted;
  for (const std::string &name : result.lostBlocks)
    if (auto whole = wholes.find(name); whole != wholes.end())
      wanted[whole->second.name] = &whole->second;
  for (const ReportedBlock &reported : reportedBlocks) {
    auto before = wanted.find(functionNameOf(reported));
    if (before == wanted.end() || !reported.function->getRegion(0).hasOneBlock())
      continue;
    RebuiltFunction &after = result.rebuilt.emplace_back(*before->second);
    wanted.erase(before);
    std::tie(after.makespan.after, after.peak.after) = measureWhole(reported.function, costs, options.collectiveOrder);
  }
}

void ReportCollector::abandon(ModuleOp module) {
  if (ownsNames)
    dropReportedNames(module);
  ownsNames = false;
}

LogicalResult ReportCollector::measureOnce(ModuleOp module) {
  if (failed(begin(module)))
    return failure();
  takeJournal(module);
  for (auto [reported, report] : llvm::zip_equal(findReportedBlocks(module), result.blocks)) {
    report.after = report.before;
    report.isOneMeasurement = true;
    report.signature = scheduleSignature(reported.function);
    report.numerics = numericsOf(reported.function);
  }
  abandon(module);
  return write(module);
}

LogicalResult ReportCollector::write(ModuleOp module) {
  if (options.table)
    printTable(result, llvm::errs());
  llvm::Error unknown =
      options.explained.empty() ? llvm::Error::success() : printExplanation(result, options.explained, llvm::errs());
  if (unknown)
    return emitError(module.getLoc()) << llvm::toString(std::move(unknown));
  auto printListing = [&](llvm::raw_ostream &os) { printOverlap(result, os); };
  bool toTerminal = options.overlapFile == "-";
  if (toTerminal)
    printListing(llvm::errs());
  auto printJson = [&](llvm::raw_ostream &os) { os << llvm::formatv("{0:2}\n", result.toJSON()); };
  auto printTimeline = [&](llvm::raw_ostream &os) {
    StringRef extension = llvm::sys::path::extension(options.timelineFile);
    (extension == ".html" ? writeHtml : extension == ".svg" ? writeCard : writeTrace)(result, os);
  };
  auto printSearch = [&](llvm::raw_ostream &os) {
    for (const PassRecord &pass : result.passes)
      os << pass.searchLog;
  };
  auto printCertificates = [&](llvm::raw_ostream &os) {
    int64_t blocks = llvm::count_if(result.passes, [](const PassRecord &pass) { return !pass.certificate.empty(); });
    Numerics numerics = Numerics::Exact;
    module.walk([&](FunctionOpInterface function) { numerics = std::max(numerics, numericsOf(function).numerics); });
    writeCertificateHeader(blocks, inputHash, hashOf(module), numerics, ranksOfGroups(module), os);
    for (const PassRecord &pass : result.passes)
      os << pass.certificate;
  };
  return failure(failed(writeReportFile(module.getLoc(), options.reportFile, printJson)) ||
                 failed(writeReportFile(module.getLoc(), options.timelineFile, printTimeline)) ||
                 failed(writeReportFile(module.getLoc(), toTerminal ? "" : options.overlapFile, printListing)) ||
                 failed(writeReportFile(module.getLoc(), options.searchLogFile, printSearch)) ||
                 failed(writeReportFile(module.getLoc(), options.certificateFile, printCertificates)));
}

namespace {

/// One half of a report.
class ReportStagePass : public PassWrapper<ReportStagePass, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReportStagePass)
  ReportStagePass(std::shared_ptr<ReportCollector> collector, ReportStage stage)
      : collector(std::move(collector)), stage(stage) {}
  StringRef getName() const final { return "comm-report-stage"; }

  void runOnOperation() final {
    bool begin = stage == ReportStage::Begin;
    if (failed(begin ? collector->begin(getOperation()) : collector->end(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  std::shared_ptr<ReportCollector> collector;
  ReportStage stage;
};

/// Whether a pass may change more than order and buckets. Nested pipelines count as if they did.
bool isOfAnotherProject(const Pass &pass) { return !pass.getArgument().starts_with("comm-"); }

/// A pipeline between the two halves of a report. Passes cannot be added to a pipeline that a parser has filled.
class ReportedPipeline : public PassWrapper<ReportedPipeline, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReportedPipeline)
  ReportedPipeline(std::shared_ptr<ReportCollector> collector, OpPassManager body)
      : collector(std::move(collector)), body(std::move(body)) {}
  StringRef getName() const final { return "comm-reported-pipeline"; }

  void getDependentDialects(DialectRegistry &registry) const final { body.getDependentDialects(registry); }

  void runOnOperation() final {
    if (collector && failed(collector->begin(getOperation())))
      return signalPassFailure();
    if (collector && llvm::any_of(body.getPasses(), isOfAnotherProject))
      collector->noteOtherPass();
    if (failed(runPipeline(body, getOperation()))) {
      if (collector)
        collector->abandon(getOperation());
      return signalPassFailure();
    }
    if (collector && failed(collector->end(getOperation())))
      signalPassFailure();
  }

private:
  std::shared_ptr<ReportCollector> collector;
  OpPassManager body;
};

} // namespace

std::unique_ptr<Pass> commsched::createReportedPipeline(std::shared_ptr<ReportCollector> collector,
                                                        OpPassManager body) {
  return std::make_unique<ReportedPipeline>(std::move(collector), std::move(body));
}

std::unique_ptr<Pass> commsched::createReportStagePass(std::shared_ptr<ReportCollector> collector, ReportStage stage) {
  return std::make_unique<ReportStagePass>(std::move(collector), stage);
}
