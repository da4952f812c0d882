//===- ReportCollector.h - One report over several passes -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A pipeline measures its input, runs, and measures its output. The collector is what the two measurements share.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_SCHEDULING_REPORTCOLLECTOR_H
#define COMMSCHED_TRANSFORMS_SCHEDULING_REPORTCOLLECTOR_H

#include "CommSched/Report/Report.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SmallPtrSet.h"
#include <chrono>
#include <memory>

namespace commsched {

/// What is reported, and where to.
struct ReportOptions {
  /// Name or path of the machine profile; empty: the environment's (Analysis/Environment.h).
  std::string machine;
  CollectiveOrder collectiveOrder = CollectiveOrder::Free;
  /// Whether the pipeline may merge collectives: the lower bound is then one for any bucketing.
  bool bucketing = false;
  /// Whether all passes keep `collectiveOrder`. Otherwise a result below the bound for that order is compared with the
  /// bound for any order.
  bool keepsOrder = false;
  /// The peak limit.
  MemoryBudget memory;
  /// The scenarios in which makespans are sampled; they are valid.
  NoiseOptions noise;
  /// Empty: not written.
  std::string reportFile, timelineFile, searchLogFile, certificateFile;
  /// Where printOverlap writes: a file, or "-" for standard error. Empty: nowhere.
  std::string overlapFile;
  /// The name of the collectives to explain (printExplanation), on standard error; empty: none.
  std::string explained;
  /// Print the table to standard error.
  bool table = true;
};

/// Collects one Report. Used by one module at a time.
class ReportCollector {
public:
  explicit ReportCollector(ReportOptions options) : options(std::move(options)) {}

  /// Measures the input, and names its blocks (BlockNames.h), unless a report around this one has named them. Fails,
  /// with a diagnostic, where the machine profile is not to be had.
  llvm::LogicalResult begin(mlir::ModuleOp module);

  /// Measures the output, removes the names of the blocks, and writes and prints what was asked for. Fails, with a
  /// diagnostic, where a file cannot be written; nothing half-written stays behind.
  llvm::LogicalResult end(mlir::ModuleOp module);

  /// Instead of end(), if a pass has failed: removes the names of the blocks.
  void abandon(mlir::ModuleOp module);

  /// Instead of begin() and end(), for a module that nothing changes in between: before and after are one measurement.
  llvm::LogicalResult measureOnce(mlir::ModuleOp module);

  /// Says between begin() and end() that a pass of another project runs (PassJournal).
  void noteOtherPass() { journal->noteOtherPass(); }

  /// The report, after end() or measureOnce().
  const Report &report() const { return result; }

private:
  llvm::LogicalResult write(mlir::ModuleOp module);
  void takeJournal(mlir::ModuleOp module);
  bool measureAfter(ReportedBlock &reported, BlockReport &report, MeasureOptions &measure, const OperationCosts &costs);
  void measureRebuilt(llvm::ArrayRef<ReportedBlock> reportedBlocks, const OperationCosts &costs);
  void keepCompared(const llvm::SmallPtrSetImpl<const BlockReport *> &compared);

  ReportOptions options;
  Report result;
  /// What passes write between begin() and end(), and the journal of a report around this one.
  std::shared_ptr<PassJournal> journal, outerJournal;
  /// Indexed by block that is inside of a function's body: what the whole function takes before the passes.
  std::map<std::string, RebuiltFunction> wholes;
  /// Whether begin() named the blocks, so that this collector removes the names.
  bool ownsNames = false;
  std::chrono::steady_clock::time_point began;
  /// Of the input, if certificates are written.
  std::string inputHash;
};

/// Writes `file` as a whole, or leaves it as it was and says why at `loc`. Nothing where `file` is empty.
llvm::LogicalResult writeReportFile(mlir::Location loc, llvm::StringRef file,
                                    llvm::function_ref<void(llvm::raw_ostream &)> print);

/// Which half of a report a pass makes.
enum class ReportStage { Begin, End };

/// A pass that makes one half of a shared report.
std::unique_ptr<mlir::Pass> createReportStagePass(std::shared_ptr<ReportCollector> collector, ReportStage stage);

/// A pass of modules that runs `body`, a pipeline of modules, between the two halves of a report, or alone if
/// `collector` is null.
std::unique_ptr<mlir::Pass> createReportedPipeline(std::shared_ptr<ReportCollector> collector,
                                                   mlir::OpPassManager body);

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_SCHEDULING_REPORTCOLLECTOR_H
