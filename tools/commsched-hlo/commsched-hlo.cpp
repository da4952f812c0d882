//===- commsched-hlo.cpp - Schedule modules of XLA in files -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads a scheduled module, orders its instructions, and writes the module with the new order. Everything else in the
// file stays as it was, byte for byte.
//
//===------------------------------------------------------------------------------------------===//

#include "../Mains.h"
#include "CommSched/Frontends/Hlo/Reader/HloFile.h"
#include "CommSched/Frontends/Hlo/Schedule/HloRewriter.h"
#include "CommSched/Support/ByteCount.h"
#include "CommSched/Support/OutputFile.h"
#include "CommSched/Support/RunTool.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

static cl::OptionCategory category("commsched-hlo options");
static cl::opt<std::string> inputPath(cl::Positional, cl::desc("<module.pb>"), cl::init("-"), cl::cat(category));
static cl::opt<std::string> outputPath("o", cl::desc("The module that is written (default: none)"),
                                       cl::value_desc("file"), cl::cat(category));
static cl::opt<std::string> reportPath("report", cl::desc("The report as JSON"), cl::value_desc("file.json"),
                                       cl::cat(category));
static cl::opt<std::string> machine("machine", cl::desc("Machine profile: a name or a path (default: h100-sxm)"),
                                    cl::value_desc("profile"), cl::init(kDefaultMachine.str()), cl::cat(category));
static cl::opt<double>
    budgetRatio("memory-budget-ratio",
                cl::desc("How far peaks may rise above those of the given order; negative: how far they "
                         "have to be below (default: 0)"),
                cl::value_desc("R"), cl::init(0), cl::cat(category));
static cl::opt<ByteCount> memoryLimit("memory-limit-bytes",
                                      cl::desc("The most that XLA may need for temporaries, whatever the given order "
                                               "needs, as far as that can be told (default: none)"),
                                      cl::value_desc("bytes"), cl::init(-1), cl::cat(category));
static cl::opt<int64_t> effort("effort", cl::desc("Steps of the search per computation (default: by its size)"),
                               cl::value_desc("N"), cl::init(-1), cl::cat(category));
static cl::opt<Objective>
    objective("objective", cl::desc("What the search minimizes (default: robust)"), cl::init(Objective::Robust),
              cl::values(clEnumValN(Objective::Robust, "robust", "the makespan, and within 0.1 % of it the regret"),
                         clEnumValN(Objective::Regret, "regret",
                                    "the largest distance to a bound if collectives take 0.75 to 2 "
                                    "times as long"),
                         clEnumValN(Objective::Makespan, "makespan", "the makespan")),
              cl::cat(category));

static cl::opt<bool> buckets("buckets", cl::desc("Take merged collectives apart, and merge collectives anew"),
                             cl::cat(category));
static cl::opt<bool> asynchronous("asynchronous",
                                  cl::desc("Make collectives asynchronous that were told to be synchronous"),
                                  cl::cat(category));
static OwnOptions ownOptions(category, {inputPath});

static std::string microseconds(Ns time) { return formatv("{0:f1} us", static_cast<double>(time) / 1000).str(); }

static void printSummary(const hlo::HloModule &module, const hlo::HloResult &result, raw_ostream &os) {
  for (const hlo::ComputationResult &one : result.computations) {
    if (one.starts.empty() && one.computation != module.entry)
      continue;
    os << formatv("{0}: {1} nodes, {2} collectives, makespan {3} -> {4} (bound {5}, {6}), exposed {7} -> {8}, "
                  "peak {9} -> {10} bytes",
                  module.computations[one.computation].name, one.nodes, one.collectives,
                  microseconds(one.makespanBefore), microseconds(one.makespanAfter), microseconds(one.bound),
                  one.boundArgument, microseconds(one.exposedBefore), microseconds(one.exposedAfter), one.peakBefore,
                  one.peakAfter);
    if (!one.keepReason.empty())
      os << "; kept: " << one.keepReason;
    os << "\n";
  }
}

/// Says which loops would gain if XLA pipelined their collectives, and adds them to the report.
static Error addLoops(StringRef scheduled, const CostModel &model, const hlo::HloOptions &options,
                      json::Object &report) {
  Expected<hlo::HloModule> module = hlo::readModule(scheduled);
  if (!module)
    return module.takeError();
  Expected<hlo::LoopForecast> forecast = hlo::forecastLoops(*module, model, options);
  if (!forecast)
    return forecast.takeError();
  for (const hlo::PipelinedLoop &loop : forecast->loops)
    outs() << formatv(
        "{0}: {1} collectives could run an iteration apart: {2} -> {3} an iteration, {4} in all, {5} bytes "
        "more; XLA's flags for that are --xla_gpu_enable_pipelined_all_gather, "
        "--xla_gpu_enable_pipelined_reduce_scatter and --xla_gpu_enable_pipelined_all_reduce\n",
        loop.body, loop.collectives.size(), microseconds(loop.iteration), microseconds(loop.pipelined),
        microseconds(loop.gain), loop.carried);
  report["loops"] = hlo::describe(forecast->loops);
  return Error::success();
}

