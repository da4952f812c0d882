//===- PjrtTransform.cpp - A transformation inside a plugin of PJRT ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA calls the callback once per compilation, after it has scheduled the module, on the thread that compiles. A module
// with another order goes back to XLA; if it has donated parameters, which XLA would forget, the callback ends the
// compilation instead, and the wrapper around it compiles the module anew (PjrtCompile.cpp). So it does with a module
// whose loops may become faster if XLA pipelines them.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Support/OutputFile.h"
#include "PjrtApi.h"
#include "PjrtCompile.h"
#include "llvm/ADT/StringExtras.h"
#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

/// PJRT_Extension_Type_XlaTransform, and the version and the stage after scheduling.
constexpr int kTransformExtension = 24;
constexpr int64_t kTransformVersion = 1;
constexpr int kPostScheduler = 1;
/// absl::StatusCode::kCancelled: how the callback ends a compilation, with a message that only XLA's log shows.
constexpr int kCancelled = 1;
constexpr StringLiteral kAnew = "CommSched lets XLA's backend compile the scheduled module anew";
/// Loops are compiled in other ways if they wait and copy for more than this share of the program's time: XLA's passes
/// run again for each way.
constexpr int64_t kIdlePercent = 1;
constexpr StringLiteral kName = "commsched";
/// The least size of the arguments: up to the end of the last member, without padding.
constexpr size_t kArgumentsSize = offsetof(TransformArguments, isChanged) + sizeof(bool);

//===- The state of the process ---------------------------------------------------------------===//

struct State {
  std::mutex mutex;
  std::optional<TransformOptions> options;
  std::vector<json::Object> reports;
  /// Number of modules that were handed over.
  int64_t modules = 0;
  std::set<const void *> plugins;
};

/// Never destroyed: a plugin may call until the process ends.
State &state() {
  static State *state = new State;
  return *state;
}

/// Writes a module into the folder of the options. Returns why it could not, or nothing.
std::string dump(StringRef folder, StringRef module, int64_t number) {
  Expected<HloModule> read = readModule(module);
  std::string name = read ? read->name.str() : "module";
  if (!read)
    consumeError(read.takeError());
  for (char &c : name)
    c = isAlnum(c) || c == '_' || c == '-' ? c : '_';
  Error error = writeWhole((folder + "/" + name + "." + Twine(number) + ".pb").str(), [&](raw_ostream &os) {
    os << module;
    return Error::success();
  });
  return error ? toString(std::move(error)) : "";
}

void destroyString(void *data) { delete static_cast<std::string *>(data); }

void addReport(json::Object report) {
  std::lock_guard<std::mutex> lock(state().mutex);
  std::vector<json::Object> &reports = state().reports;
  if (reports.size() == kMaxReports)
    reports.erase(reports.begin());
  reports.push_back(std::move(report));
}

/// The end of a compilation that the callback has left its report to.
void finishCompilation(PjrtCompilation compilation) {
  json::Object report = std::move(compilation.report);
  if (!compilation.keepReason.empty() && compilation.isOwnOrder)
    report["kept_because"] = compilation.keepReason;
  else if (!compilation.keepReason.empty())
    report = keptReport(report.getString("module").value_or(""), compilation.keepReason);
  else if (!compilation.module.empty())
    report["donations_kept"] = true;
  if (!compilation.temporaries.empty())
    report["temporaries_bytes"] = json::Array(compilation.temporaries);
  addReport(std::move(report));
}

void returnModule(TransformArguments &arguments, std::string module) {
  auto *changed = new std::string(std::move(module));
  arguments.transformed = {changed->data(), changed->size()};
  arguments.isChanged = true;
  arguments.header.data = changed;
  arguments.header.cleanUp = destroyString;
}

/// Returns true if the result has donated parameters that the backend has to keep.
bool keepsDonations(const TransformResult &result, const TransformOptions &options) {
  return !result.module.empty() && result.donated > 0 && options.donation == Donation::Keep;
}

void endCompilation(TransformArguments &arguments) {
  arguments.header.hasError = true;
  arguments.header.code = kCancelled;
  arguments.header.message = {kAnew.data(), kAnew.size()};
}

/// Returns true if XLA's loops are compiled in several ways, of which this result is one.
bool isOneOfSeveral(const TransformResult &result, const TransformOptions &options,
                    const PjrtCompilation &compilation) {
  if (compilation.way >= 0)
    return true;
  return options.loops == Loops::Pipeline && compilation.mayPipeline &&
         static_cast<Wide>(result.idleInLoops) * 100 > static_cast<Wide>(result.makespan) * kIdlePercent;
}

