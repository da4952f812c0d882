//===- TimelinePage.cpp - The timeline as a page ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One HTML file: the parts of lib/Report/Page, which the build embeds, and the report's data as JSON. The data is
// written by columns, with every text once, so that 100,000 operations make a page of some 20 MB that a browser reads
// in a second. lib/Report/Page/model.js reads the columns.
//
//===------------------------------------------------------------------------------------------===//

#include "TimelinePage.h"
#include "CommSched/Report/Report.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace commsched;

// Defines kPageHtml, kPageStyle and kPageScript.
#include "TimelinePageParts.inc"

namespace {

class PageWriter {
public:
  explicit PageWriter(raw_ostream &os) : json(os) {}

  void write(const Report &report) {
    json.object([&] {
      json.attribute("machine", json::fixUTF8(report.machine));
      column("titles", report.sides, [](StringRef side) { return side; });
      json.attributeArray("blocks", [&] {
        for (const BlockReport &block : report.blocks)
          json.object([&] { writeBlock(block); });
      });
      json.attributeArray("strings", [&] {
        for (StringRef text : strings)
          json.value(text);
      });
    });
  }

private:
  /// The number of a text; -1 of an empty one.
  int64_t number(StringRef text) {
    if (text.empty())
      return -1;
    auto [entry, isNew] = numbers.try_emplace(json::isUTF8(text) ? text.str() : json::fixUTF8(text), strings.size());
    if (isNew)
      strings.push_back(entry->first());
    return entry->second;
  }

  /// A list of texts: one number, or an array of several.
  void writeTexts(ArrayRef<std::string> texts) {
    if (texts.size() < 2)
      return json.value(texts.empty() ? -1 : number(texts.front()));
    json.array([&] {
      for (const std::string &text : texts)
        json.value(number(text));
    });
  }

  /// One column of a table.
  template <class Rows, class Value> void column(StringRef name, const Rows &rows, Value value) {
    json.attributeArray(name, [&] {
      for (const auto &row : rows)
        json.value(value(row));
    });
  }

  void writeBlock(const BlockReport &block);
  void writeSide(const BlockSnapshot &side);
  void writeOperations(ArrayRef<TimelineOperation> operations);
  void writeStarts(ArrayRef<TimelineOperation> operations);
  void writeWaits(ArrayRef<TimelineOperation> operations);
  void writeSpans(ArrayRef<TimelineSpan> spans);
  void writeMemory(const BlockSnapshot &side);
  void writeUses(const BlockContention &contention);

  json::OStream json;
  StringMap<int64_t> numbers;
  std::vector<StringRef> strings;
};

} // namespace

void PageWriter::writeBlock(const BlockReport &block) {
  const BlockSnapshot &before = block.before, &after = block.after;
  bool isWithin = after.peak <= block.limit && before.limitBound > before.jointBound;
  json.attribute("name", json::fixUTF8(block.name));
  json.attribute("limit", block.limit);
  json.attribute("bound", isWithin ? before.limitBound : before.jointBound);
  json.attribute("boundBy", json::fixUTF8(isWithin ? before.limitBoundBy : before.jointBoundBy));
  json.attributeArray("sides", [&] {
    if (!block.isOneMeasurement)
      json.object([&] { writeSide(before); });
    json.object([&] { writeSide(after); });
  });
}

void PageWriter::writeSide(const BlockSnapshot &side) {
  json.attribute("makespan", side.makespan);
  json.attribute("exposed", side.exposed);
  json.attribute("peak", side.peak);
  json.attribute("arguments", side.arguments);
  column("lanes", side.lanes, [](const std::string &name) { return json::fixUTF8(name); });
  column("loads", side.laneLoads, [](Ns load) { return load; });
  // The row of each stream's computations: the compute lane's, then those below the lanes.
  json.attributeArray("streamRow", [&] {
    for (size_t stream = 0; stream < std::max<size_t>(side.streams.size(), 1); ++stream)
      json.value(stream == 0 ? 0 : static_cast<int64_t>(side.laneLoads.size() + stream - 1));
  });
  json.attributeObject("ops", [&] { writeOperations(side.details.operations); });
  json.attributeObject("starts", [&] { writeStarts(side.details.operations); });
  json.attributeObject("waits", [&] { writeWaits(side.details.operations); });
  json.attributeObject("spans", [&] { writeSpans(side.spans); });
  writeMemory(side);
  if (side.contention)
    writeUses(*side.contention);
}

/// The makespan without contention, and of each resource that is used at all, how much of it is from each moment of
/// `when` on.
void PageWriter::writeUses(const BlockContention &contention) {
  json.attribute("undisturbed", contention.undisturbed);
  json.attributeArray("resources", [&] {
    for (unsigned resource = 0; resource < kNumResources; ++resource) {
      if (contention.average[resource] == 0)
        continue;
      auto permilleOf = [&](const ResourceUse &use) { return use.share[resource] / (kWhole / kPermille); };
      std::vector<ResourceUse> changes;
      for (const ResourceUse &use : contention.uses)
        if (changes.empty() || permilleOf(changes.back()) != permilleOf(use))
          changes.push_back(use);
      json.object([&] {
        json.attribute("name", stringify(static_cast<Resource>(resource)));
        column("when", changes, [](const ResourceUse &use) { return use.begin; });
        column("permille", changes, permilleOf);
      });
    }
  });
}

