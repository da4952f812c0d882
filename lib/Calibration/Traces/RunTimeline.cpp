//===- RunTimeline.cpp - Costs from what a real run took ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads the trace events of comm-run and puts what they say into the tables of a profile.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/RunTimeline.h"
#include "FieldReader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include <map>

using namespace commsched;

namespace json = llvm::json;

//===-----------------------------------------------------------------------------------------===//
// Reading
//===-----------------------------------------------------------------------------------------===//

namespace {

/// What distinguishes points.
using PointKey = std::tuple<CollectiveKind, GroupShape, ElementType, Bytes>;

/// One collective of one rank.
struct SpanEvent {
  int64_t lane = 0, site = 0;
  Ns begin = 0, end = 0;
  /// What to add for the time of the clock that the ranks of one file share; none if it is not known.
  std::optional<Ns> offset;
  PointKey key;
  /// Whether it counts: it has a size, and is one plain collective.
  bool counts = false;
};

/// One call of a site on one rank: from when it could begin to when it was complete.
struct SiteCall {
  Ns begin = 0, end = 0;

  Ns duration() const { return std::max<Ns>(1, end - begin); }
};

/// A site on one rank.
struct SiteCalls {
  PointKey key;
  /// The index of its file, if its times are of a clock that the ranks of that file share; -1 otherwise.
  int64_t clock = -1;
  /// In the order of the calls.
  std::vector<SiteCall> calls;
};

/// The events of one file by process, and the processes' names.
struct TimelineFile {
  std::map<int64_t, std::string> names;
  std::map<int64_t, std::vector<SpanEvent>> events;
};

} // namespace

/// Reads what the collective of an event moves.
static void readArguments(FieldReader arguments, llvm::StringRef kindName, SpanEvent &event) {
  event.site = arguments.integer("site", 0);
  const json::Object &object = arguments.object;
  if (!object.get("bytes") || object.getBoolean("one_shot").value_or(false) ||
      object.getInteger("parts").value_or(1) > 1)
    return;
  std::optional<CollectiveKind> kind = parseCollectiveKind(kindName);
  std::optional<ElementType> element = parseElementType(arguments.string("element"));
  if (!kind)
    arguments.fail("site", "expected an event with the name of a kind of collective, got '" + kindName + "'");
  if (!element)
    arguments.fail("element", "expected an element type, such as bf16");
  GroupShape shape{arguments.integer("ranks", 1), arguments.integer("nodes", 1),
                   arguments.integer("ranks_per_node", 1)};
  Bytes bytes = arguments.integer("bytes", 0);
  event.key = {kind.value_or(CollectiveKind::AllReduce), shape, element.value_or(ElementType::Other), bytes};
  event.counts = shape.ranks > 1;
  if (object.get("clock_ns"))
    event.offset = arguments.integer("clock_ns", 0) - event.begin;
}

/// Reads one file. Returns an error's text, or an empty string.
static std::string readFile(const TimelineText &timeline, TimelineFile &file) {
  llvm::Expected<json::Value> document = json::parse(timeline.text);
  if (!document)
    return llvm::toString(document.takeError());
  const json::Object *root = document->getAsObject();
  const json::Array *events = root ? root->getArray("traceEvents") : nullptr;
  if (!events)
    return "expected an object with 'traceEvents', as comm-run --timeline writes it";
  std::string error;
  for (auto [index, value] : llvm::enumerate(*events)) {
    const json::Object *object = value.getAsObject();
    std::string path = "traceEvents[" + std::to_string(index) + "].";
    if (!object)
      return "field '" + path.substr(0, path.size() - 1) + "': expected an object";
    FieldReader reader(*object, path, error);
    const json::Object *arguments = object->getObject("args");
    if (object->getString("ph") == "M" && object->getString("name") == "process_name" && arguments)
      file.names[reader.integer("pid", 0)] = arguments->getString("name").value_or("").str();
    if (object->getString("ph") == "X" && object->getString("cat") == "collective" && arguments &&
        arguments->get("site")) {
      SpanEvent event;
      event.lane = reader.integer("tid", 0);
      event.begin = reader.time("ts");
      event.end = event.begin + reader.time("dur");
      readArguments(FieldReader(*arguments, path + "args.", error), reader.string("name"), event);
      file.events[reader.integer("pid", 0)].push_back(event);
    }
    if (!error.empty())
      return error;
  }
  return "";
}

/// The calls of each site on one rank, from file `file`. A lane carries out its collectives one after the other.
static std::map<int64_t, SiteCalls> callsOf(std::vector<SpanEvent> events, int64_t file) {
  llvm::stable_sort(events, [](const SpanEvent &a, const SpanEvent &b) { return a.begin < b.begin; });
  std::map<int64_t, SiteCalls> sites;
  std::map<int64_t, Ns> free;
  for (const SpanEvent &event : events) {
    Ns begin = std::max(event.begin, free[event.lane]), offset = event.offset.value_or(0);
    free[event.lane] = std::max(free[event.lane], event.end);
    if (!event.counts)
      continue;
    SiteCalls &site = sites[event.site];
    site.key = event.key;
    site.clock = event.offset && (site.calls.empty() || site.clock >= 0) ? file : -1;
    site.calls.push_back({begin + offset, event.end + offset});
  }
  return sites;
}

