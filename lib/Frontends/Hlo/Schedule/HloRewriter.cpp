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
#include "Hlo/Write/RewriteCollectives.h"
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
  StringMap<const ComputationResult *> given = byName(module, plain);
  int32_t buckets = 0;
  for (ComputationResult &one : answer->computations) {
    StringRef name = split->computations[one.computation].name;
    const ComputationResult *before = given.lookup(name);
    if (!before || one.peakAfter > before->limit)
      return createStringError("'" + name + "' with other collectives would need more memory than its limit");
    one.makespanBefore = before->makespanBefore;
    one.exposedBefore = before->exposedBefore;
    one.peakBefore = before->peakBefore;
    one.limit = before->limit;
    buckets += one.buckets;
  }
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
