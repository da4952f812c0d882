//===- RecordedPage.cpp - Recorded timelines as a page ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The tables of a request are those of the page, which draws whatever they hold. So every number is checked, and only
// what is known is taken over: a page that was written can be drawn.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/RecordedPage.h"
#include "TimelinePage.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>
#include <string>

using namespace llvm;
using namespace commsched;

namespace {

/// A column of a table: its integers are at least `least`, and at most `most`.
struct Column {
  StringLiteral name;
  int64_t least, most;
  bool isOptional = false;
};

} // namespace

static Error refuse(const Twine &where, const Twine &what) {
  return createStringError("timeline page: " + where + ": " + what);
}

static Error checkInteger(const json::Value *value, int64_t least, int64_t most, const Twine &where) {
  std::optional<int64_t> number = value ? value->getAsInteger() : std::nullopt;
  if (number && *number >= least && *number <= most)
    return Error::success();
  return refuse(where, "expected an integer from " + Twine(least) + " to " + Twine(most) + ", got " +
                           (value ? formatv("{0}", *value).str() : "nothing"));
}

static Error checkText(const json::Value *value, const Twine &where) {
  return value && value->getAsString() ? Error::success() : refuse(where, "expected a text");
}

/// The texts of a field. Fails if there are fewer than `least`.
static Expected<const json::Array *> checkTexts(const json::Object &object, StringRef name, size_t least,
                                                const Twine &where) {
  const json::Array *texts = object.getArray(name);
  if (!texts || texts->size() < least)
    return refuse(where, "expected an array of at least " + Twine(least) + " texts");
  for (auto [index, text] : enumerate(*texts))
    if (Error error = checkText(&text, where + "[" + Twine(index) + "]"))
      return error;
  return texts;
}

/// The number of rows of a table, and its columns in `taken`.
static Expected<int64_t> takeTable(json::Object &side, StringRef name, ArrayRef<Column> columns, json::Object &taken,
                                   const Twine &where) {
  const std::string place = (where + "." + name).str();
  json::Object *table = side.getObject(name);
  if (!table)
    return refuse(place, "expected an object");
  json::Object kept;
  const size_t rows = table->getArray(columns.front().name) ? table->getArray(columns.front().name)->size() : 0;
  for (const Column &column : columns) {
    json::Value *value = table->get(column.name);
    if (!value && column.isOptional)
      continue;
    json::Array *numbers = value ? value->getAsArray() : nullptr;
    const std::string at = place + "." + column.name.str();
    if (!numbers || numbers->size() != rows)
      return refuse(at, "expected an array of " + Twine(rows) + " integers");
    for (auto [row, number] : enumerate(*numbers))
      if (Error error = checkInteger(&number, column.least, column.most, at + "[" + Twine(row) + "]"))
        return error;
    kept[column.name] = std::move(*value);
  }
  taken[name] = std::move(kept);
  return rows;
}

static Error takeFigures(json::Object &side, json::Object &taken, const Twine &where) {
  const json::Array *figures = side.getArray("figures");
  if (!figures || figures->empty())
    return refuse(where + ".figures", "expected an array of at least 1 figure");
  json::Array kept;
  for (auto [index, figure] : enumerate(*figures)) {
    const std::string place = (where + ".figures[" + Twine(index) + "]").str();
    const json::Object *object = figure.getAsObject();
    if (!object)
      return refuse(place, "expected an object");
    if (Error error = checkText(object->get("name"), place + ".name"))
      return error;
    if (Error error = checkInteger(object->get("ns"), 0, kMaxPageNs, place + ".ns"))
      return error;
    kept.push_back(json::Object{{"name", *object->get("name")}, {"ns", *object->get("ns")}});
  }
  taken["figures"] = std::move(kept);
  return Error::success();
}

