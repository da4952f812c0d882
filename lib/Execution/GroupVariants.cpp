//===- GroupVariants.cpp - Chosen ways as options of groups -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads `comm.variant` off the starts of a module.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/GroupVariants.h"
#include "CommSched/Dialect/Comm/CommDialect.h"

using namespace commsched;
using namespace commsched::comm;

void GroupVariants::add(mlir::ModuleOp module) {
  module->walk([&](CollectiveOpInterface start) {
    auto text = start->getAttrOfType<mlir::StringAttr>(CommDialect::kVariantAttrName);
    std::optional<VariantName> name = text ? VariantName::parse(text.getValue()) : std::nullopt;
    add(start.getGroupAttr().getValue().str(), name);
  });
}

void GroupVariants::add(const GroupVariants &other) {
  for (const auto &[group, names] : other.asked)
    for (const std::optional<VariantName> &name : names)
      add(group, name);
}

void GroupVariants::add(const std::string &group, std::optional<VariantName> name) {
  std::vector<std::optional<VariantName>> &names = asked[group];
  if (!llvm::is_contained(names, name))
    names.push_back(name);
}

/// The options of a communicator that make NCCL take a way: a ring has exactly its thread blocks, symmetric kernels at
/// most theirs, and copy engines are what the policy "zero" prefers.
static std::string optionsOf(const VariantName &name) {
  std::string ctas = std::to_string(name.ctas);
  if (name.means == VariantName::CopyEngine)
    return "policy=zero";
  if (name.means == VariantName::Ring)
    return "min=" + ctas + ",max=" + ctas;
  return name.ctas > 0 ? "max=" + ctas : "";
}

std::string GroupVariants::options() const {
  std::string result;
  for (const auto &[group, names] : asked)
    if (names.size() == 1 && names.front() && !optionsOf(*names.front()).empty())
      result += (result.empty() ? "" : ";") + group + ":" + optionsOf(*names.front());
  return result;
}

std::vector<std::string> GroupVariants::refused() const {
  std::vector<std::string> lines;
  for (const auto &[group, names] : asked) {
    if (names.size() < 2)
      continue;
    std::string line = "group @" + group + ": its collectives ask for several ways (";
    for (const std::optional<VariantName> &name : names)
      line += (&name == &names.front() ? "" : ", ") + (name ? name->text() : "the library's choice");
    lines.push_back(line + "), but a communicator has one; the library chooses");
  }
  return lines;
}