/// Whether these are all ranks of one group, on one clock.
static bool shareClock(llvm::ArrayRef<const SiteCalls *> ranks) {
  auto size = static_cast<size_t>(std::get<GroupShape>(ranks.front()->key).ranks);
  return ranks.size() == size && ranks.front()->clock >= 0 &&
         llvm::all_of(ranks, [&](const SiteCalls *rank) { return rank->clock == ranks.front()->clock; });
}

/// The time of one call: from the last begin to the last end, or without a common clock the median of the shortest
/// durations, one for each group that runs it.
static Ns timeOfCall(llvm::ArrayRef<const SiteCalls *> ranks, size_t call) {
  if (shareClock(ranks)) {
    SiteCall whole = ranks.front()->calls[call];
    for (const SiteCalls *rank : ranks.drop_front()) {
      whole.begin = std::max(whole.begin, rank->calls[call].begin);
      whole.end = std::max(whole.end, rank->calls[call].end);
    }
    return whole.duration();
  }
  std::vector<Ns> durations;
  for (const SiteCalls *rank : ranks)
    durations.push_back(rank->calls[call].duration());
  llvm::sort(durations);
  size_t groups = std::max<size_t>(1, ranks.size() / std::get<GroupShape>(ranks.front()->key).ranks);
  return durations[(groups - 1) / 2];
}

/// Adds the times of one site.
static void addSamples(llvm::ArrayRef<const SiteCalls *> ranks, std::vector<Ns> &samples) {
  size_t calls = ranks.front()->calls.size();
  for (const SiteCalls *rank : ranks)
    calls = std::min(calls, rank->calls.size());
  for (size_t call = calls > 1 ? 1 : 0; call < calls; ++call)
    samples.push_back(timeOfCall(ranks, call));
}

llvm::Expected<std::vector<RunPoint>> commsched::readRunTimelines(llvm::ArrayRef<TimelineText> timelines) {
  // Indexed by program, then by site, then by rank. A process's name is that of its program, and ", rank N".
  std::map<std::string, std::map<int64_t, std::vector<SiteCalls>>> programs;
  for (auto [index, timeline] : llvm::enumerate(timelines)) {
    TimelineFile file;
    if (std::string error = readFile(timeline, file); !error.empty())
      return llvm::createStringError("'" + timeline.name + "': " + error);
    for (auto &[process, events] : file.events)
      for (auto &[site, calls] : callsOf(std::move(events), static_cast<int64_t>(index)))
        programs[llvm::StringRef(file.names[process]).rsplit(", rank ").first.str()][site].push_back(std::move(calls));
  }
  std::map<PointKey, std::vector<Ns>> samples;
  for (const auto &[program, sites] : programs)
    for (const auto &[site, ranks] : sites) {
      // Ranks of groups of different shapes are measured apart.
      std::map<PointKey, std::vector<const SiteCalls *>> byKey;
      for (const SiteCalls &rank : ranks)
        byKey[rank.key].push_back(&rank);
      for (const auto &[key, same] : byKey)
        addSamples(same, samples[key]);
    }
  std::vector<RunPoint> points;
  for (const auto &[key, durations] : samples)
    if (!durations.empty())
      points.push_back(
          {std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key), estimateDuration(durations)});
  if (points.empty())
    return llvm::createStringError("'" + (timelines.empty() ? std::string() : timelines.front().name) +
                                   "': expected collectives with sizes, as comm-run --timeline writes them for "
                                   "straight-line programs, got none");
  return points;
}

//===-----------------------------------------------------------------------------------------===//
// Refining
//===-----------------------------------------------------------------------------------------===//

/// The table of the document that answers for a point; null if there is none.
static json::Object *findTable(json::Array &tables, const RunPoint &point) {
  json::Object *any = nullptr;
  for (json::Value &value : tables) {
    json::Object *table = value.getAsObject();
    if (table->get("group") || table->getString("kind") != stringify(point.kind) ||
        table->getInteger("ranks") != point.shape.ranks || table->getInteger("nodes") != point.shape.nodes)
      continue;
    llvm::StringRef element = table->getString("element").value_or("any");
    if (element == stringify(point.element))
      return table;
    if (element == "any" && !any)
      any = table;
  }
  return any;
}