static Error takeTables(json::Object &side, int64_t strings, json::Object &taken, const Twine &where) {
  const int64_t rows = taken.getArray("lanes")->size(), last = strings - 1, most = kMaxPageNs;
  Expected<int64_t> count = takeTable(
      side, "ops", {{"kind", 0, last}, {"group", -1, last}, {"count", 1, most, /*isOptional=*/true}}, taken, where);
  if (!count)
    return count.takeError();
  const Column op = {"op", 0, *count - 1};
  Expected<int64_t> starts = takeTable(
      side, "starts",
      {op, {"bytes", -1, most}, {"ranks", 0, most}, {"exposed", 0, most}, {"late", 0, most}, {"match", -1, most}},
      taken, where);
  if (!starts)
    return starts.takeError();
  Expected<int64_t> waits = takeTable(
      side, "waits", {op, {"start", 0, *count - 1}, {"exposed", 0, most}, {"factor", -1, last}}, taken, where);
  if (!waits)
    return waits.takeError();
  Expected<int64_t> spans =
      takeTable(side, "spans", {op, {"row", 0, rows - 1}, {"start", 0, most}, {"length", 0, most}, {"stall", 0, 1}},
                taken, where);
  return spans ? Error::success() : spans.takeError();
}

/// One side of the page.
static Expected<json::Object> takeSide(json::Object &side, int64_t strings, const Twine &where) {
  for (StringRef name : {"title", "note"})
    if (Error error = checkText(side.get(name), where + "." + name))
      return error;
  for (StringRef name : {"begin", "end", "bound"})
    if (Error error = checkInteger(side.get(name), 0, kMaxPageNs, where + "." + name))
      return error;
  if (*side.getInteger("end") < *side.getInteger("begin"))
    return refuse(where + ".end", "expected at least begin, " + Twine(*side.getInteger("begin")) + ", got " +
                                      Twine(*side.getInteger("end")));
  Expected<const json::Array *> lanes = checkTexts(side, "lanes", 1, where + ".lanes");
  if (!lanes)
    return lanes.takeError();
  const json::Array *loads = side.getArray("loads");
  if (!loads || loads->size() != (*lanes)->size())
    return refuse(where + ".loads", "expected an array of " + Twine((*lanes)->size()) + " integers");
  for (auto [lane, load] : enumerate(*loads))
    if (Error error = checkInteger(&load, 0, kMaxPageNs, where + ".loads[" + Twine(lane) + "]"))
      return error;
  json::Object taken{{"makespan", *side.getInteger("end")}};
  for (StringRef name : {"title", "note", "begin", "bound", "lanes", "loads"})
    taken[name] = std::move(*side.get(name));
  if (Error error = takeFigures(side, taken, where))
    return error;
  if (Error error = takeTables(side, strings, taken, where))
    return error;
  return taken;
}

Expected<std::string> commsched::makeRecordedPage(StringRef request) {
  Expected<json::Value> document = json::parse(request);
  if (!document)
    return refuse("request", toString(document.takeError()));
  json::Object *root = document->getAsObject();
  json::Array *sides = root ? root->getArray("sides") : nullptr;
  if (!sides || sides->empty())
    return refuse("request", "expected an object with at least one of 'sides'");
  Expected<const json::Array *> strings = checkTexts(*root, "strings", 0, "strings"),
                                notes = checkTexts(*root, "notes", 0, "notes");
  if (Error error = joinErrors(strings.takeError(), notes.takeError()))
    return error;
  json::Array taken;
  for (auto [index, side] : enumerate(*sides)) {
    const std::string where = formatv("sides[{0}]", index).str();
    json::Object *object = side.getAsObject();
    if (!object)
      return refuse(where, "expected an object");
    Expected<json::Object> kept = takeSide(*object, (*strings)->size(), where);
    if (!kept)
      return kept.takeError();
    taken.push_back(std::move(*kept));
  }
  json::Object block{{"name", ""}, {"limit", 0}, {"bound", 0}, {"sides", std::move(taken)}};
  const json::Value data = json::Object{{"strings", std::move(*root->get("strings"))},
                                        {"notes", std::move(*root->get("notes"))},
                                        {"blocks", json::Array{std::move(block)}}};
  std::string page;
  raw_string_ostream os(page);
  writePage(formatv("{0}", data).str(), os);
  return page;
}