static Error run() {
  Expected<MachineModel> profile = MachineModel::load(machine);
  if (!profile)
    return profile.takeError();
  Expected<MemoryBudget> budget = MemoryBudget::parse(budgetRatio, memoryLimit);
  if (!budget)
    return budget.takeError();
  auto buffer = MemoryBuffer::getFileOrSTDIN(inputPath, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (std::error_code code = buffer.getError())
    return createFileError(inputPath, code);
  Expected<hlo::HloFile> file = hlo::HloFile::read((*buffer)->getBuffer(), inputPath);
  if (!file)
    return file.takeError();
  const hlo::HloModule &module = file->module();
  CostModel model(std::move(*profile));
  hlo::HloOptions options;
  options.memory = *budget;
  options.effort = effort;
  options.objective = objective;
  Expected<hlo::HloResult> result = hlo::scheduleModule(module, model, options);
  if (!result)
    return createFileError(inputPath, result.takeError());
  printSummary(module, *result, outs());
  const CostTimes &known = result->costTimes;
  if (known.of(CostKnowledge::Measured) + known.of(CostKnowledge::Curve) > 0 || known.isMostlyUnknown())
    outs() << "costs: " << known.describe() << "\n";
  json::Object report = hlo::describe(module, *result);
  std::string rewriteRefusal, cloneRefusal;
  if (buckets || asynchronous) {
    Expected<hlo::RewrittenModule> rewritten =
        hlo::rewriteModule(module, model, options, {buckets, asynchronous}, *result);
    if (rewritten) {
      outs() << formatv("with other collectives: makespan {0}\n",
                        microseconds(rewritten->result.entry().makespanAfter));
      result->module = std::move(rewritten->bytes);
      report = std::move(rewritten->report);
    } else {
      rewriteRefusal = toString(rewritten.takeError());
      outs() << "with the given collectives: " << rewriteRefusal << "\n";
    }
  }
  if ((options.memory.limit || options.memory.ppm < 0) && !report.getBoolean("changed").value_or(false) &&
      hlo::staysAboveLimit(*result)) {
    Expected<hlo::RewrittenModule> again =
        hlo::rewriteWithClones(module, model, options, {buckets, asynchronous}, *result);
    if (again) {
      const json::Object &made = *again->report.getObject("made_again");
      outs() << formatv("with values made again ({0}, of {1} bytes): makespan {2}, peak {3} bytes\n",
                        made.getInteger("values").value_or(0), made.getInteger("bytes").value_or(0),
                        microseconds(again->result.entry().makespanAfter), again->result.entry().peakAfter);
      result->module = std::move(again->bytes);
      report = std::move(again->report);
    } else {
      cloneRefusal = toString(again.takeError());
      outs() << formatv("with nothing made again: {0}\n", cloneRefusal);
    }
  }
  if (!rewriteRefusal.empty())
    report["not_rewritten_because"] = json::fixUTF8(rewriteRefusal);
  if (!cloneRefusal.empty())
    report["nothing_made_again_because"] = json::fixUTF8(cloneRefusal);
  if (Error error = addLoops(result->module, model, options, report))
    return createFileError(inputPath, std::move(error));
  if (!reportPath.empty()) {
    if (Error error = writeWhole(reportPath, [&](raw_ostream &os) {
          os << formatv("{0:2}\n", json::Value(std::move(report)));
          return Error::success();
        }))
      return error;
  }
  if (outputPath.empty())
    return Error::success();
  return writeWhole(outputPath, [&](raw_ostream &os) {
    os << file->withModule(result->module);
    return Error::success();
  });
}

static int hloMain(int argc, char **argv) {
  ownOptions.offer();
  cl::ParseCommandLineOptions(argc, argv, "CommSched for scheduled modules of XLA\n");
  if (Error error = run()) {
    handleAllErrors(std::move(error), [](const ErrorInfoBase &info) {
      WithColor::error(errs(), "commsched-hlo") << info.message() << "\n";
    });
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

int commschedHloMain(int argc, char **argv) { return runTool(argc, argv, hloMain); }
