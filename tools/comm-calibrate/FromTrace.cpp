//===- FromTrace.cpp - A profile from the traces of a framework -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "FromTrace.h"
#include "CommSched/Analysis/Costs/OperationCosts.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Support/Format.h"
#include "CommSched/Support/OutputFile.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <set>

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

/// At most this many lines are printed of each list; the profile has all of them.
static constexpr size_t kMostLines = 20;

/// The entries of a profile that operations use.
using UsedEntries = std::set<const OpTime *>;

/// What a list calls an operation: its name and its operands.
static std::string describe(Operation *op) {
  return getTableName(op).str() + " (" + llvm::join(getTableShapes(op), ", ") + ")";
}

/// Compares one program with the profile that the traces gave.
static void compare(ModuleOp module, const OperationCosts &costs, llvm::ArrayRef<RunPoint> points, TraceMatch &match,
                    UsedEntries &used) {
  module.walk([&](Operation *op) {
    if (op->getNumRegions() > 0)
      return;
    std::optional<CostEstimate> cost = costs.estimateOf(op);
    if (!cost || cost->ns == 0)
      return;
    ++match.costly;
    bool isFound = false;
    if (auto start = dyn_cast<CollectiveOpInterface>(op)) {
      isFound = llvm::any_of(points, [&](const RunPoint &point) {
        return point.kind == start.getCollectiveKind() && point.shape == costs.shapeOf(start) &&
               point.element == costs.elementOf(start) && point.bytes == getCollectiveBytes(start);
      });
    } else if (const OpTime *entry = costs.findEntry(op)) {
      isFound = true;
      used.insert(entry);
    }
    if (isFound) {
      ++match.found;
      return;
    }
    MissingOps &missing = match.missing[describe(op)];
    if (missing.count++ == 0)
      missing.place = locationText(op->getLoc());
    missing.time += cost->ns;
  });
}

static llvm::Error comparePrograms(llvm::ArrayRef<std::string> programs, llvm::ArrayRef<RunPoint> points,
                                   const DialectRegistry &registry, const CostModel &model, TraceMatch &match,
                                   UsedEntries &used) {
  MLIRContext context(registry);
  for (const std::string &path : programs) {
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, &context);
    if (!module)
      return llvm::createStringError("cannot read '" + path + "'");
    OperationCosts costs(model);
    int64_t before = match.found;
    compare(*module, costs, points, match, used);
    if (match.found == before)
      return llvm::createStringError("'" + path +
                                     "': none of its operations is in the traces: they are of another program");
  }
  return llvm::Error::success();
}

/// "1.50 us  3 calls  aten::add: why".
static void printUnmatched(llvm::ArrayRef<UnmatchedEvents> unmatched) {
  if (unmatched.empty())
    return;
  llvm::errs() << "in the traces, but not matched:\n";
  for (const UnmatchedEvents &events : unmatched.take_front(kMostLines))
    llvm::errs() << llvm::formatv("  {0,10} {1,6} x {2}: {3}\n", formatNs(events.time), events.calls, events.name,
                                  events.why);
  if (unmatched.size() > kMostLines)
    llvm::errs() << "  and " << unmatched.size() - kMostLines << " more (calibration.trace.unmatched of the profile)\n";
}

/// The operations that are in no trace, those that take longest first.
static std::vector<std::pair<std::string, MissingOps>> sortedMissing(const TraceMatch &match) {
  std::vector<std::pair<std::string, MissingOps>> rows(match.missing.begin(), match.missing.end());
  llvm::stable_sort(rows, [](const auto &a, const auto &b) { return a.second.time > b.second.time; });
  return rows;
}

static void printMissing(const TraceMatch &match) {
  llvm::errs() << match.found << " of " << match.costly << " operations that take time are in the traces\n";
  if (match.missing.empty())
    return;
  std::vector<std::pair<std::string, MissingOps>> rows = sortedMissing(match);
  llvm::errs() << "in the programs, but not in the traces (times by the profile):\n";
  for (const auto &[name, missing] : llvm::ArrayRef(rows).take_front(kMostLines))
    llvm::errs() << llvm::formatv("  {0,10} {1,6} x {2} at {3}\n", formatNs(missing.time), missing.count, name,
                                  missing.place);
  if (rows.size() > kMostLines)
    llvm::errs() << "  and " << rows.size() - kMostLines << " more\n";
}

