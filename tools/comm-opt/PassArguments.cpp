//===- PassArguments.cpp - Messages about misspelt options of passes --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// MLIR's registry does not say which options a pass has. But a pass with its defaults prints them.
//
//===------------------------------------------------------------------------------------------===//

#include "PassArguments.h"
#include "CommSched/Support/NearestName.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

/// Creates a pass with options. Returns what MLIR says if it cannot.
static std::string create(const mlir::PassInfo &info, StringRef options, mlir::OpPassManager &manager) {
  std::string message;
  (void)info.addToPipeline(manager, options, [&](const Twine &said) {
    message = said.str();
    return mlir::failure();
  });
  return message;
}

std::vector<std::string> commsched::optionNamesOf(StringRef pass) {
  const mlir::PassInfo *info = mlir::PassInfo::lookup(pass);
  if (!info)
    return {};
  mlir::OpPassManager manager(mlir::OpPassManager::Nesting::Implicit);
  if (!create(*info, "", manager).empty())
    return {};
  std::string text;
  raw_string_ostream os(text);
  manager.printAsTextualPipeline(os);
  std::vector<std::string> names;
  for (StringRef rest = text; rest.contains('=');) {
    auto [before, after] = rest.split('=');
    names.push_back(before.substr(before.find_last_of(" {,") + 1).str());
    rest = after;
  }
  return names;
}

/// Says what is wrong with a text like "builtin.module(func.func(comm-schedule{effort=3}))"; empty if nothing is, or if
/// a pass is not registered, which a plugin may still do.
static std::string checkPassPipeline(StringRef text) {
  std::string message;
  raw_string_ostream os(message);
  if (succeeded(mlir::parsePassPipeline(text, os)) || StringRef(message).contains("does not refer to a registered"))
    return "";
  StringRef first = StringRef(message).ltrim();
  if (size_t at = first.find("error: "); at != StringRef::npos)
    first = first.drop_front(at + StringRef("error: ").size());
  return first.split('\n').first.str();
}

std::string commsched::checkPassArgument(StringRef argument) {
  auto [name, options] = argument.ltrim('-').split('=');
  if (name == "pass-pipeline")
    return checkPassPipeline(options);
  const mlir::PassInfo *info = mlir::PassInfo::lookup(name);
  if (!info || options.empty())
    return "";
  std::vector<std::string> names = optionNamesOf(name);
  std::vector<StringRef> known(names.begin(), names.end());
  // Only if a name is not among those that are known, since MLIR prints what it thinks of a value.
  if (is_contained(known, options.take_until([](char c) { return c == '=' || c == ' '; })) && !options.contains(' '))
    return "";
  mlir::OpPassManager manager(mlir::OpPassManager::Nesting::Implicit);
  std::string said = create(*info, options, manager);
  auto [before, misspelt] = StringRef(said).split("no such option ");
  misspelt = misspelt.rtrim();
  // The names are not all that there are, so without a near one MLIR's message is better.
  if (misspelt.empty() || nearestName(misspelt, known).empty())
    return "";
  return ("--" + name + ": unknown option '" + misspelt + "'" + suggestName(misspelt, known)).str();
}
