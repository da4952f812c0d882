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
// compilation instead, and the wrapper around it compiles the module anew (PjrtCompile.cpp).
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

json::Object kept(StringRef name, const Twine &reason) {
  return json::Object{
      {"module", json::fixUTF8(name)}, {"changed", false}, {"kept_because", json::fixUTF8(reason.str())}};
}

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
  if (!compilation.keepReason.empty())
    report = kept(report.getString("module").value_or(""), compilation.keepReason);
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

/// Hands the result of the callback to XLA, and the report to the compilation that XLA is in, which may end otherwise.
void hand(TransformResult result, bool keepsDonations, std::optional<Bytes> limit, PjrtCompilation &compilation,
          TransformArguments &arguments) {
  // XLA has called back before in this compilation: that report is final.
  if (!compilation.report.empty())
    addReport(std::move(compilation.report));
  compilation.report = std::move(result.report);
  if (result.module.empty())
    return;
  compilation.limit = limit;
  if (!keepsDonations)
    return returnModule(arguments, std::move(result.module));
  compilation.module = std::move(result.module);
  arguments.header.hasError = true;
  arguments.header.code = kCancelled;
  arguments.header.message = {kAnew.data(), kAnew.size()};
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
  if (compilation)
    options->schedule.squeezePpm = compilation->squeezePpm;
  auto begin = std::chrono::steady_clock::now();
  StringRef module(arguments->module.data, arguments->module.size);
  TransformResult result = transformModule(module, *options);
  bool keepsDonations = !result.module.empty() && result.donated > 0 && options->donation == Donation::Keep;
  if (keepsDonations && !compilation)
    result = {"", kept(result.report.getString("module").value_or(""),
                       "XLA would forget that parameters are donated, and need " + Twine(result.donated) +
                           " bytes more for results; donation=\"drop\" accepts that")};
  if (!options->dump.empty())
    if (std::string why = dump(options->dump, module, number); !why.empty())
      result.report["dump_failed"] = json::fixUTF8(why);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  result.report["seconds"] = seconds.count();
  if (compilation)
    return hand(std::move(result), keepsDonations, options->schedule.memory.limit, *compilation, *arguments);
  if (!result.module.empty())
    returnModule(*arguments, std::move(result.module));
  addReport(std::move(result.report));
}

TransformCallbacks callbacks = {kTransformVersion, nullptr, transform};

/// Bytes of the results that are in memory of donated parameters.
Bytes donatedBytes(const HloModule &module) {
  const HloComputation &entry = module.entryComputation();
  SmallVector<const HloShape *, 8> leaves;
  entry.instructions[entry.root].shape.appendLeaves(leaves);
  Bytes sum = 0;
  for (const ParameterAlias &alias : module.aliases) {
    int64_t leaf = entry.instructions[entry.root].shape.leafAt(alias.output);
    if (leaf >= 0 && leaf < static_cast<int64_t>(leaves.size()))
      sum += leaves[leaf]->bytes();
  }
  return sum;
}

} // namespace

/// The objective of that name; none for another text.
static std::optional<Objective> parseObjective(std::optional<StringRef> text) {
  for (Objective objective : {Objective::Robust, Objective::Regret, Objective::Makespan})
    if (text && *text == stringify(objective))
      return objective;
  return std::nullopt;
}

/// Reads times of instructions by name into `times`. Returns false if one is not a time.
static bool readTimes(const json::Object &object, StringMap<Ns> &times) {
  return all_of(object, [&](const auto &entry) {
    std::optional<int64_t> time = entry.second.getAsInteger();
    times[entry.first] = time.value_or(0);
    return time && *time >= 0 && *time <= kMaxNs;
  });
}

