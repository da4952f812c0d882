//===- ModuleTransform.cpp - Schedule a module as the callback does ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The settings of the callback, and what it does with a module: other collectives and another order, or another order
// alone, and what pipelined loops would gain. Nothing here knows a plugin.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Pjrt/PjrtTransform.h"
#include "CommSched/Support/Arithmetic.h"
#include "Hlo/Schedule/HloTemporaries.h"
#include "SecondOpinion.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

json::Object commsched::hlo::keptReport(StringRef name, const Twine &reason) {
  return json::Object{
      {"module", json::fixUTF8(name)}, {"changed", false}, {"kept_because", json::fixUTF8(reason.str())}};
}

/// Bytes of the results that are in memory of donated parameters.
static Bytes donatedBytes(const HloModule &module) {
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
    else if (name == "loops" && value.getAsString() == std::optional<StringRef>("keep"))
      options.loops = Loops::Keep;
    else if (name == "loops" && value.getAsString() == std::optional<StringRef>("pipeline"))
      options.loops = Loops::Pipeline;
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
                               "regret or makespan), donation (keep or drop), loops (keep or pipeline), buckets, "
                               "asynchronous, dump, shuffle or measure (times in ns by instruction), got '" +
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

/// Another order alone is not searched for if other collectives come this close to their bound, or if a short search
/// for one is this far behind them, in percent: it would add half of the time that scheduling takes.
static constexpr int64_t kCloseToBoundPercent = 2, kBehindPercent = 1;

static bool isWithin(Ns time, Ns of, int64_t percent) {
  return (static_cast<Wide>(time) - of) * 100 <= static_cast<Wide>(of) * percent;
}

/// Returns true if another order alone might be faster than other collectives.
static bool mayOrderAloneWin(const HloModule &module, const TransformOptions &options,
                             const ComputationResult &rewritten) {
  if (isWithin(rewritten.makespanAfter, rewritten.bound, kCloseToBoundPercent))
    return false;
  HloOptions quick = options.schedule;
  quick.effort = quick.effort < 0 ? kShortEffort : std::min(quick.effort, kShortEffort);
  Expected<HloResult> result = scheduleModule(module, *options.model, quick);
  if (!result) {
    // It was understood once, for other collectives.
    consumeError(result.takeError());
    return false;
  }
  return isWithin(result->entry().makespanAfter, rewritten.makespanAfter, kBehindPercent);
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

static TransformResult takeRewritten(RewrittenModule rewritten) {
  TransformResult result;
  result.module = std::move(rewritten.bytes);
  result.report = std::move(rewritten.report);
  result.report["donations_kept"] = false;
  result.report["kept_because"] = "";
  result.makespan = rewritten.result.entry().makespanAfter;
  return result;
}

/// Returns true if less memory may be asked for than the given order needs.
static bool isLimited(const HloOptions &options) {
  return (options.memory.limit || options.memory.ppm < 0) && !options.shuffle && !options.measureOnly;
}

/// Other collectives and another order, or another order alone, whatever is faster. If no order is within the limit on
/// memory, some values are made again.
static TransformResult scheduleFastest(const HloModule &module, const TransformOptions &options) {
  std::optional<RewrittenModule> rewritten;
  std::string rewriteRefusal;
  bool keepsCollectives = options.schedule.shuffle || options.schedule.measureOnly;
  if ((options.rewrite.buckets || options.rewrite.asynchronous) && !keepsCollectives) {
    Expected<RewrittenModule> answer = tryRewriting(module, options);
    if (!answer)
      rewriteRefusal = toString(answer.takeError());
    else if (!mayOrderAloneWin(module, options, answer->result.entry()))
      return takeRewritten(std::move(*answer));
    else
      rewritten = std::move(*answer);
  }
  Expected<HloResult> result = scheduleModule(module, *options.model, options.schedule);
  if (!result)
    return {"", keptReport(module.name, toString(result.takeError()))};
  const ComputationResult &entry = result->entry();
  if (rewritten && (staysAboveLimit(*result) || rewritten->result.entry().makespanAfter < entry.makespanAfter))
    return takeRewritten(std::move(*rewritten));
  if (rewritten)
    rewriteRefusal = "other collectives are not faster";
  std::string cloneRefusal;
  if (isLimited(options.schedule) && staysAboveLimit(*result)) {
    Expected<RewrittenModule> answer =
        rewriteWithClones(module, *options.model, options.schedule, options.rewrite, *result);
    if (answer)
      return takeRewritten(std::move(*answer));
    cloneRefusal = toString(answer.takeError());
  }
  TransformResult transformed;
  transformed.report = describe(module, *result);
  transformed.makespan = result->entry().makespanAfter;
  transformed.report["donations_kept"] = !result->isChanged;
  transformed.report["kept_because"] = result->isChanged ? "" : json::fixUTF8(result->entry().keepReason);
  if (result->isChanged)
    transformed.module = std::move(result->module);
  if (!rewriteRefusal.empty())
    transformed.report["not_rewritten_because"] = json::fixUTF8(rewriteRefusal);
  if (!cloneRefusal.empty())
    transformed.report["nothing_made_again_because"] = json::fixUTF8(cloneRefusal);
  return transformed;
}

/// An answer that XLA's own costs do not contradict, if they are in the module and the objective asks for one. Where
/// the module may need less memory than XLA's order does, that order is no alternative.
static Expected<TransformResult> heedXla(const HloModule &module, const TransformOptions &options,
                                         TransformResult result) {
  const HloOptions &asked = options.schedule;
  if (asked.objective == Objective::Makespan || asked.shuffle || asked.measureOnly || asked.memory.limit ||
      asked.memory.ppm < 0)
    return std::move(result);
  Expected<XlaEstimates> estimates = XlaEstimates::readFrom(module, *options.model);
  if (!estimates)
    return estimates.takeError();
  if (estimates->empty())
    return std::move(result);
  return replaceIfXlaDisagrees(module, options, *estimates, std::move(result),
                               [&](const TransformOptions &other) { return scheduleFastest(module, other); });
}

/// Adds what pipelined loops would gain.
static Error addLoops(const HloModule &given, const TransformOptions &options, TransformResult &result) {
  std::optional<HloModule> written;
  if (!result.module.empty()) {
    Expected<HloModule> read = readModule(result.module);
    if (!read)
      return read.takeError();
    written = std::move(*read);
  }
  const HloModule &scheduled = written ? *written : given;
  if (std::optional<Bytes> before = temporariesOf(given), after = temporariesOf(scheduled); before && after)
    result.report["estimated_temporaries_bytes"] = json::Object{{"before", *before}, {"after", *after}};
  Expected<LoopForecast> forecast = forecastLoops(scheduled, *options.model, options.schedule);
  if (!forecast)
    return forecast.takeError();
  result.idleInLoops = forecast->idle;
  result.report["idle_in_loops_ns"] = forecast->idle;
  result.report["loops"] = describe(forecast->loops);
  return Error::success();
}

TransformResult commsched::hlo::transformModule(StringRef bytes, const TransformOptions &options) {
  Expected<HloModule> module = readModule(bytes);
  if (!module)
    return {"", keptReport("", toString(module.takeError()))};
  TransformResult result = scheduleFastest(*module, options);
  if (!result.report.get("makespan_ns"))
    return result;
  if (Expected<TransformResult> answer = heedXla(*module, options, std::move(result)))
    result = std::move(*answer);
  else
    return {"", keptReport(module->name, toString(answer.takeError()))};
  result.donated = donatedBytes(*module);
  result.report["donated_bytes"] = result.donated;
  if (!options.schedule.shuffle && !options.schedule.measureOnly)
    if (Error error = addLoops(*module, options, result))
      return {"", keptReport(module->name, toString(std::move(error)))};
  return result;
}
