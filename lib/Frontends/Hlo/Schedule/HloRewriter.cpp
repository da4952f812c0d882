//===- HloRewriter.cpp - Other collectives for a module of XLA --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Split, order and merge, read the result again, and compare it with what was promised.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Schedule/HloRewriter.h"
#include "CommSched/Support/Arithmetic.h"
#include "Hlo/Write/CloneInstructions.h"
#include "Hlo/Write/RewriteCollectives.h"
#include "HloMemoryPlan.h"
#include "HloTemporaries.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// By name: the results of the computations.
static StringMap<const ComputationResult *> byName(const HloModule &module, const HloResult &result) {
  StringMap<const ComputationResult *> map;
  for (const ComputationResult &one : result.computations)
    map[module.computations[one.computation].name] = &one;
  return map;
}

/// A hash of the orders and of what each instruction takes: which collectives are merged, too.
static std::string signatureOfAll(const HloModule &module, const HloResult &result) {
  std::string text;
  for (const ComputationResult &one : result.computations) {
    const HloComputation &computation = module.computations[one.computation];
    text += (computation.name + "\n").str();
    for (int32_t at : computation.sequence) {
      text += computation.instructions[at].name;
      for (int32_t operand : computation.instructions[at].operands)
        text += (" " + computation.instructions[operand].name).str();
      text += "\n";
    }
  }
  return utohexstr(xxh3_64bits(text), /*LowerCase=*/true);
}

/// Compares the times and peaks of what was written with those of the answer. Returns its signature.
static Expected<std::string> checkAgain(const HloModule &module, const CostModel &model, const HloResult &answer,
                                        const HloModule &written) {
  HloOptions measure;
  measure.measureOnly = true;
  Expected<HloResult> measured = scheduleModule(written, model, measure);
  if (!measured)
    return measured.takeError();
  StringMap<const ComputationResult *> found = byName(written, *measured);
  for (const ComputationResult &one : answer.computations) {
    StringRef name = module.computations[one.computation].name;
    const ComputationResult *again = found.lookup(name);
    if (!again || again->makespanAfter != one.makespanAfter || again->peakAfter != one.peakAfter)
      return createStringError("the rewritten computation '" + name + "' takes " +
                               Twine(again ? again->makespanAfter : 0) + " ns and " +
                               Twine(again ? again->peakAfter : 0) + " bytes, not " + Twine(one.makespanAfter) +
                               " ns and " + Twine(one.peakAfter) + " bytes");
  }
  return signatureOfAll(written, *measured);
}

/// Searches `split`, which was made of `module`, for an answer for whose temporaries XLA has room. Fails if there is
/// none that is faster than `plain`, or, if the peak of that is above its limit, none within the limit. Sets `written`
/// to the answer's module as it is read again.
static Expected<HloResult> searchSplit(const HloModule &module, const HloModule &split, const CostModel &model,
                                       const HloOptions &options, const HloResult &plain, HloModule &written) {
  const TemporariesLimit temporaries(module, options);
  HloResult result;
  const ComputationResult &given = plain.entry();
  const bool isAbove = given.peakBefore > given.limit;
  bool wasFaster = false;
  Expected<bool> fits = searchWithinTemporaries(options, [&](const HloOptions &own) -> Expected<TemporariesOutcome> {
    Expected<HloResult> answer = scheduleModule(split, model, own);
    if (!answer)
      return answer.takeError();
    result = std::move(*answer);
    const ComputationResult &entry = result.entry();
    if (isAbove ? entry.peakAfter > given.limit : entry.makespanAfter >= given.makespanAfter)
      return TemporariesOutcome();
    wasFaster = true;
    Expected<HloModule> read = readModule(result.module);
    if (!read)
      return read.takeError();
    written = std::move(*read);
    return TemporariesOutcome{true, temporaries.excessPpm(written)};
  });
  if (!fits)
    return fits.takeError();
  if (*fits)
    return std::move(result);
  if (wasFaster)
    return createStringError("XLA would need more memory for temporaries with other collectives");
  return createStringError(isAbove ? result.entry().keepReason : "other collectives are not faster");
}

/// Takes what a computation had before, and its limit, from what was done with the given module. Fails if an answer is
/// above that limit.
static Error takeBefore(const HloModule &module, const HloResult &plain, const HloModule &changed, HloResult &answer) {
  StringMap<const ComputationResult *> given = byName(module, plain);
  for (ComputationResult &one : answer.computations) {
    StringRef name = changed.computations[one.computation].name;
    const ComputationResult *before = given.lookup(name);
    if (!before || one.peakAfter > before->limit)
      return createStringError("'" + name + "' with other collectives would need more memory than its limit");
    one.makespanBefore = before->makespanBefore;
    one.exposedBefore = before->exposedBefore;
    one.peakBefore = before->peakBefore;
    one.limit = before->limit;
  }
  return Error::success();
}

