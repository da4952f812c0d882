//===- TracedModules.cpp - Times of instructions for modules of XLA ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Names of instructions mean nothing without their module: every module has a "fusion.1".
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Graph/HloPrices.h"
#include "CommSched/Frontends/Hlo/Reader/HloFile.h"
#include "FromTrace.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include <set>

using namespace commsched;

namespace {

/// Collects what the modules make of the times.
class ModuleMatcher {
public:
  ModuleMatcher(const CostModel &model, TraceTimes &times, TraceMatch &match);

  llvm::Error add(const std::string &path);
  void finish();

private:
  void add(const std::string &path, const hlo::PricedInstruction &instruction);

  const CostModel &model;
  TraceTimes &times;
  TraceMatch &match;
  llvm::StringMap<const TracedOp *> byName;
  std::set<std::string> used;
  std::vector<TracedOp> ops;
  std::set<std::pair<std::string, std::vector<std::string>>> known;
  /// The medians of the collectives of one kind, group, type and size.
  std::map<std::tuple<CollectiveKind, GroupShape, ElementType, Bytes>, std::vector<Ns>> points;
};

} // namespace

ModuleMatcher::ModuleMatcher(const CostModel &model, TraceTimes &times, TraceMatch &match)
    : model(model), times(times), match(match) {
  for (const TracedOp &op : times.ops)
    byName[op.name] = &op;
}

void ModuleMatcher::add(const std::string &path, const hlo::PricedInstruction &instruction) {
  if (instruction.isCollective && instruction.shape.ranks < 2)
    return;
  ++match.costly;
  auto found = byName.find(instruction.name);
  if (found == byName.end()) {
    MissingOps &missing = match.missing[instruction.name.str()];
    missing.place = path;
    ++missing.count;
    missing.time += instruction.time;
    return;
  }
  ++match.found;
  const TracedOp &op = *found->second;
  used.insert(op.name);
  if (instruction.isCollective)
    points[{instruction.kind, instruction.shape, instruction.element, instruction.bytes}].push_back(op.time.value);
  else if (known.insert({op.name, instruction.results}).second)
    ops.push_back({op.name, instruction.results, op.time});
}

llvm::Error ModuleMatcher::add(const std::string &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer)
    return llvm::createStringError("'" + path + "': " + buffer.getError().message());
  llvm::Expected<hlo::HloFile> file = hlo::HloFile::read((*buffer)->getBuffer(), path);
  if (!file)
    return file.takeError();
  llvm::Expected<std::vector<hlo::PricedInstruction>> prices = hlo::priceInstructions(file->module(), model);
  if (!prices)
    return prices.takeError();
  int64_t before = match.found;
  for (const hlo::PricedInstruction &instruction : *prices)
    add(path, instruction);
  if (match.found == before)
    return llvm::createStringError("'" + path +
                                   "': none of its instructions is in the traces: they are of another program");
  return llvm::Error::success();
}

void ModuleMatcher::finish() {
  for (const TracedOp &op : times.ops)
    if (!used.count(op.name))
      times.unmatched.push_back({op.name, "no program has it", op.time.n, op.time.value * op.time.n});
  times.ops = std::move(ops);
  for (const auto &[key, durations] : points)
    times.points.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key), estimateDuration(durations)});
}

llvm::Error commsched::matchModules(llvm::ArrayRef<std::string> paths, const MachineModel &base, TraceTimes &times,
                                    TraceMatch &match) {
  CostModel model(base);
  ModuleMatcher matcher(model, times, match);
  for (const std::string &path : paths)
    if (llvm::Error error = matcher.add(path))
      return error;
  matcher.finish();
  return llvm::Error::success();
}
