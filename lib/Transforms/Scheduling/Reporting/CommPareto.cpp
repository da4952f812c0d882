//===- CommPareto.cpp - The pass comm-pareto --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Loads each block, solves its curve of time against peak memory, and writes all curves.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Report/ParetoReport.h"
#include "CommSched/Scheduling/Bounds/Bounds.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "CommSched/Transforms/Scheduling/ReportCollector.h"
#include "CommSched/Transforms/SchedulingOptions.h"
#include "PassBase/MachinePass.h"
#include "mlir/IR/Threading.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

namespace commsched {
#define GEN_PASS_DEF_COMMPARETO
#include "CommSched/Transforms/Passes.h.inc"
} // namespace commsched

using namespace mlir;
using namespace commsched;

namespace {

struct CommParetoPass : MachinePass<commsched::impl::CommParetoBase<CommParetoPass>> {
  using MachinePass::MachinePass;

  LogicalResult checkOptions(MLIRContext *context) final {
    auto error = [&] { return emitError(UnknownLoc::get(context)); };
    if (file.empty() && picture.empty())
      return error() << "comm-pareto: expected the option 'file' or 'picture', got neither";
    if (!file.empty() && picturePath() == file.getValue())
      return error() << "comm-pareto: expected different files for the JSON and the picture, got '" << file.getValue()
                     << "' for both";
    if (limits < 3)
      return error() << "comm-pareto: expected limits of at least 3, got " << limits.getValue();
    return success();
  }

  void runWithModel() final {
    markAllAnalysesPreserved();
    ParetoReport report = {machineName(&getContext(), machine), {}};
    for (ReportedBlock &reported : findReportedBlocks(getOperation()))
      if (failed(solveInto(reported, report)))
        return signalPassFailure();
    if (failed(write(report)))
      signalPassFailure();
  }

private:
  /// Adds the curve of one block to the report.
  LogicalResult solveInto(ReportedBlock &reported, ParetoReport &report) {
    Block &block = *reported.block;
    LoadedBlock loaded = loadBlock(block, OperationCosts(*model), solverOptions().load);
    // The loader has validated the problem and said what is wrong.
    if (!loaded.defect.empty())
      return failure();
    if (loaded.problem.hasStreams())
      return emitError(block.getParentOp()->getLoc())
             << "comm-pareto: expected a block whose operations are on one stream; run comm-multi-stream last";
    report.blocks.push_back(solveBlock(loaded, std::move(reported.name)));
    if (std::string defect = report.blocks.back().curve.defect; !defect.empty())
      return emitError(reported.function.getLoc())
             << "the solver's answer failed verification (" << defect << "); please report this";
    return success();
  }

  SolverOptions solverOptions() const { return {collectiveOrder, bucketing, bucketCapBytes, effort}; }

  ParetoBlock solveBlock(const LoadedBlock &loaded, std::string name) {
    SolverOptions solver = solverOptions();
    auto parallelFor = [&](size_t count, llvm::function_ref<void(size_t)> body) {
      mlir::parallelFor(&getContext(), 0, count, body);
    };
    ParetoCurve curve = paretoCurve(loaded.problem, solver.schedule, limits, parallelFor);
    LowerBound bound = bucketing ? jointLowerBound(loaded.problem) : lowerBound(loaded.problem);
    return {std::move(name), std::move(curve), bound.makespan, bound.describe(loaded.problem),
            peakLowerBound(loaded.problem)};
  }

  /// The path of the picture; empty for none.
  std::string picturePath() const {
    if (!picture.empty() || file.empty() || file == "-")
      return picture;
    SmallString<128> path(file.getValue());
    llvm::sys::path::replace_extension(path, "svg");
    return path.str().str();
  }

  LogicalResult write(const ParetoReport &report) {
    auto printJson = [&](llvm::raw_ostream &os) { os << llvm::formatv("{0:2}\n", report.toJSON()); };
    auto printPicture = [&](llvm::raw_ostream &os) { writeSvg(report, os); };
    Location loc = getOperation().getLoc();
    return failure(failed(writeReportFile(loc, file, printJson)) ||
                   failed(writeReportFile(loc, picturePath(), printPicture)));
  }
};

} // namespace
