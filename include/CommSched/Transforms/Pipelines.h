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

#include "CommSched/Support/ByteCount.h"
#include "CommSched/Support/CollectiveOrder.h"
#include "CommSched/Transforms/CheckedOptions.h"
#include "CommSched/Transforms/Scheduling/ReportCollector.h"
#include "llvm/Support/CommandLine.h"

namespace commsched {

/// Options of `reorder-comm-overlap`.
struct OverlapOptions : public CheckedPipelineOptions<OverlapOptions> {
  enum class Preset { Balanced, Safe, Fast };
  enum class MemoryPlanning { Off, On };
  enum class LoopPipelining { Keep, Pipeline };

  Option<Preset> preset{
      *this, "preset", llvm::cl::init(Preset::Balanced), llvm::cl::desc("what other options are if they are not given"),
      llvm::cl::values(clEnumValN(Preset::Balanced, "balanced", "their defaults"),
                       clEnumValN(Preset::Safe, "safe",
                                  "collective-order=program, bucketing=false and memory-budget-ratio=0: collectives "
                                  "stay as they are and in their order, and no pass raises the peak"),
                       clEnumValN(Preset::Fast, "fast", "effort=0: first answers, without a search"))};
  ListOption<std::string> passes{
      *this, "passes",
      llvm::cl::desc(
          "passes to run, in order, with or without options: comm-bucket{fsdp-only=true},cse; default: comm-schedule")};
  Option<std::string> machine{
      *this, "machine",
      llvm::cl::desc("machine profile: the name of a shipped profile, or a path; default: that of "
                     "--comm-machine, or h100-sxm")};
  ListOption<std::string> profiles{
      *this, "profiles", llvm::cl::desc("machine profiles for comm-align-costs, one per rank; empty: 'machine'")};
  Option<double> memoryBudgetRatio{
      *this, "memory-budget-ratio", llvm::cl::init(-1.0),
      llvm::cl::desc(
          "amount by which the peak may exceed the input's peak, as a fraction of it; above -1 and negative: by "
          "which it has to be below; -1: the default of each pass")};
  Option<ByteCount> memoryLimitBytes{
      *this, "memory-limit-bytes", llvm::cl::init(-1),
      llvm::cl::desc("hard limit on peak memory in bytes, excluding arguments that are live throughout the block; "
                     "if >= 0, overrides memory-budget-ratio")};
  Option<LimitedMemory> limitedMemory{
      *this, "limit", llvm::cl::init(LimitedMemory::Live), llvm::cl::desc("memory that the limit is about"),
      llvm::cl::values(clEnumValN(LimitedMemory::Live, "live", "buffers that are live together"),
                       clEnumValN(LimitedMemory::Arena, "arena",
                                  "the arena of a buffer plan, with the largest workspace (comm-schedule only)"))};
  Option<CollectiveOrder> collectiveOrder{
      *this, "collective-order", llvm::cl::init(CollectiveOrder::Free),
      llvm::cl::desc("collectives that keep their relative order"),
      llvm::cl::values(clEnumValN(CollectiveOrder::Free, "free", "none; only dependences hold"),
                       clEnumValN(CollectiveOrder::Group, "group", "the collectives of each group"),
                       clEnumValN(CollectiveOrder::Program, "program", "all collectives"))};
  Option<bool> bucketing{*this, "bucketing", llvm::cl::init(true), llvm::cl::desc("merge collectives")};
  Option<ByteCount> bucketCapBytes{*this, "bucket-cap-bytes", llvm::cl::init(-1),
                                   llvm::cl::desc("largest merged collective, bytes; negative: unlimited")};
  Option<std::string> strands{
      *this, "strands", llvm::cl::init("off"),
      llvm::cl::desc(
          "run comm-split-strands before all other passes: off, auto (up to 4 strands), or the largest number "
          "of strands")};
  Option<bool> allowReassociation{
      *this, "allow-reassociation", llvm::cl::init(false),
      llvm::cl::desc("let comm-split-strands add the terms of a floating-point sum in another order")};
  Option<MemoryPlanning> memoryPlan{
      *this, "memory-plan", llvm::cl::init(MemoryPlanning::Off),
      llvm::cl::desc("run comm-plan-memory before all other passes, but after comm-split-strands"),
      llvm::cl::values(clEnumValN(MemoryPlanning::Off, "off", "no"),
                       clEnumValN(MemoryPlanning::On, "on", "decide what is kept and what is made again"))};
  Option<LoopPipelining> loops{
      *this, "loops", llvm::cl::init(LoopPipelining::Keep),
      llvm::cl::desc("run comm-pipeline-loops before all other passes, but after comm-plan-memory"),
      llvm::cl::values(clEnumValN(LoopPipelining::Keep, "keep", "no"),
                       clEnumValN(LoopPipelining::Pipeline, "pipeline",
                                  "run collectives of loops in other iterations where that is faster"))};
  ListOption<std::string> assumePure{
      *this, "assume-pure",
      llvm::cl::desc("dialects and operations without effects, added to the module's comm.no_effects")};
  Option<bool> multiStream{*this, "multi-stream", llvm::cl::init(false),
                           llvm::cl::desc("run comm-multi-stream after all other passes")};
  Option<int64_t> effort{
      *this, "effort", llvm::cl::init(-1),
      llvm::cl::desc("maximum number of steps of one search; 0: only the first answer, negative: the default")};
  Option<Objective> objective{
      *this, "objective", llvm::cl::init(Objective::Robust), llvm::cl::desc("what comm-schedule minimizes"),
      llvm::cl::values(clEnumValN(Objective::Robust, "robust", "the makespan, and within 0.1 % of it the regret"),
                       clEnumValN(Objective::Regret, "regret", "the regret alone"),
                       clEnumValN(Objective::Makespan, "makespan", "the makespan alone"))};
  Option<double> timeBudgetRatio{
      *this, "time-budget-ratio", llvm::cl::init(-1.0),
      llvm::cl::desc("let comm-schedule look for the lowest peak of schedules that take at most this fraction longer "
                     "than the fastest one; negative: for the fastest one")};
  Option<int32_t> scenarios{*this, "scenarios", llvm::cl::init(0),
                            llvm::cl::desc("number of scenarios in which durations vary, for the report")};
  Option<int32_t> collectiveSpreadPermille{
      *this, "collective-spread-permille", llvm::cl::init(NoiseOptions().collectiveSpreadPermille),
      llvm::cl::desc("standard deviation of the logarithm of a collective's duration, permille, if its cost has no "
                     "error bar")};
  Option<int32_t> computeSpreadPermille{*this, "compute-spread-permille",
                                        llvm::cl::init(NoiseOptions().computeSpreadPermille),
                                        llvm::cl::desc("the same for all other operations")};
  Option<std::string> reportFile{*this, "report-file", llvm::cl::desc("write the report as JSON to this file")};
  Option<std::string> timelineFile{*this, "timeline-file",
                                   llvm::cl::desc("write the timeline to this file: an HTML page if the name ends in "
                                                  ".html, a picture for .svg, otherwise a Perfetto trace")};
  Option<std::string> searchLogFile{
      *this, "search-log-file",
      llvm::cl::desc("write the attempts of comm-schedule's search to this file, one JSON object per line")};
  Option<std::string> certificateFile{
      *this, "certificate-file",
      llvm::cl::desc("write what proves the answers of comm-schedule to this file, for commsched-verify")};
  Option<std::string> paretoFile{*this, "pareto-file",
                                 llvm::cl::desc("write the input's curve of time against peak memory as JSON to this "
                                                "file, and as a picture (SVG) beside it")};
  Option<std::string> explain{
      *this, "explain",
      llvm::cl::desc("explain the collectives with this name on standard error: when each runs, what "
                     "hides it, and what limits it")};
  Option<std::string> overlapFile{
      *this, "overlap-file",
      llvm::cl::desc("write what each pass did to each collective, and all operations in their order, with a bar in "
                     "front of what runs beside a collective, as text to this file; -: to standard error")};
  Option<bool> table{*this, "table", llvm::cl::init(false), llvm::cl::desc("print the report to standard error")};
};

/// Adds the pipeline to a pass manager of modules. An entry of `passes` is either a pass of this project, which
/// gets its options from `options` and then from the entry, or any text that MLIR's pass-pipeline parser accepts,
/// including other registered and nested pipelines. Fails, through `error`, on anything else. The collector may be
/// null; otherwise it has the report after the pipeline has run. An option that asks for something and that no pass of
/// the run reads is an error, which names both.
llvm::LogicalResult buildOverlapPipeline(mlir::OpPassManager &manager, const OverlapOptions &options,
                                         llvm::function_ref<llvm::LogicalResult(const llvm::Twine &)> error,
                                         std::shared_ptr<ReportCollector> collector = nullptr);

/// Registers `reorder-comm-overlap` with MLIR's global registry.
void registerPipelines();

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_PIPELINES_H
