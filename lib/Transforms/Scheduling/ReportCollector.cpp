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
#include "CommSched/Support/OutputFile.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace commsched;

/// The name of a function within `module`: those of the modules around it stand in front ("inner::f").
static std::string qualifiedName(ModuleOp module, FunctionOpInterface function) {
  std::string name = function.getName().str();
  for (auto outer = function->getParentOfType<ModuleOp>(); outer && outer != module;
       outer = outer->getParentOfType<ModuleOp>())
    name = outer.getName().value_or("module").str() + "::" + name;
  return name;
}

void commsched::forEachReportedBlock(ModuleOp module,
                                     llvm::function_ref<void(FunctionOpInterface, Block &, std::string)> visit) {
  llvm::StringMap<int> taken;
  module.walk([&](FunctionOpInterface function) {
    int64_t inner = 0;
    std::string name = qualifiedName(module, function);
    if (int earlier = taken[name]++)
      name += "#" + std::to_string(earlier + 1);
    for (Block *block : findSchedulableBlocks(function)) {
      bool body = block->getParentOp() == function && block->isEntryBlock();
      visit(function, *block, body ? name : name + "." + std::to_string(inner++));
    }
  });
}

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

LogicalResult ReportCollector::begin(ModuleOp module) {
  llvm::Expected<MachineModel> machine = loadMachine(module.getContext(), options.machine);
  if (!machine)
    return emitError(module.getLoc()) << llvm::toString(machine.takeError());
  CostModel model(*machine);
  OperationCosts costs(model);
  result = {machineName(module.getContext(), options.machine), options.noise, {}, {}};
  MeasureOptions measure;
  measure.load = {options.collectiveOrder, options.bucketing};
  measure.boundBudget = options.memory;
  measure.timeline = !options.timelineFile.empty();
  measure.anyBound = true;
  measure.noise = options.noise;
  ErrorBars errorBars(costs, module);
  measure.errorBars = &errorBars;
  forEachReportedBlock(module, [&](FunctionOpInterface, Block &block, std::string name) {
    BlockReport report;
    report.name = std::move(name);
    report.before = measureBlock(block, costs, measure);
    report.limit = options.memory.limitFor(report.before.peak);
    result.blocks.push_back(std::move(report));
  });
  bool certifies = !options.certificateFile.empty();
  journal = std::make_shared<PassJournal>(/*logsSearch=*/!options.searchLogFile.empty(), certifies);
  if (certifies)
    inputHash = hashOf(module);
  if (Environment *environment = Environment::of(module.getContext()))
    outerJournal = std::exchange(environment->journal, journal);
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
  measure.timeline = !options.timelineFile.empty();
  bool consistent = true;
  llvm::StringMap<BlockReport *> byName;
  for (BlockReport &block : result.blocks)
    byName[block.name] = &block;
  forEachReportedBlock(module, [&](FunctionOpInterface function, Block &block, std::string name) {
    BlockReport *report = byName.lookup(name);
    if (!report)
      return;
    measure.factorBudget.limit = report->limit;
    report->after = measureBlock(block, costs, measure);
    report->solve = spent;
    report->signature = scheduleSignature(function);
    std::string wrong = report->after.defect.empty() ? certify(*report) : report->after.defect;
    if (wrong.empty())
      return;
    emitError(block.getParentOp()->getLoc()) << "a report contradicts itself (" << wrong << "); please report this";
    consistent = false;
  });
  return failure(failed(write(module)) || !consistent);
}

LogicalResult ReportCollector::measureOnce(ModuleOp module) {
  if (failed(begin(module)))
    return failure();
  takeJournal(module);
  size_t next = 0;
  forEachReportedBlock(module, [&](FunctionOpInterface function, Block &, std::string) {
    BlockReport &report = result.blocks[next++];
    report.after = report.before;
    report.isOneMeasurement = true;
    report.signature = scheduleSignature(function);
  });
  return write(module);
}

LogicalResult ReportCollector::write(ModuleOp module) {
  if (options.table)
    printTable(result, llvm::errs());
  bool page = StringRef(options.timelineFile).ends_with(".html");
  auto printJson = [&](llvm::raw_ostream &os) { os << llvm::formatv("{0:2}\n", result.toJSON()); };
  auto printTimeline = [&](llvm::raw_ostream &os) { page ? writeHtml(result, os) : writeTrace(result, os); };
  auto printSearch = [&](llvm::raw_ostream &os) {
    for (const PassRecord &pass : result.passes)
      os << pass.searchLog;
  };
  auto printCertificates = [&](llvm::raw_ostream &os) {
    int64_t blocks = llvm::count_if(result.passes, [](const PassRecord &pass) { return !pass.certificate.empty(); });
    writeCertificateHeader(blocks, inputHash, hashOf(module), ranksOfGroups(module), os);
    for (const PassRecord &pass : result.passes)
      os << pass.certificate;
  };
  return failure(failed(writeReportFile(module.getLoc(), options.reportFile, printJson)) ||
                 failed(writeReportFile(module.getLoc(), options.timelineFile, printTimeline)) ||
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

/// A pipeline between the two halves of a report. Passes cannot be added to a pipeline that a parser has filled.
class ReportedPipeline : public PassWrapper<ReportedPipeline, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReportedPipeline)
  ReportedPipeline(std::shared_ptr<ReportCollector> collector, OpPassManager body)
      : collector(std::move(collector)), body(std::move(body)) {}
  StringRef getName() const final { return "comm-reported-pipeline"; }

  void getDependentDialects(DialectRegistry &registry) const final { body.getDependentDialects(registry); }

  void runOnOperation() final {
    if ((collector && failed(collector->begin(getOperation()))) || failed(runPipeline(body, getOperation())) ||
        (collector && failed(collector->end(getOperation()))))
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
