//===- ReportFlags.cpp - Command-line flags of reports ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See ReportFlags.h.
//
//===------------------------------------------------------------------------------------------===//

#include "ReportFlags.h"
#include "PassArguments.h"
#include "ToolOptions.h"

#include "CommSched/Analysis/Environment.h"
#include "CommSched/Support/NearestName.h"
#include "CommSched/Transforms/Passes.h"
#include "CommSched/Transforms/Scheduling/ReportCollector.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;
using namespace commsched;

// Declared for --help and for the check of unknown flags. Their values are taken from the command line before LLVM
// parses it.
static cl::opt<std::string>
    commMachine("comm-machine", cl::value_desc("profile"), cl::cat(projectOptions()),
                cl::desc("Machine profile for all passes without a machine option: the name of a "
                         "shipped profile (h100-sxm, ...) or a path"));
static cl::opt<std::string> commReportFile("comm-report-file", cl::value_desc("file.json"), cl::cat(projectOptions()),
                                           cl::desc("Write the report of the run as JSON; short form "
                                                    "--comm-report=file.json"));
static cl::opt<std::string>
    commTimeline("comm-timeline", cl::value_desc("file"), cl::cat(projectOptions()),
                 cl::desc("Write the timeline before and after: an HTML page if the name ends in "
                          ".html, a picture for .svg, otherwise a Perfetto trace"));
static cl::opt<std::string>
    commSearchLog("comm-search-log", cl::value_desc("file"), cl::cat(projectOptions()),
                  cl::desc("Write the attempts of comm-schedule's search, their results, and why each was kept or "
                           "dropped: one JSON object per line"));
static cl::opt<std::string> commCertificate(
    "comm-certificate", cl::value_desc("file"), cl::cat(projectOptions()),
    cl::desc("Write what proves the answers of comm-schedule, for commsched-verify: one JSON object per "
             "line"));
static cl::opt<std::string> commParetoFile("comm-pareto-file", cl::value_desc("file.json"), cl::cat(projectOptions()),
                                           cl::desc("Write the input's curve of time against peak memory as JSON, and "
                                                    "as a picture to file.svg; short form --comm-pareto=file.json"));

static cl::opt<std::string> commScenarios("comm-scenarios", cl::value_desc("number"), cl::cat(projectOptions()),
                                          cl::desc("Number of scenarios in which durations vary, for the report"));

static cl::opt<std::string> commExplain(
    "comm-explain", cl::value_desc("name"), cl::cat(projectOptions()),
    cl::desc("Explain the collectives with this name, such as @all_gather_12 or model.py:12: when each runs, "
             "what hides it, and what limits it"));

static cl::opt<std::string> commPrintOverlap(
    "comm-print-overlap", cl::ValueOptional, cl::value_desc("file"), cl::cat(projectOptions()),
    cl::desc("Print what each pass did to each collective, and all operations in their order, with a bar in front of "
             "what runs beside a collective: to standard error, or to a file"));

static constexpr StringRef pipelineName = "reorder-comm-overlap";

/// Returns VALUE if `argument` is "--NAME=VALUE".
static bool matchFlag(StringRef argument, StringRef name, std::string &value) {
  if (!argument.consume_front("-"))
    return false;
  argument.consume_front("-");
  if (!argument.consume_front(name) || !argument.consume_front("="))
    return false;
  value = argument.str();
  return true;
}

/// The same for a flag that is also the name of a pass. A missing value denotes the pass, and one that begins with an
/// option of the pass and '=', or with a misspelt one, its options.
static bool matchShortFlag(StringRef argument, StringRef name, std::string &value) {
  std::string file;
  if (!matchFlag(argument, name, file) || file.empty())
    return false;
  if (StringRef(file).contains('=')) {
    std::vector<std::string> options = optionNamesOf(name);
    if (!nearestName(StringRef(file).split('=').first, std::vector<StringRef>(options.begin(), options.end())).empty())
      return false;
  }
  value = file;
  return true;
}

/// A text as the value of an option of a pass.
static std::string quote(StringRef value) {
  if (value.find_first_of(" {},=()'\"") == StringRef::npos)
    return value.str();
  StringRef mark = value.contains('"') ? "'" : "\"";
  return (mark + value + mark).str();
}

/// Whether a pipeline's name ends where `rest` begins.
static bool isEndOfName(StringRef rest) {
  return rest.empty() || !(isAlnum(rest.front()) || rest.front() == '-' || rest.front() == '_');
}

commsched::ReportFlags::ReportFlags(int argc, char **argv) {
  const std::pair<StringRef, std::string &> flags[] = {
      {"comm-machine", machine},        {"comm-report-file", reportFile},   {"comm-timeline", timelineFile},
      {"comm-pareto-file", paretoFile}, {"comm-search-log", searchLogFile}, {"comm-certificate", certificateFile},
      {"comm-scenarios", scenarios},    {"comm-explain", explained},        {"comm-print-overlap", overlapFile}};
  for (char *argument : make_range(argv, argv + argc)) {
    const auto *flag = find_if(flags, [&](const auto &one) { return matchFlag(argument, one.first, one.second); });
    if (flag != std::end(flags)) {
      if (flag->second.empty())
        withoutValue = flag->first.str();
      continue;
    }
    if (StringRef(argument).ltrim('-') == "comm-print-overlap") {
      overlapFile = "-";
      continue;
    }
    if (!matchShortFlag(argument, "comm-report", reportFile) && !matchShortFlag(argument, "comm-pareto", paretoFile))
      rest.push_back(argument);
  }
  addToPipelines();
  rest.push_back(nullptr);
}

