//===- OptionChecks.h - Checks of written options ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// LLVM's option parsers print an error to standard error and return a flag, so what calls them has no message. These
// checks look at the options of a pass or a pipeline before they are parsed, and say what to write instead.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_SUPPORT_OPTIONCHECKS_H
#define COMMSCHED_SUPPORT_OPTIONCHECKS_H

#include "CommSched/Support/ByteCount.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

namespace commsched {

/// The options of one pass or pipeline, and which values they take. It points to the options and must not outlive them.
class OptionChecks {
public:
  template <typename Data, bool external, typename Parser> void add(llvm::cl::opt<Data, external, Parser> &option) {
    entries.push_back({option.ArgStr, !std::is_same_v<Data, bool>, makeCheck<Data>(option.getParser())});
  }
  template <typename Data, typename Storage, typename Parser> void add(llvm::cl::list<Data, Storage, Parser> &option) {
    entries.push_back({option.ArgStr, true, checkEach(makeCheck<Data>(option.getParser()))});
  }

  /// Checks the names and the values in a text like "effort=3 limit=arena". Returns what is wrong, with the nearest
  /// name, the choices or the range; empty if nothing is.
  std::string check(llvm::StringRef text) const;

  /// The names of all options, sorted.
  std::vector<llvm::StringRef> names() const;

private:
  /// Returns what a value that an option cannot have should have been; empty if it can have it.
  using Check = std::function<std::string(llvm::StringRef value)>;

  struct Entry {
    llvm::StringRef name;
    /// Whether the name alone does not do.
    bool needsValue;
    /// Null if every text is a value.
    Check check;
  };

  /// The check of an option's values, by their type.
  template <typename Data, typename Parser> static Check makeCheck(Parser &parser) {
    if constexpr (std::is_base_of_v<llvm::cl::generic_parser_base, Parser>) {
      return [&parser](llvm::StringRef value) {
        std::vector<llvm::StringRef> choices;
        for (unsigned index = 0; index < parser.getNumOptions(); ++index)
          choices.push_back(parser.getOption(index));
        return checkChoice(value, choices);
      };
    } else if constexpr (std::is_same_v<Data, ByteCount>) {
      return checkBytes;
    } else if constexpr (std::is_same_v<Data, bool>) {
      return checkFlag;
    } else if constexpr (std::is_integral_v<Data>) {
      return [](llvm::StringRef value) {
        Data number;
        return value.getAsInteger(0, number)
                   ? expectInteger(value, std::numeric_limits<Data>::min(), std::numeric_limits<Data>::max())
                   : std::string();
      };
    } else if constexpr (std::is_floating_point_v<Data>) {
      return checkNumber;
    } else {
      static_assert(std::is_same_v<Data, std::string>, "expected a check for every type of an option");
      return nullptr;
    }
  }

  static std::string checkChoice(llvm::StringRef value, llvm::ArrayRef<llvm::StringRef> choices);
  static std::string checkBytes(llvm::StringRef value);
  static std::string checkFlag(llvm::StringRef value);
  static std::string checkNumber(llvm::StringRef value);
  /// What is expected instead of `value`: an integer, with the range if `value` is one.
  static std::string expectInteger(llvm::StringRef value, int64_t least, int64_t most);
  /// The same check for every entry of a list with commas.
  static Check checkEach(Check check);

  /// In the order of their declarations.
  std::vector<Entry> entries;
};

/// A modifier of an option's declaration that adds it to `checks`.
class CheckedBy {
public:
  explicit CheckedBy(OptionChecks &checks) : checks(checks) {}
  template <typename Option> void apply(Option &option) const { checks.add(option); }

private:
  OptionChecks &checks;
};

} // namespace commsched

#endif // COMMSCHED_SUPPORT_OPTIONCHECKS_H
