//===- Trace.cpp - Times of operations from the profilers of frameworks -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chooses the reader of each file, brings the ranks together, and writes the profile.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Calibration/Trace.h"
#include "TraceReader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace commsched;

namespace json = llvm::json;

//===-----------------------------------------------------------------------------------------===//
// Ranks
//===-----------------------------------------------------------------------------------------===//

/// "all_gather of 1024 bytes on ranks 0 1".
static std::string describe(const TracedCollective &collective) {
  std::string text = (stringify(collective.kind) + " of " + llvm::Twine(collective.bytes) + " bytes on ranks").str();
  for (int64_t rank : collective.ranks)
    text += " " + std::to_string(rank);
  return text;
}

/// Returns true if the trace is of a member of the collective's group.
static bool isMember(const TracedRank &trace, const TracedCollective &collective) {
  return trace.rank && llvm::is_contained(collective.ranks, *trace.rank);
}

/// Checks that there is one trace of each rank, and that ranks of one group ran the same collectives.
static std::string compareRanks(llvm::ArrayRef<TracedRank> ranks) {
  std::map<int64_t, const TracedRank *> byRank;
  for (const TracedRank &trace : ranks)
    if (trace.rank)
      if (auto [known, isNew] = byRank.try_emplace(*trace.rank, &trace); !isNew)
        return "'" + trace.file + "': it is of rank " + std::to_string(*trace.rank) + ", as '" + known->second->file +
               "' is";
  for (const TracedRank &trace : ranks)
    for (const auto &[collective, durations] : trace.calls)
      for (const TracedRank &other : ranks) {
        if (!isMember(trace, collective) || !isMember(other, collective))
          continue;
        auto found = other.calls.find(collective);
        size_t count = found == other.calls.end() ? 0 : found->second.size();
        if (count != durations.size())
          return "'" + other.file + "': expected the collectives of '" + trace.file + "', which has " +
                 std::to_string(durations.size()) + " of " + describe(collective) + ", got " + std::to_string(count);
      }
  return "";
}

/// The time of each call: that of the rank that waits least for the others.
static void addPoint(const TracedCollective &collective, llvm::ArrayRef<const std::vector<Ns> *> ranks,
                     std::vector<Ns> &samples) {
  for (size_t call = 0; call < ranks.front()->size(); ++call) {
    Ns least = ranks.front()->at(call);
    for (const std::vector<Ns> *rank : ranks)
      least = std::min(least, rank->at(call));
    samples.push_back(least);
  }
}

llvm::Expected<TraceTimes> TraceSamples::finish(int64_t ranksPerNode) {
  if (std::string error = compareRanks(ranks); !error.empty())
    return llvm::createStringError(error);
  TraceTimes times;
  times.devices.assign(devices.begin(), devices.end());
  times.hasCompiledGraphs = hasCompiledGraphs;
  for (const auto &[key, op] : ops)
    times.ops.push_back({key.first, key.second, estimateDuration(op.first), op.second});
  std::map<TracedCollective, std::vector<const std::vector<Ns> *>> calls;
  for (const TracedRank &trace : ranks)
    for (const auto &[collective, durations] : trace.calls)
      calls[collective].push_back(&durations);
  using PointKey = std::tuple<CollectiveKind, GroupShape, ElementType, Bytes>;
  std::map<PointKey, std::vector<Ns>> points;
  for (const auto &[collective, durations] : calls)
    if (collective.ranks.size() > 1)
      addPoint(collective, durations,
               points[{collective.kind, shapeOfRanks(collective.ranks, ranksPerNode), collective.element,
                       collective.bytes}]);
  for (const auto &[key, durations] : points)
    times.points.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key), estimateDuration(durations)});
  for (const auto &[key, events] : unmatched)
    times.unmatched.push_back(events);
  llvm::stable_sort(times.unmatched,
                    [](const UnmatchedEvents &a, const UnmatchedEvents &b) { return a.time > b.time; });
  return times;
}