std::string commsched::ReportFlags::asPassOptions() const {
  std::string options;
  for (auto [name, value] : {std::pair<StringRef, const std::string &>("report-file", reportFile),
                             {"timeline-file", timelineFile},
                             {"search-log-file", searchLogFile},
                             {"certificate-file", certificateFile},
                             {"pareto-file", paretoFile},
                             {"explain", explained},
                             {"overlap-file", overlapFile},
                             {"scenarios", scenarios}})
    if (!value.empty())
      options += (options.empty() ? "" : " ") + name.str() + "=" + quote(value);
  return options;
}

/// Adds the flags to reorder-comm-overlap as options, in `--reorder-comm-overlap[=...]` and in `--pass-pipeline=...`.
/// The user's own options come later and have priority.
void commsched::ReportFlags::addToPipelines() {
  std::string options = asPassOptions();
  for (char *&argument : rest) {
    StringRef text(argument);
    bool isPassPipeline = text.ltrim('-').starts_with("pass-pipeline=");
    size_t at = isPassPipeline ? text.find(pipelineName) : text.size() - text.ltrim('-').size();
    if (at == 0 || at == StringRef::npos || !text.substr(at).starts_with(pipelineName) ||
        !isEndOfName(text.substr(at + pipelineName.size())))
      continue;
    passedOn = true;
    std::string added = options;
    if (!text.contains("table=") && (!isPassPipeline || any()))
      added += added.empty() ? "table=true" : " table=true";
    if (added.empty())
      continue;
    size_t end = at + pipelineName.size();
    StringRef before = text.take_front(end), after = text.drop_front(end);
    // The operands of + have no order: what changes `after` comes first.
    bool hasOptions = after.consume_front(isPassPipeline ? "{" : "=");
    std::string changed = isPassPipeline ? (before + "{" + added + (hasOptions ? " " : "}") + after).str()
                                         : (before + "=" + added + (hasOptions ? " " : "") + after).str();
    argument = const_cast<char *>(strings.save(changed).data());
  }
}

namespace {

/// Makes a machine the default of all passes of a context.
class MachineExtension : public mlir::DialectExtension<MachineExtension, comm::CommDialect> {
public:
  explicit MachineExtension(std::string machine) : machine(std::move(machine)) {}
  void apply(mlir::MLIRContext *, comm::CommDialect *dialect) const final {
    dialect->getRegisteredInterface<Environment>()->machine = machine;
  }

private:
  std::string machine;
};

} // namespace

Error commsched::ReportFlags::setMachine(mlir::DialectRegistry &registry) const {
  if (machine.empty())
    return Error::success();
  if (Expected<MachineModel> loaded = MachineModel::load(machine); !loaded)
    return loaded.takeError();
  registry.addExtension(mlir::TypeID::get<MachineExtension>(), std::make_unique<MachineExtension>(machine));
  return Error::success();
}

Error commsched::ReportFlags::readValues() {
  if (!withoutValue.empty())
    return createStringError("--" + withoutValue + ": expected a value behind '='");
  NoiseOptions noise;
  if (!scenarios.empty() && StringRef(scenarios).getAsInteger(10, noise.scenarios))
    return createStringError("--comm-scenarios: expected a number, got '" + scenarios + "'");
  if (std::string wrong = validate(noise); !wrong.empty())
    return createStringError("--comm-scenarios: " + wrong);
  numScenarios = noise.scenarios;
  return Error::success();
}

void commsched::ReportFlags::apply(mlir::MlirOptMainConfig &config) const {
  if (passedOn || !any())
    return;
  ReportOptions options;
  options.reportFile = reportFile;
  options.timelineFile = timelineFile;
  options.searchLogFile = searchLogFile;
  options.certificateFile = certificateFile;
  options.explained = explained;
  options.overlapFile = overlapFile;
  options.noise.scenarios = numScenarios;
  CommParetoOptions pareto;
  pareto.file = paretoFile;
  bool report = !reportFile.empty() || !timelineFile.empty() || !searchLogFile.empty() || !certificateFile.empty() ||
                !explained.empty() || !overlapFile.empty();
  config.setPassPipelineSetupFn([inner = config, options, pareto, report](mlir::PassManager &manager) -> LogicalResult {
    if (failed(inner.setupPassPipeline(manager)))
      return mlir::failure();
    if (std::optional<StringRef> root = manager.getOpName(); root && *root != mlir::ModuleOp::getOperationName())
      return emitError(mlir::UnknownLoc::get(manager.getContext()))
             << "--comm-report, --comm-timeline, --comm-explain, --comm-print-overlap, --comm-search-log and "
                "--comm-pareto measure modules; "
                "expected a "
                "'builtin.module', got a '"
             << *root << "'";
    mlir::OpPassManager body(manager);
    manager.clear();
    if (!pareto.file.empty())
      manager.addPass(createCommPareto(pareto));
    auto collector = report ? std::make_shared<ReportCollector>(options) : nullptr;
    manager.addPass(createReportedPipeline(std::move(collector), std::move(body)));
    return mlir::success();
  });
}
