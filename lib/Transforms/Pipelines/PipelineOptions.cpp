//===- PipelineOptions.cpp - Options of reorder-comm-overlap ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Names and values are checked before the options are read (OptionChecks.h). What that cannot know is which options the
// passes of a run read.
//
//===------------------------------------------------------------------------------------------===//

#include "PipelineOptions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace commsched;

namespace {

/// An option that only some passes read.
struct ReadOption {
  /// As users write it, with its value.
  std::string text;
  /// Whether it asks for anything.
  bool isSet;
  /// The passes that read it, separated by spaces.
  StringLiteral readers;
};

std::string withValue(StringRef name, const Twine &value) { return (name + "=" + value).str(); }

/// The options that only some passes read, with what they were set to.
std::vector<ReadOption> readOptionsOf(const OverlapOptions &options) {
  StringRef objective = stringify(options.objective);
  return {
      {"limit=arena", options.limitedMemory == LimitedMemory::Arena, "comm-schedule"},
      {withValue("objective", objective), options.objective != Objective::Robust, "comm-schedule"},
      {withValue("time-budget-ratio", llvm::formatv("{0}", options.timeBudgetRatio.getValue()).str()),
       options.timeBudgetRatio >= 0, "comm-schedule"},
      {withValue("effort", Twine(options.effort.getValue())), options.effort >= 0,
       "comm-schedule comm-split-strands comm-plan-memory comm-pipeline-loops comm-pareto"},
      {withValue("bucket-cap-bytes", Twine(options.bucketCapBytes.value)), options.bucketCapBytes >= 0,
       "comm-schedule comm-split-strands comm-plan-memory comm-pipeline-loops comm-pareto comm-bucket"},
      {"certificate-file (--comm-certificate)", !options.certificateFile.empty(), "comm-schedule"},
      {"search-log-file (--comm-search-log)", !options.searchLogFile.empty(), "comm-schedule"},
      {"allow-reassociation=true", options.allowReassociation, "comm-split-strands"},
      {"profiles", !options.profiles.empty(), "comm-align-costs"},
  };
}

/// Whether an entry of `passes` is a pass, or is a text that contains it.
bool isNamedIn(StringRef pass, StringRef entry) {
  size_t at = entry.find(pass);
  if (at == StringRef::npos)
    return false;
  StringRef rest = entry.drop_front(at + pass.size());
  return rest.empty() || !(llvm::isAlnum(rest.front()) || rest.front() == '-');
}

/// What decides which passes run, as users write it.
std::string deciding(ArrayRef<std::string> passes, StringRef readers) {
  return readers == "comm-split-strands" ? "strands=off" : "passes=" + llvm::join(passes, ",");
}

} // namespace

bool commsched::isNamed(StringRef pass, ArrayRef<std::string> passes) {
  return llvm::any_of(passes, [&](StringRef entry) { return isNamedIn(pass, entry); });
}

std::string commsched::checkReaders(const OverlapOptions &options, ArrayRef<std::string> passes) {
  auto runs = [&](StringRef reader) { return isNamed(reader, passes); };
  for (const ReadOption &option : readOptionsOf(options)) {
    SmallVector<StringRef> readers;
    option.readers.split(readers, ' ');
    if (option.isSet && llvm::none_of(readers, runs))
      return "'" + option.text + "' has no effect with '" + deciding(passes, option.readers) + "': only " +
             llvm::join(readers, ", ") + (readers.size() == 1 ? " reads it" : " read it");
  }
  if (!options.bucketing && options.bucketCapBytes >= 0 && !runs("comm-bucket"))
    return "'" + withValue("bucket-cap-bytes", Twine(options.bucketCapBytes.value)) +
           "' has no effect with 'bucketing=false'";
  if (options.scenarios > 0)
    return "";
  const NoiseOptions usual;
  for (auto [name, value, otherwise] :
       {std::tuple<StringRef, int32_t, int32_t>{"collective-spread-permille", options.collectiveSpreadPermille,
                                                usual.collectiveSpreadPermille},
        {"compute-spread-permille", options.computeSpreadPermille, usual.computeSpreadPermille}})
    if (value != otherwise)
      return "'" + withValue(name, Twine(value)) + "' has no effect with 'scenarios=0'";
  return "";
}