void PageWriter::writeOperations(ArrayRef<TimelineOperation> operations) {
  using Op = TimelineOperation;
  column("kind", operations, [&](const Op &op) { return number(op.kind); });
  json.attributeArray("names", [&] {
    for (const Op &op : operations)
      writeTexts(op.names);
  });
  json.attributeArray("places", [&] {
    for (const Op &op : operations)
      writeTexts(op.places);
  });
  column("group", operations, [&](const Op &op) { return number(op.group); });
  column("stream", operations, [](const Op &op) { return op.stream; });
  column("reached", operations, [](const Op &op) { return op.reached; });
  column("cost", operations, [](const Op &op) { return op.cost; });
  column("low", operations, [](const Op &op) { return op.estimate ? op.estimate->lo : op.cost; });
  column("high", operations, [](const Op &op) { return op.estimate ? op.estimate->hi : op.cost; });
  column("origin", operations, [&](const Op &op) { return op.estimate ? number(stringify(op.estimate->origin)) : -1; });
  column("workspace", operations, [](const Op &op) { return op.workspace; });
}

/// The numbers of the operations for which `is` holds.
template <class Predicate> static std::vector<size_t> select(ArrayRef<TimelineOperation> operations, Predicate is) {
  std::vector<size_t> chosen;
  for (auto [index, op] : enumerate(operations))
    if (is(op))
      chosen.push_back(index);
  return chosen;
}

void PageWriter::writeStarts(ArrayRef<TimelineOperation> operations) {
  std::vector<size_t> starts = select(operations, [](const TimelineOperation &op) { return op.isStart; });
  column("op", starts, [](size_t op) { return static_cast<int64_t>(op); });
  column("bytes", starts, [&](size_t op) { return operations[op].bytes; });
  column("exposed", starts, [&](size_t op) { return operations[op].exposed; });
  column("factor", starts, [&](size_t op) { return number(operations[op].limitingFactor); });
}

void PageWriter::writeWaits(ArrayRef<TimelineOperation> operations) {
  std::vector<size_t> waits = select(operations, [](const TimelineOperation &op) { return op.awaited != kNone; });
  column("op", waits, [](size_t op) { return static_cast<int64_t>(op); });
  column("start", waits, [&](size_t op) { return operations[op].awaited; });
  column("exposed", waits, [&](size_t op) { return operations[op].exposed; });
  column("factor", waits, [&](size_t op) { return number(operations[op].limitingFactor); });
}

void PageWriter::writeSpans(ArrayRef<TimelineSpan> spans) {
  column("op", spans, [](const TimelineSpan &span) { return span.operation; });
  column("row", spans, [](const TimelineSpan &span) { return span.lane; });
  column("start", spans, [](const TimelineSpan &span) { return span.start; });
  column("length", spans, [](const TimelineSpan &span) { return span.end - span.start; });
  column("stall", spans, [](const TimelineSpan &span) { return static_cast<int64_t>(span.stall); });
}

void PageWriter::writeMemory(const BlockSnapshot &side) {
  // On one stream, entry N of the curve belongs to operation N.
  json.attribute("memoryByOperation", side.streams.size() < 2);
  json.attributeObject("memory", [&] {
    column("when", side.memory, [](const auto &entry) { return entry.first; });
    column("live", side.memory, [](const auto &entry) { return entry.second; });
  });
  json.attributeObject("buffers", [&] {
    ArrayRef<TimelineBuffer> buffers = side.details.buffers;
    column("bytes", buffers, [](const TimelineBuffer &buffer) { return buffer.bytes; });
    column("first", buffers, [](const TimelineBuffer &buffer) { return buffer.first; });
    column("last", buffers, [](const TimelineBuffer &buffer) { return buffer.last; });
    column("op", buffers, [](const TimelineBuffer &buffer) { return buffer.operation; });
    column("workspace", buffers, [](const TimelineBuffer &buffer) { return static_cast<int64_t>(buffer.isWorkspace); });
  });
}

/// Writes JSON so that it cannot end the element that holds it: '<' occurs in texts only, where an escape means it.
static void writeInElement(StringRef text, raw_ostream &os) {
  while (!text.empty()) {
    size_t at = std::min(text.find('<'), text.size());
    os << text.take_front(at);
    text = text.drop_front(at);
    if (text.consume_front("<"))
      os << "\\u003c";
  }
}

void commsched::writePage(StringRef data, raw_ostream &os) {
  os << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>CommSched timeline</title>\n"
        "<style>\n"
     << kPageStyle << "</style>\n</head>\n<body>\n"
     << kPageHtml << "<script id=\"data\" type=\"application/json\">";
  writeInElement(data, os);
  os << "</script>\n<script>\n\"use strict\";\n";
  for (StringRef part : kPageScript)
    os << part;
  os << "</script>\n</body>\n</html>\n";
}

void commsched::writeHtml(const Report &report, raw_ostream &os) {
  std::string data;
  raw_string_ostream dataStream(data);
  PageWriter(dataStream).write(report);
  writePage(data, os);
}