/// All that is printed as JSON, with all rows of the lists.
static llvm::json::Object describe(const TraceTimes &times, const MachineModel &base, bool hasPrograms,
                                   const TraceMatch &match) {
  llvm::json::Array unmatched, missing;
  for (const UnmatchedEvents &events : times.unmatched)
    unmatched.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(events.name)},
                                           {"why", llvm::json::fixUTF8(events.why)},
                                           {"calls", events.calls},
                                           {"ns", events.time}});
  for (const auto &[name, ops] : sortedMissing(match))
    missing.push_back(llvm::json::Object{{"name", llvm::json::fixUTF8(name)},
                                         {"place", llvm::json::fixUTF8(ops.place)},
                                         {"operations", ops.count},
                                         {"ns", ops.time}});
  llvm::json::Object figures{{"writer", llvm::json::fixUTF8(times.writer)},
                             {"base", base.name},
                             {"operations", static_cast<int64_t>(times.ops.size())},
                             {"collectives", static_cast<int64_t>(times.points.size())},
                             {"unmatched", std::move(unmatched)}};
  if (hasPrograms)
    figures["programs"] =
        llvm::json::Object{{"costly", match.costly}, {"found", match.found}, {"missing", std::move(missing)}};
  return figures;
}

/// Compares graphs of PyTorch with the times, and adds what no operation uses to what was not matched.
static llvm::Error matchGraphs(const TraceRequest &request, const MachineModel &base, const DialectRegistry &registry,
                               TraceTimes &times, TraceMatch &match) {
  llvm::Expected<MachineModel> machine = addTrace(base, times, "traced");
  if (!machine)
    return machine.takeError();
  CostModel model(std::move(*machine));
  UsedEntries entries;
  if (llvm::Error error = comparePrograms(request.programs, times.points, registry, model, match, entries))
    return error;
  std::set<std::pair<std::string, std::vector<std::string>>> used;
  for (const OpTime *entry : entries)
    used.insert({entry->name, entry->shapes});
  for (const TracedOp &op : times.ops)
    if (!op.isPart && !used.count({op.name, op.shapes}))
      times.unmatched.push_back({op.name + " (" + llvm::join(op.shapes, ", ") + ")", "no program has it", op.time.n,
                                 op.time.value * op.time.n});
  return llvm::Error::success();
}

llvm::Error commsched::makeProfileFromTraces(const TraceRequest &request, const DialectRegistry &registry,
                                             llvm::json::Object &figures) {
  llvm::Expected<TracedMachine> traced = loadTraces(request.traces, request.base);
  if (!traced)
    return traced.takeError();
  const MachineModel &base = traced->base;
  TraceTimes &times = traced->times;
  TraceMatch match;
  if (!request.programs.empty())
    if (llvm::Error error = times.areInstructions() ? matchModules(request.programs, base, times, match)
                                                    : matchGraphs(request, base, registry, times, match))
      return error;
  llvm::stable_sort(times.unmatched,
                    [](const UnmatchedEvents &a, const UnmatchedEvents &b) { return a.time > b.time; });
  llvm::StringRef name = request.output == "-" ? llvm::StringRef("traced") : llvm::sys::path::stem(request.output);
  llvm::Expected<MachineModel> machine = addTrace(base, times, name);
  if (!machine)
    return machine.takeError();
  if (llvm::Error error = writeWhole(request.output, [&](llvm::raw_ostream &os) {
        os << machine->toJSON();
        return llvm::Error::success();
      }))
    return error;
  figures = describe(times, base, !request.programs.empty(), match);
  if (request.quiet)
    return llvm::Error::success();
  llvm::errs() << times.writer << ": times of " << times.ops.size() << " operations and " << times.points.size()
               << " collectives, added to '" << base.name << "'\n";
  if (!times.areInstructions() && !times.hasCompiledGraphs)
    llvm::errs() << "no graph of Inductor is in the traces: the times are those of operators that run one by one\n";
  if (!request.programs.empty())
    printMissing(match);
  printUnmatched(times.unmatched);
  return llvm::Error::success();
}