//===-----------------------------------------------------------------------------------------===//
// Files
//===-----------------------------------------------------------------------------------------===//

namespace {
using ReadFunction = std::string (*)(const TimelineText &, TraceSamples &);
/// A writer of traces, and who reads them.
struct Writer {
  llvm::StringLiteral name;
  ReadFunction read;
};
} // namespace

static constexpr Writer kKineto = {"Kineto", readKineto}, kPgle = {"PGLE", readPgle},
                        kXlaLog = {"XLA's estimates", readXlaLog};

/// Finds out by the first bytes who wrote a trace. The error says what to do with other files.
static llvm::Expected<const Writer *> findWriter(const TimelineText &trace) {
  llvm::StringRef text = llvm::StringRef(trace.text).ltrim();
  auto refuse = [&](const llvm::Twine &why) { return llvm::createStringError("'" + trace.name + "': " + why); };
  if (text.starts_with("\x1f\x8b"))
    return refuse("it is compressed; unpack it first, for example with gunzip");
  if (text.starts_with("SQLite format 3"))
    return refuse("it is a database; 'python -m commsched.nsys' makes a trace of an export of nsys");
  if (text.starts_with("{"))
    return &kKineto;
  if (isPgle(trace.text))
    return &kPgle;
  if (text.contains("NodeCost: ") || text.contains("calculated cost for: ") ||
      text.contains("Computed collective time for "))
    return &kXlaLog;
  return refuse("expected a trace of torch.profiler, a profile of XLA (PGLE), or a log with XLA's estimates");
}

llvm::Expected<TraceTimes> commsched::readTraces(llvm::ArrayRef<TimelineText> traces, int64_t ranksPerNode) {
  TraceSamples samples;
  const Writer *writer = nullptr;
  for (const TimelineText &trace : traces) {
    llvm::Expected<const Writer *> found = findWriter(trace);
    if (!found)
      return found.takeError();
    if (writer && *found != writer)
      return llvm::createStringError("'" + trace.name + "': expected " + writer->name + " as in '" +
                                     traces.front().name + "', got " + (*found)->name);
    writer = *found;
    if (std::string error = writer->read(trace, samples); !error.empty())
      return llvm::createStringError("'" + trace.name + "': " + error);
  }
  llvm::Expected<TraceTimes> times = samples.finish(ranksPerNode);
  if (!times)
    return times.takeError();
  if (times->ops.empty() && times->points.empty())
    return llvm::createStringError(
        "'" + (traces.empty() ? std::string() : traces.front().name) +
        "': expected operators with operands, or collectives, got none with a time" +
        (times->unmatched.empty() ? std::string()
                                  : "; '" + times->unmatched.front().name + "': " + times->unmatched.front().why));
  times->writer = writer->name.str();
  return times;
}

//===-----------------------------------------------------------------------------------------===//
// The machine
//===-----------------------------------------------------------------------------------------===//

/// The name of the shipped profile of the machine on which traces were recorded.
static llvm::Expected<std::string> profileOf(const TraceTimes &times, llvm::StringRef file) {
  if (times.areInstructions())
    return llvm::createStringError("'" + file + "': expected the name of a base profile, since " + times.writer +
                                   " does not name the device");
  if (times.devices.empty())
    return "cpu-mpi";
  std::set<std::string> names;
  for (llvm::StringRef device : times.devices)
    for (auto [part, profile] : {std::pair("A100", "a100-sxm"), std::pair("H100", "h100-sxm"),
                                 std::pair("H200", "h200-sxm"), std::pair("B200", "b200-sxm")})
      if (device.contains(part))
        names.insert(profile);
  if (names.size() == 1)
    return *names.begin();
  return llvm::createStringError("'" + file + "': expected the name of a base profile, since there is none for '" +
                                 llvm::join(times.devices, "', '") + "'");
}

