//===- OverlapListing.cpp - Schedules as plain text -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// comm-opt --comm-print-overlap. What PyTorch Inductor writes into its logs: a table of what each pass did to each
// collective (the tables of ReorderInfo and SinkWaitInfo), and the operations in their order, with a bar in front of
// those that run beside a collective (visualize_overlap).
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace commsched;

namespace {

/// "4: mm, mm_1, ..."; "0" of no operation.
std::string describe(const NamedOperations &operations) {
  if (operations.count == 0)
    return "0";
  std::string text = std::to_string(operations.count) + ": " + join(operations.names, ", ");
  return operations.count > static_cast<int64_t>(operations.names.size()) ? text + ", ..." : text;
}

std::string placeOf(ArrayRef<std::string> names) {
  std::string place = names.empty() ? "?" : names.front();
  return names.size() > 1 ? formatv("{0} and {1} more", place, names.size() - 1).str() : place;
}

/// Prints cells such that columns begin below each other. The last column is as wide as its text.
void printAligned(ArrayRef<std::vector<std::string>> rows, raw_ostream &os) {
  std::vector<size_t> widths;
  for (const std::vector<std::string> &row : rows)
    for (auto [column, cell] : enumerate(row)) {
      widths.resize(std::max(widths.size(), row.size()));
      widths[column] = std::max(widths[column], cell.size());
    }
  for (const std::vector<std::string> &row : rows) {
    std::string line = " ";
    for (auto [column, cell] : enumerate(row))
      line += " " + cell + std::string(widths[column] - cell.size() + 1, ' ');
    os << StringRef(line).rtrim() << "\n";
  }
}

/// One row per collective, in the order of the pass's record.
void printRecord(const PassRecord &record, raw_ostream &os) {
  os << formatv("{0} of {1}: moved {2} of {3}, makespan {4} -> {5}, exposed {6} -> {7}, peak {8} -> {9}\n", record.pass,
                record.block, record.moved(), record.rows.size(), formatNs(record.makespan.before),
                formatNs(record.makespan.after), formatNs(record.exposed.before), formatNs(record.exposed.after),
                formatBytes(record.peak.before), formatBytes(record.peak.after));
  if (record.rows.empty())
    return;
  std::vector<std::vector<std::string>> rows = {{"node", "kind", "takes", "compute", "exposed before", "after",
                                                 "improvement", "moves", "taken along", "passed", "hidden by",
                                                 "limiting factor"}};
  for (const PassRow &row : record.rows)
    rows.push_back({placeOf(row.locations), row.kind, formatNs(row.cost), formatNs(row.compute.after),
                    formatNs(row.exposed.before), formatNs(row.exposed.after), formatNs(row.exposed.gain()),
                    std::to_string(row.moves), describe(row.takenAlong), describe(row.passed), describe(row.hiddenBy),
                    row.limitingFactor});
  printAligned(rows, os);
}

/// One line per operation. A start is in flight until the first of its waits.
void printSteps(const BlockReport &block, raw_ostream &os) {
  const std::vector<TimelineOperation> &operations = block.after.details.operations;
  os << formatv("{0}: {1} operations, estimated {2}, exposed {3}\n", block.name, operations.size(),
                formatNs(block.after.makespan), formatNs(block.after.exposed));
  std::vector<char> inFlight(operations.size(), 0);
  size_t count = 0;
  for (auto [step, operation] : enumerate(operations)) {
    bool waits = operation.awaited != kNone;
    if (waits && inFlight[operation.awaited]) {
      inFlight[operation.awaited] = 0;
      --count;
    }
    bool beside = count > 0 && !waits && !operation.isStart;
    std::string text = formatv("{0,6}: {1}{2}", step, beside ? "| " : "", operation.kind).str();
    if (!operation.names.empty() && operation.names.front() != operation.kind)
      text += " " + placeOf(operation.names);
    if (operation.isStart)
      text += formatv(" of {0} on {1}", formatBytes(operation.bytes), operation.group).str();
    text += formatv(" ({0} at {1}", formatNs(operation.cost), formatNs(operation.reached)).str();
    if (operation.exposed > 0)
      text += ", exposed " + formatNs(operation.exposed);
    os << text << ")\n";
    if (operation.isStart) {
      inFlight[step] = 1;
      ++count;
    }
  }
}

} // namespace

void commsched::printOverlap(const Report &report, raw_ostream &os) {
  for (const PassRecord &record : report.passes)
    printRecord(record, os);
  for (const BlockReport &block : report.blocks)
    printSteps(block, os);
}
