//===- BlockNames.cpp - The blocks that reports describe, and their names ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "CommSched/Analysis/ProblemLoader.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace commsched;

/// The name of a function within `outermost`: the names of the modules around it are in front ("inner::f").
static std::string qualifiedName(FunctionOpInterface function, Operation *outermost) {
  std::string name = function.getName().str();
  for (auto module = function->getParentOfType<ModuleOp>(); module && module != outermost;
       module = module->getParentOfType<ModuleOp>())
    name = module.getName().value_or("module").str() + "::" + name;
  return name;
}

/// The name that nameReportedBlocks() gave a function; empty if it gave none, or if it gave it to a function of another
/// name, of which this one is a copy.
static StringRef givenName(FunctionOpInterface function) {
  auto given = function->getAttrOfType<StringAttr>(kReportedNameAttrName);
  if (!given)
    return {};
  // Without the modules in front, and without the number of a name that was taken.
  StringRef symbol = given.getValue();
  if (size_t colons = symbol.rfind("::"); colons != StringRef::npos)
    symbol = symbol.drop_front(colons + 2);
  return symbol.rsplit('#').first == function.getName() || symbol == function.getName() ? given.getValue()
                                                                                        : StringRef();
}

static bool isBody(FunctionOpInterface function, Block &block) {
  return block.getParentOp() == function && block.isEntryBlock();
}

/// The name on the terminator of a block; null if there is none.
static StringAttr nameOn(Block &block) {
  return block.empty() ? StringAttr() : block.back().getAttrOfType<StringAttr>(kReportedNameAttrName);
}

/// Returns whether `name` is one that nameReportedBlocks() gave to a block inside of the function `base`.
static bool isInside(StringRef name, StringRef base) {
  return name.consume_front(base) && name.starts_with(".") && !name.contains("::");
}

/// The blocks of a function whose names are certain: those that carry a name of this function that no other block of it
/// carries.
static llvm::DenseMap<Block *, StringRef> findNamedBlocks(FunctionOpInterface function, StringRef base) {
  llvm::StringMap<SmallVector<Block *, 1>> blocksByName;
  function->walk([&](Block *block) {
    if (StringAttr name = nameOn(*block); name && !isBody(function, *block) && isInside(name, base))
      blocksByName[name].push_back(block);
  });
  llvm::DenseMap<Block *, StringRef> names;
  for (auto &entry : blocksByName)
    if (entry.second.size() == 1)
      names[entry.second.front()] = nameOn(*entry.second.front());
  return names;
}

/// The blocks of one function, whose name is `base`.
static void findInFunction(FunctionOpInterface function, StringRef base, std::vector<ReportedBlock> &found) {
  bool isCollected = !givenName(function).empty();
  llvm::DenseMap<Block *, StringRef> named = findNamedBlocks(function, base);
  llvm::StringSet<> taken;
  for (auto [block, name] : named)
    taken.insert(name);
  SmallVector<Block *> schedulable = findSchedulableBlocks(function);
  llvm::SmallPtrSet<Block *, 8> isSchedulable(schedulable.begin(), schedulable.end());
  int64_t next = 0;
  std::string stem = (base + (isCollected ? ".new" : ".")).str();
  function->walk([&](Block *block) {
    bool body = isBody(function, *block);
    bool isNamed = body ? nameOn(*block) && nameOn(*block).getValue() == base : named.contains(block);
    if (!isNamed && !isSchedulable.contains(block))
      return;
    std::string name = body ? base.str() : named.lookup(block).str();
    while (name.empty() || (!body && !isNamed && taken.contains(name)))
      name = stem + std::to_string(next++);
    found.push_back({function, block, std::move(name)});
  });
}

std::vector<ReportedBlock> commsched::findReportedBlocks(ModuleOp module) {
  std::vector<ReportedBlock> found;
  llvm::StringMap<int> taken;
  module.walk([&](FunctionOpInterface function) {
    std::string name = qualifiedName(function, module);
    if (int earlier = taken[name]++)
      name += "#" + std::to_string(earlier + 1);
    StringRef given = givenName(function);
    findInFunction(function, given.empty() ? StringRef(name) : given, found);
  });
  return found;
}

StringRef commsched::functionNameOf(const ReportedBlock &reported) {
  StringRef name = reported.name;
  return isBody(reported.function, *reported.block) ? name : name.rsplit('.').first;
}

std::string commsched::reportNameOf(Block &block) {
  Operation *parent = block.getParentOp();
  auto function = dyn_cast<FunctionOpInterface>(parent);
  if (!function)
    function = parent->getParentOfType<FunctionOpInterface>();
  if (!function)
    return parent->getName().getStringRef().str();
  Operation *outermost = function->getParentOfType<ModuleOp>();
  while (outermost && outermost->getParentOfType<ModuleOp>())
    outermost = outermost->getParentOfType<ModuleOp>();
  StringRef given = givenName(function);
  std::string base = given.empty() ? qualifiedName(function, outermost) : given.str();
  std::vector<ReportedBlock> found;
  findInFunction(function, base, found);
  auto it = llvm::find_if(found, [&](const ReportedBlock &reported) { return reported.block == &block; });
  return it == found.end() ? base : it->name;
}

void commsched::nameReportedBlocks(ModuleOp module) {
  // All names are found before the first is written: a written name changes those of the blocks without one.
  for (const ReportedBlock &reported : findReportedBlocks(module)) {
    auto name = StringAttr::get(module.getContext(), reported.name);
    if (!reported.block->empty() && reported.block->back().hasTrait<OpTrait::IsTerminator>())
      reported.block->back().setDiscardableAttr(kReportedNameAttrName, name);
    reported.function->setDiscardableAttr(kReportedNameAttrName,
                                          StringAttr::get(module.getContext(), functionNameOf(reported)));
  }
}

void commsched::dropReportedNames(ModuleOp module) {
  module.walk([](Operation *op) { op->removeDiscardableAttr(kReportedNameAttrName); });
}