llvm::Expected<TracedMachine> commsched::loadTraces(llvm::ArrayRef<std::string> paths, llvm::StringRef base) {
  std::vector<TimelineText> traces;
  for (const std::string &path : paths) {
    llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> buffer = llvm::MemoryBuffer::getFile(path);
    if (!buffer)
      return llvm::createStringError("'" + path + "': " + buffer.getError().message());
    traces.push_back({path, (*buffer)->getBuffer().str()});
  }
  // Of a node of the shipped profiles.
  constexpr int64_t usualRanks = 8;
  llvm::Expected<TraceTimes> times = readTraces(traces, usualRanks);
  if (!times)
    return times.takeError();
  std::string name = base.str();
  if (name.empty()) {
    llvm::Expected<std::string> found = profileOf(*times, traces.front().name);
    if (!found)
      return found.takeError();
    name = *found;
  }
  llvm::Expected<MachineModel> machine = MachineModel::load(name);
  if (!machine)
    return machine.takeError();
  if (machine->ranksPerNode != usualRanks) {
    times = readTraces(traces, machine->ranksPerNode);
    if (!times)
      return times.takeError();
  }
  return TracedMachine{std::move(*machine), std::move(*times)};
}

//===-----------------------------------------------------------------------------------------===//
// The profile
//===-----------------------------------------------------------------------------------------===//

/// What tells entries of `ops` apart.
static std::string keyOf(const json::Object &entry) {
  std::string key = entry.getString("name").value_or("").str() + "\n" + entry.getString("form").value_or("").str();
  if (const json::Array *shapes = entry.getArray("shapes"))
    for (const json::Value &shape : *shapes)
      key += "\n" + shape.getAsString().value_or("").str();
  return key;
}

static json::Object toJSON(const TracedOp &op) {
  json::Object entry{
      {"name", op.name}, {"ns", op.time.value}, {"lo_ns", op.time.lo}, {"hi_ns", op.time.hi}, {"n", op.time.n}};
  if (!op.shapes.empty())
    entry["shapes"] = json::Array(op.shapes);
  return entry;
}

/// What was read, and what was not matched.
static json::Object describe(const TraceTimes &times) {
  json::Array unmatched;
  for (const UnmatchedEvents &events : times.unmatched)
    unmatched.push_back(
        json::Object{{"name", events.name}, {"why", events.why}, {"calls", events.calls}, {"ns", events.time}});
  return json::Object{{"writer", times.writer},
                      {"operations", static_cast<int64_t>(times.ops.size())},
                      {"collectives", static_cast<int64_t>(times.points.size())},
                      {"compiled_graphs", times.hasCompiledGraphs},
                      {"unmatched", std::move(unmatched)}};
}

llvm::Expected<MachineModel> commsched::addTrace(const MachineModel &base, const TraceTimes &times,
                                                 llvm::StringRef name) {
  llvm::Expected<MachineModel> refined = refineProfile(base, times.points, name);
  if (!refined)
    return refined.takeError();
  llvm::Expected<json::Value> document = json::parse(refined->toJSON());
  if (!document)
    return document.takeError();
  json::Object &root = *document->getAsObject();
  json::Array all;
  std::set<std::string> keys;
  for (const TracedOp &op : times.ops) {
    json::Object entry = toJSON(op);
    keys.insert(keyOf(entry));
    all.push_back(std::move(entry));
  }
  if (const json::Array *old = root.getArray("ops"))
    for (const json::Value &entry : *old)
      if (!keys.count(keyOf(*entry.getAsObject())))
        all.push_back(entry);
  if (!all.empty())
    root["ops"] = std::move(all);
  if (!root.getObject("calibration"))
    root["calibration"] = json::Object();
  (*root.getObject("calibration"))["trace"] = describe(times);
  std::string text;
  llvm::raw_string_ostream(text) << *document;
  return MachineModel::parse(text, name);
}
