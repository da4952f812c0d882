//===- Pipelines.h - reorder-comm-overlap -----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The pipeline that users call. One options struct for its command line, its C++ interface and the front ends.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TRANSFORMS_PIPELINES_H
#define COMMSCHED_TRANSFORMS_PIPELINES_H

#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Transforms/Scheduling/ReportCollector.h"
#include "mlir/Pass/PassOptions.h"
#include "llvm/Support/CommandLine.h"

namespace commsched {

/// Options of `reorder-comm-overlap`.
struct OverlapOptions : public mlir::PassPipelineOptions<OverlapOptions> {
  enum class Solver { Schedule, Inductor };

  Option<Solver> solver{
      *this, "solver", llvm::cl::init(Solver::Schedule),
      llvm::cl::desc("which list of passes runs where `passes` names none"),
      llvm::cl::values(clEnumValN(Solver::Schedule, "schedule", "comm-schedule: order and buckets together"),
                       clEnumValN(Solver::Inductor, "inductor",
                                  "PyTorch Inductor's two peak-preserving passes with Inductor's defaults"))};
  ListOption<std::string> passes{
      *this, "passes",
      llvm::cl::desc("the passes to run instead, in order, with or without options: comm-bucket{fsdp-only=true},cse")};
  Option<std::string> machine{
      *this, "machine",
      llvm::cl::desc("machine profile: the name of a shipped one, or a path; by default the one "
                     "of --comm-machine, or h100-sxm")};
  ListOption<std::string> profiles{
      *this, "profiles", llvm::cl::desc("machine profiles for comm-align-costs, one per rank; 'machine' where empty")};
  Option<double> memoryBudgetRatio{
      *this, "memory-budget-ratio", llvm::cl::init(-1.0),
      llvm::cl::desc("the peak may exceed the input's by this fraction of it; -1 for the solver's default: 0, or 0.2 "
                     "for inductor")};
  Option<int64_t> memoryLimitBytes{
      *this, "memory-limit-bytes", llvm::cl::init(-1),
      llvm::cl::desc("the peak may reach this many bytes; overrides the ratio where not negative")};
  Option<CollectiveOrder> collectiveOrder{
      *this, "collective-order", llvm::cl::init(CollectiveOrder::Free),
      llvm::cl::desc("which collectives keep their relative order"),
      llvm::cl::values(clEnumValN(CollectiveOrder::Free, "free", "only dependences hold"),
                       clEnumValN(CollectiveOrder::Group, "group", "those of one group do"),
                       clEnumValN(CollectiveOrder::Program, "program", "all do"))};
  Option<bool> bucketing{*this, "bucketing", llvm::cl::init(true), llvm::cl::desc("merge collectives")};
  Option<int64_t> bucketCapBytes{*this, "bucket-cap-bytes", llvm::cl::init(-1),
                                 llvm::cl::desc("largest merged collective, bytes; no limit where negative")};
  Option<int64_t> effort{*this, "effort", llvm::cl::init(-1),
                         llvm::cl::desc("steps of the search: 0 for the first answer, negative for the default")};
  Option<std::string> reportFile{*this, "report-file", llvm::cl::desc("write the report as JSON to this file")};
  Option<std::string> timelineFile{
      *this, "timeline-file",
      llvm::cl::desc("write the timeline to this file: a page where it ends in .html, a Perfetto trace otherwise")};
  Option<std::string> searchLogFile{
      *this, "search-log-file",
      llvm::cl::desc("write what the search of comm-schedule tried to this file, one JSON object per line")};
  Option<std::string> paretoFile{*this, "pareto-file",
                                 llvm::cl::desc("write time against peak of the input as JSON to this file, and as a "
                                                "picture (SVG) beside it")};
  Option<bool> table{*this, "table", llvm::cl::init(false), llvm::cl::desc("print the report to standard error")};
};

/// Adds the pipeline to a pass manager of modules. An entry of `passes` is a pass of this project, which takes what
/// concerns it from `options` and then its own options, or any text that MLIR's pass-pipeline parser takes: passes and
/// pipelines of whoever registered them, nested ones too. Fails, through `error`, on any other. The collector may be
/// null; otherwise it holds the report when the pipeline has run.
llvm::LogicalResult buildOverlapPipeline(mlir::OpPassManager &manager, const OverlapOptions &options,
                                         llvm::function_ref<llvm::LogicalResult(const llvm::Twine &)> error,
                                         std::shared_ptr<ReportCollector> collector = nullptr);

/// Registers `reorder-comm-overlap` with MLIR's global registry.
void registerPipelines();

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_PIPELINES_H