/// Leaves an answer to the wrapper, which chooses among those of all ways to compile the loops.
void addAnswer(TransformResult result, StringRef given, PjrtCompilation &compilation) {
  LoopAnswer answer;
  answer.way = compilation.way;
  answer.makespan = result.makespan;
  answer.module = result.module.empty() ? given.str() : std::move(result.module);
  answer.report = std::move(result.report);
  if (answer.way >= 0) {
    json::Array flags;
    for (StringRef flag : loopFlags()[answer.way])
      flags.push_back(flag);
    answer.report["changed"] = true;
    answer.report["kept_because"] = "";
    answer.report["xla_flags"] = std::move(flags);
    answer.report["makespan_without_flags_ns"] = compilation.answers.front().makespan;
  }
  compilation.answers.push_back(std::move(answer));
}

/// Hands the result of the callback to XLA, and the report to the compilation that XLA is in, which may end otherwise.
void hand(TransformResult result, const TransformOptions &options, PjrtCompilation &compilation,
          TransformArguments &arguments) {
  const bool isChanged = !result.module.empty();
  if (isOneOfSeveral(result, options, compilation)) {
    addAnswer(std::move(result), StringRef(arguments.module.data, arguments.module.size), compilation);
    return endCompilation(arguments);
  }
  // XLA has called back before in this compilation: that report is final.
  if (!compilation.report.empty())
    addReport(std::move(compilation.report));
  compilation.report = std::move(result.report);
  compilation.isOwnOrder = !isChanged;
  if (!isChanged)
    return;
  if (!keepsDonations(result, options))
    return returnModule(arguments, std::move(result.module));
  compilation.module = std::move(result.module);
  endCompilation(arguments);
}

void transform(void *, void *opaque) {
  auto *arguments = static_cast<TransformArguments *>(opaque);
  if (arguments->structSize < kArgumentsSize || arguments->header.apiVersion != kTransformVersion)
    return;
  arguments->isChanged = false;
  PjrtCompilation *compilation = currentCompilation();
  if (compilation && compilation->isDecided)
    return;
  std::optional<TransformOptions> options;
  int64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    options = state().options;
    number = state().modules++;
  }
  if (!options)
    return;
  if (std::optional<Bytes> &limit = options->schedule.memory.limit; limit && compilation) {
    compilation->limit = limit;
    limit = *limit - mulDiv(*limit, compilation->squeezePpm, kMillion);
  }
  auto begin = std::chrono::steady_clock::now();
  StringRef module(arguments->module.data, arguments->module.size);
  TransformResult result = transformModule(module, *options);
  if (keepsDonations(result, *options) && !compilation)
    result = {"", keptReport(result.report.getString("module").value_or(""),
                             "XLA would forget that parameters are donated, and need " + Twine(result.donated) +
                                 " bytes more for results; donation=\"drop\" accepts that")};
  if (!options->dump.empty())
    if (std::string why = dump(options->dump, module, number); !why.empty())
      result.report["dump_failed"] = json::fixUTF8(why);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  result.report["seconds"] = seconds.count();
  if (compilation)
    return hand(std::move(result), *options, *compilation, *arguments);
  if (!result.module.empty())
    returnModule(*arguments, std::move(result.module));
  addReport(std::move(result.report));
}

TransformCallbacks callbacks = {kTransformVersion, nullptr, transform};

} // namespace

Error commsched::hlo::installTransform(const void *api) {
  PjrtExtension *extension = static_cast<const PjrtApi *>(api)->firstExtension;
  while (extension && extension->type != kTransformExtension)
    extension = extension->next;
  if (!extension || extension->structSize < sizeof(TransformExtension))
    return createStringError("the plugin has no extension for transformations of modules");
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().plugins.insert(api).second)
    return Error::success();
  RegisterArguments arguments = {sizeof(RegisterArguments), kName.data(), kName.size(), kPostScheduler, &callbacks};
  // An error of PJRT stays where it is: it can happen once per process.
  if (reinterpret_cast<TransformExtension *>(extension)->registerTransform(&arguments)) {
    state().plugins.erase(api);
    return createStringError("the plugin refused to register a transformation");
  }
  wrapCompilations(const_cast<PjrtApi *>(static_cast<const PjrtApi *>(api)), finishCompilation);
  return Error::success();
}

void commsched::hlo::setTransformOptions(std::optional<TransformOptions> options) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().options = std::move(options);
}

std::vector<json::Object> commsched::hlo::takeTransformReports() {
  std::lock_guard<std::mutex> lock(state().mutex);
  return std::exchange(state().reports, {});
}