Expected<RewrittenModule> commsched::hlo::rewriteModule(const HloModule &module, const CostModel &model,
                                                        const HloOptions &options, const RewriteOptions &rewrite,
                                                        const HloResult &plain) {
  int32_t count = 0;
  std::string bytes = splitCollectives(module, rewrite.buckets, rewrite.asynchronous, count);
  Expected<HloModule> split = readModule(bytes);
  if (!split)
    return split.takeError();
  HloOptions search = options;
  search.buckets = rewrite.buckets;
  HloModule written;
  Expected<HloResult> answer = searchSplit(module, *split, model, search, plain, written);
  if (!answer)
    return answer.takeError();
  if (Error error = takeBefore(module, plain, *split, *answer))
    return std::move(error);
  int32_t buckets = 0;
  for (const ComputationResult &one : answer->computations)
    buckets += one.buckets;
  Expected<std::string> signature = checkAgain(*split, model, *answer, written);
  if (!signature)
    return signature.takeError();
  RewrittenModule result;
  result.report = describe(*split, *answer);
  result.report["changed"] = true;
  result.report["signature"] = *signature;
  result.report["taken_apart"] = count;
  result.report["buckets"] = buckets;
  result.bytes = answer->module;
  result.result = std::move(*answer);
  return std::move(result);
}

//===-----------------------------------------------------------------------------------------===//
// What is made again
//===-----------------------------------------------------------------------------------------===//

/// Plans with lower limits that are tried if XLA would have no room for the temporaries of an answer.
static constexpr int32_t kPlansTried = 3;

bool commsched::hlo::staysAboveLimit(const HloResult &plain) {
  return !plain.isChanged && plain.entry().peakBefore > plain.entry().limit;
}

/// The best answer for a module that is within its limit as it is: other collectives, another order, or none of both.
static Expected<RewrittenModule> rewritePlanned(const HloModule &module, const CostModel &model,
                                                const HloOptions &options, const RewriteOptions &rewrite) {
  HloOptions measure = options;
  measure.measureOnly = true;
  Expected<HloResult> given = scheduleModule(module, model, measure);
  if (!given)
    return given.takeError();
  if (rewrite.buckets || rewrite.asynchronous) {
    Expected<RewrittenModule> answer = rewriteModule(module, model, options, rewrite, *given);
    if (answer)
      return answer;
    consumeError(answer.takeError()); // The order alone is left.
  }
  Expected<HloResult> ordered = scheduleModule(module, model, options);
  if (!ordered)
    return ordered.takeError();
  RewrittenModule result;
  result.bytes = ordered->module;
  result.result = std::move(*ordered);
  return std::move(result);
}

Expected<RewrittenModule> commsched::hlo::rewriteWithClones(const HloModule &module, const CostModel &model,
                                                            const HloOptions &options, const RewriteOptions &rewrite,
                                                            const HloResult &plain) {
  if (!options.keepReason.empty())
    return createStringError(options.keepReason);
  for (const HloInstruction &instruction : module.entryComputation().instructions)
    if (instruction.isAnnotated)
      return createStringError("'" + instruction.name + "' is in a scheduling group of the user");
  int32_t count = 0;
  std::string apartBytes = splitCollectives(module, rewrite.buckets, rewrite.asynchronous, count);
  Expected<HloModule> apart = readModule(apartBytes);
  if (!apart)
    return apart.takeError();
  std::string splitBytes = withoutBarriers(*apart, apart->entry);
  Expected<HloModule> split = readModule(splitBytes);
  if (!split)
    return split.takeError();
  const TemporariesLimit temporaries(module, options);
  HloOptions own = options;
  own.memory.limit = plain.entry().limit;
  int64_t squeezePpm = 0;
  for (int32_t tried = 0; tried < kPlansTried; ++tried) {
    const Bytes limit = *own.memory.limit - mulDiv(*own.memory.limit, squeezePpm, kMillion);
    Expected<std::optional<PlannedModule>> planned = planEntry(*split, model, limit);
    if (!planned)
      return planned.takeError();
    if (!*planned)
      return createStringError("making values again does not bring the program within the limit on memory either");
    Expected<HloModule> withClones = readModule((*planned)->bytes);
    if (!withClones)
      return withClones.takeError();
    Expected<RewrittenModule> answer = rewritePlanned(*withClones, model, own, rewrite);
    if (!answer)
      return answer;
    Expected<HloModule> written = readModule(answer->bytes);
    if (!written)
      return written.takeError();
    const int64_t excess = temporaries.excessPpm(*written);
    if (excess > 0 || answer->result.entry().peakAfter > *own.memory.limit) {
      squeezePpm = std::min<int64_t>(squeezePpm + excess + kSqueezeStepPpm, kMillion);
      continue;
    }
    Expected<std::string> signature = checkAgain(*withClones, model, answer->result, *written);
    if (!signature)
      return signature.takeError();
    if (Error error = takeBefore(module, plain, *withClones, answer->result))
      return std::move(error);
    answer->result.isChanged = true;
    json::Object report = describe(*withClones, answer->result);
    report["signature"] = *signature;
    for (StringRef key : {"taken_apart", "buckets"})
      if (const json::Value *value = answer->report.get(key))
        report[key] = *value;
    report["made_again"] = json::Object{
        {"values", (*planned)->again}, {"gathers", (*planned)->gathers}, {"bytes", (*planned)->againBytes}};
    answer->report = std::move(report);
    return answer;
  }
  return createStringError("XLA would need more memory for the temporaries of a program that makes values again");
}