Expected<TransformOptions> commsched::hlo::parseTransformOptions(StringRef text) {
  Expected<json::Value> parsed = json::parse(text);
  if (!parsed)
    return parsed.takeError();
  const json::Object *object = parsed->getAsObject();
  if (!object)
    return createStringError("expected an object of options, got '" + text + "'");
  TransformOptions options;
  std::string machine = kDefaultMachine.str();
  double ratio = 0;
  int64_t limit = -1;
  for (const auto &[key, value] : *object) {
    StringRef name = key;
    if (name == "machine" && value.getAsString())
      machine = value.getAsString()->str();
    else if (name == "effort" && value.getAsInteger())
      options.schedule.effort = *value.getAsInteger();
    else if (name == "objective" && parseObjective(value.getAsString()))
      options.schedule.objective = *parseObjective(value.getAsString());
    else if (name == "donation" && value.getAsString() == std::optional<StringRef>("keep"))
      options.donation = Donation::Keep;
    else if (name == "donation" && value.getAsString() == std::optional<StringRef>("drop"))
      options.donation = Donation::Drop;
    else if (name == "shuffle" && value.getAsInteger())
      options.schedule.shuffle = *value.getAsInteger();
    else if (name == "measure" && value.getAsObject() && readTimes(*value.getAsObject(), options.schedule.times))
      options.schedule.measureOnly = true;
    else if (name == "dump" && value.getAsString())
      options.dump = value.getAsString()->str();
    else if (name == "buckets" && value.getAsBoolean())
      options.rewrite.buckets = *value.getAsBoolean();
    else if (name == "asynchronous" && value.getAsBoolean())
      options.rewrite.asynchronous = *value.getAsBoolean();
    else if (name == "memory_budget_ratio" && value.getAsNumber())
      ratio = *value.getAsNumber();
    else if (name == "memory_limit_bytes" && value.getAsInteger())
      limit = *value.getAsInteger();
    else
      return createStringError("expected machine, memory_budget_ratio, memory_limit_bytes, effort, objective (robust, "
                               "regret or makespan), donation (keep or drop), buckets, asynchronous, dump, shuffle or "
                               "measure (times in ns by instruction), got '" +
                               name + "'");
  }
  Expected<MemoryBudget> budget = MemoryBudget::parse(ratio, limit);
  if (!budget)
    return budget.takeError();
  options.schedule.memory = *budget;
  Expected<MachineModel> model = MachineModel::load(machine);
  if (!model)
    return model.takeError();
  options.model = std::make_shared<CostModel>(std::move(*model));
  return std::move(options);
}

/// Another order alone is not tried if other collectives make the module this much faster, or come this close to their
/// bound, in percent: it would add half of the time that scheduling takes.
static constexpr int64_t kClearGainPercent = 5, kCloseToBoundPercent = 2;

static bool isClear(const ComputationResult &entry) {
  Wide gain = static_cast<Wide>(entry.makespanBefore) - entry.makespanAfter;
  Wide above = static_cast<Wide>(entry.makespanAfter) - entry.bound;
  return gain * 100 >= static_cast<Wide>(entry.makespanBefore) * kClearGainPercent ||
         above * 100 <= static_cast<Wide>(entry.bound) * kCloseToBoundPercent;
}

/// Other collectives, if they are faster than those given in their given order.
static Expected<RewrittenModule> tryRewriting(const HloModule &module, const TransformOptions &options) {
  HloOptions measure = options.schedule;
  measure.measureOnly = true;
  Expected<HloResult> given = scheduleModule(module, *options.model, measure);
  if (!given)
    return given.takeError();
  return rewriteModule(module, *options.model, options.schedule, options.rewrite, *given);
}

static TransformResult takeRewritten(RewrittenModule rewritten, Bytes donated) {
  rewritten.report["donated_bytes"] = donated;
  rewritten.report["donations_kept"] = false;
  rewritten.report["kept_because"] = "";
  return {std::move(rewritten.bytes), std::move(rewritten.report), donated};
}

TransformResult commsched::hlo::transformModule(StringRef bytes, const TransformOptions &options) {
  Expected<HloModule> module = readModule(bytes);
  if (!module)
    return {"", kept("", toString(module.takeError()))};
  Bytes donated = donatedBytes(*module);
  std::optional<RewrittenModule> rewritten;
  std::string rewriteRefusal;
  bool keepsCollectives = options.schedule.shuffle || options.schedule.measureOnly;
  if ((options.rewrite.buckets || options.rewrite.asynchronous) && !keepsCollectives) {
    Expected<RewrittenModule> answer = tryRewriting(*module, options);
    if (!answer)
      rewriteRefusal = toString(answer.takeError());
    else if (isClear(answer->result.entry()))
      return takeRewritten(std::move(*answer), donated);
    else
      rewritten = std::move(*answer);
  }
  Expected<HloResult> result = scheduleModule(*module, *options.model, options.schedule);
  if (!result)
    return {"", kept(module->name, toString(result.takeError()))};
  if (rewritten && rewritten->result.entry().makespanAfter < result->entry().makespanAfter)
    return takeRewritten(std::move(*rewritten), donated);
  if (rewritten)
    rewriteRefusal = "other collectives are not faster";
  TransformResult transformed;
  transformed.report = describe(*module, *result);
  transformed.donated = donated;
  transformed.report["donated_bytes"] = donated;
  transformed.report["donations_kept"] = !result->isChanged;
  transformed.report["kept_because"] = result->isChanged ? "" : json::fixUTF8(result->entry().keepReason);
  if (result->isChanged)
    transformed.module = std::move(result->module);
  if (!rewriteRefusal.empty())
    transformed.report["not_rewritten_because"] = json::fixUTF8(rewriteRefusal);
  return transformed;
}

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
