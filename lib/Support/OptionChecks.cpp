//===- OptionChecks.cpp - Checks of written options -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See OptionChecks.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Support/OptionChecks.h"
#include "CommSched/Support/NearestName.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace commsched;

namespace {

/// One option as it is written.
struct WrittenOption {
  StringRef name, value;
  bool hasValue;
};

/// Removes the quotes, or one pair of braces, around a value, as MLIR does.
StringRef unwrap(StringRef value) {
  value = value.trim();
  for (auto [open, close] : {std::pair{'\'', '\''}, {'"', '"'}, {'{', '}'}})
    if (value.size() > 2 && value.front() == open && value.back() == close)
      return value.drop_front().drop_back().trim();
  return value;
}

/// Splits at the spaces that are in no quotes and braces, as MLIR does.
std::vector<WrittenOption> splitOptions(StringRef text) {
  std::vector<WrittenOption> result;
  while (!(text = text.ltrim()).empty()) {
    size_t end = 0;
    int32_t depth = 0;
    for (; end < text.size() && (depth > 0 || text[end] != ' '); ++end) {
      char c = text[end];
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (c == '"' || c == '\'')
        end = std::min(text.find(c, end + 1), text.size() - 1);
    }
    StringRef option = text.take_front(end);
    auto [name, value] = option.split('=');
    result.push_back({name.trim(), unwrap(value), option.contains('=')});
    text = text.drop_front(end);
  }
  return result;
}

} // namespace

std::vector<StringRef> OptionChecks::names() const {
  std::vector<StringRef> result;
  for (const Entry &entry : entries)
    result.push_back(entry.name);
  llvm::sort(result);
  return result;
}

std::string OptionChecks::check(StringRef text) const {
  for (const WrittenOption &written : splitOptions(text)) {
    auto entry = find_if(entries, [&](const Entry &known) { return known.name == written.name; });
    if (entry == entries.end())
      return ("unknown option '" + written.name + "'" +
              (entries.empty() ? "; there are none" : suggestName(written.name, names())))
          .str();
    if (!written.hasValue && entry->needsValue)
      return ("expected a value behind '" + written.name + "', as in '" + written.name + "=...'").str();
    if (!written.hasValue || !entry->check)
      continue;
    if (std::string expected = entry->check(written.value); !expected.empty())
      return (written.name + "=" + written.value + ": expected " + expected).str();
  }
  return "";
}

std::string OptionChecks::checkChoice(StringRef value, ArrayRef<StringRef> choices) {
  if (is_contained(choices, value))
    return "";
  StringRef nearest = nearestName(value, choices);
  return listChoices(choices) + (nearest.empty() ? "" : suggestName(value, choices));
}

std::string OptionChecks::checkBytes(StringRef value) {
  Expected<ByteCount> count = ByteCount::parse(value);
  if (count)
    return "";
  consumeError(count.takeError());
  return ByteCount::kExpected.str();
}

std::string OptionChecks::checkFlag(StringRef value) {
  // What LLVM's parser takes. It takes an empty text for 'true'.
  static constexpr StringLiteral flags[] = {"", "true", "TRUE", "True", "1", "false", "FALSE", "False", "0"};
  return is_contained(flags, value) ? "" : "true or false";
}

std::string OptionChecks::checkNumber(StringRef value) {
  double number = 0;
  return to_float(value, number) ? "" : "a number";
}

std::string OptionChecks::expectInteger(StringRef value, int64_t least, int64_t most) {
  value.consume_front("-");
  if (value.empty() || !all_of(value, isDigit))
    return "an integer";
  return "an integer from " + itostr(least) + " to " + itostr(most);
}

OptionChecks::Check OptionChecks::checkEach(Check check) {
  if (!check)
    return nullptr;
  return [check = std::move(check)](StringRef values) {
    SmallVector<StringRef> entries;
    values.split(entries, ',');
    for (StringRef value : entries)
      if (std::string expected = check(unwrap(value)); !expected.empty())
        return expected;
    return std::string();
  };
}