/// Puts a point into the points of a table, which are in ascending order of bytes.
static void insertPoint(json::Array &points, const RunPoint &point) {
  json::Value entry =
      json::Object{{"bytes", point.bytes},   {"ns", point.time.value}, {"lo_ns", point.time.lo},
                   {"hi_ns", point.time.hi}, {"n", point.time.n},      {"rejected", point.time.rejected}};
  auto place = llvm::find_if(points, [&](const json::Value &known) {
    return known.getAsObject()->getInteger("bytes").value_or(0) >= point.bytes;
  });
  if (place == points.end() || place->getAsObject()->getInteger("bytes") != point.bytes)
    points.insert(place, std::move(entry));
  else if (place->getAsObject()->getInteger("n").value_or(0) <= point.time.n)
    *place = std::move(entry);
}

static void addFlag(json::Object &table, llvm::StringRef flag) {
  if (!table.getArray("flags"))
    table["flags"] = json::Array();
  json::Array &flags = *table.getArray("flags");
  if (llvm::none_of(flags, [&](const json::Value &known) { return known.getAsString() == flag; }))
    flags.push_back(flag);
}

llvm::Expected<MachineModel> commsched::refineProfile(const MachineModel &base, llvm::ArrayRef<RunPoint> points,
                                                      llvm::StringRef name, const Validation *validation) {
  llvm::Expected<json::Value> document = json::parse(base.toJSON());
  if (!document)
    return document.takeError();
  json::Object &root = *document->getAsObject();
  if (!root.getArray("collectives"))
    root["collectives"] = json::Array();
  json::Array &tables = *root.getArray("collectives");
  for (const RunPoint &point : points) {
    json::Object *table = findTable(tables, point);
    if (!table) {
      tables.push_back(json::Object{{"kind", stringify(point.kind)},
                                    {"ranks", point.shape.ranks},
                                    {"nodes", point.shape.nodes},
                                    {"element", stringify(point.element)},
                                    {"points", json::Array()}});
      table = tables.back().getAsObject();
    }
    insertPoint(*table->getArray("points"), point);
    if (point.time.isUnstable())
      addFlag(*table, "unstable");
  }
  root["name"] = name;
  if (validation) {
    if (!root.getObject("calibration"))
      root["calibration"] = json::Object();
    (*root.getObject("calibration"))["validation"] = json::Object{{"points", validation->points},
                                                                  {"held_out", validation->heldOut},
                                                                  {"p50_permille", validation->p50Permille},
                                                                  {"p95_permille", validation->p95Permille}};
  }
  std::string text;
  llvm::raw_string_ostream(text) << *document;
  return MachineModel::parse(text, name);
}

//===-----------------------------------------------------------------------------------------===//
// Validation
//===-----------------------------------------------------------------------------------------===//

std::vector<size_t> commsched::chooseHeldOut(const MachineModel &base, llvm::ArrayRef<RunPoint> points) {
  auto isSameCurve = [](const RunPoint &a, const RunPoint &b) {
    return a.kind == b.kind && a.shape == b.shape && a.element == b.element;
  };
  std::vector<size_t> candidates;
  for (size_t index = 0; index < points.size(); ++index) {
    const RunPoint &point = points[index];
    // The points are ordered, so neighbours of a curve are adjacent.
    bool below = index > 0 && isSameCurve(points[index - 1], point);
    bool above = index + 1 < points.size() && isSameCurve(points[index + 1], point);
    for (const CollectiveTable &table : base.collectives)
      if (table.group.empty() && table.kind == point.kind && table.ranks == point.shape.ranks &&
          table.nodes == point.shape.nodes && table.element.value_or(point.element) == point.element) {
        below |= table.points.front().bytes < point.bytes;
        above |= table.points.back().bytes > point.bytes;
      }
    if (below && above)
      candidates.push_back(index);
  }
  size_t count = std::min(candidates.size(), (points.size() + 9) / 10);
  std::vector<size_t> chosen;
  for (size_t k = 0; k < count; ++k)
    chosen.push_back(candidates[(2 * k + 1) * candidates.size() / (2 * count)]);
  return chosen;
}

llvm::Expected<Validation> commsched::validateRefinement(const MachineModel &base, llvm::ArrayRef<RunPoint> points) {
  std::vector<size_t> heldOut = chooseHeldOut(base, points);
  std::vector<RunPoint> rest;
  for (size_t index = 0; index < points.size(); ++index)
    if (!llvm::binary_search(heldOut, index))
      rest.push_back(points[index]);
  llvm::Expected<MachineModel> machine = refineProfile(base, rest, base.name);
  if (!machine)
    return machine.takeError();
  std::vector<int64_t> errors;
  for (size_t index : heldOut) {
    const RunPoint &point = points[index];
    Ns predicted = CollectiveCurve::get(*machine, point.kind, point.shape, point.element)(point.bytes);
    errors.push_back(std::abs(predicted - point.time.value) * 1000 / std::max<Ns>(1, point.time.value));
  }
  llvm::sort(errors);
  Validation result;
  result.points = static_cast<int64_t>(points.size());
  result.heldOut = static_cast<int64_t>(errors.size());
  if (!errors.empty()) {
    result.p50Permille = errors[errors.size() / 2];
    result.p95Permille = errors[errors.size() * 95 / 100];
  }
  return result;
}
