//===- MeasuredTimeline.cpp - Measured and predicted timeline in one trace --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The runtime records begin and end of each collective, wait and computation. The analysis predicts the same times.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/MeasuredTimeline.h"
#include "CommSched/Support/OutputFile.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"

using namespace llvm;
using namespace commsched;

static constexpr int32_t waitRecord = 100, computeRecord = 101, markRecord = 102;
static constexpr int64_t computeLane = 0;

/// Nanoseconds as microseconds, the unit of the format.
static double toMicroseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

static json::Object metadata(StringRef what, int64_t process, int64_t lane, StringRef name) {
  return json::Object{
      {"ph", "M"}, {"pid", process}, {"tid", lane}, {"name", what}, {"args", json::Object{{"name", name.str()}}}};
}

static json::Object span(int64_t process, int64_t lane, StringRef name, StringRef category, int64_t begin,
                         int64_t end) {
  return json::Object{{"ph", "X"},          {"pid", process},
                      {"tid", lane},        {"ts", toMicroseconds(begin)},
                      {"name", name.str()}, {"dur", toMicroseconds(end - begin)},
                      {"cat", category}};
}

/// Adds an arrow. The number of events so far is a name that no other arrow of the trace has.
static void addArrow(int64_t process, const WaitArrow &arrow, json::Array &events) {
  const int64_t id = static_cast<int64_t>(events.size());
  for (bool isEnd : {false, true}) {
    const ArrowEnd &at = isEnd ? arrow.wait : arrow.start;
    json::Object event{
        {"ph", isEnd ? "f" : "s"}, {"pid", process}, {"tid", at.row}, {"ts", toMicroseconds(at.when)}, {"id", id},
        {"name", "wait"},          {"cat", "wait"}};
    if (isEnd)
      event["bp"] = "e";
    events.push_back(std::move(event));
  }
}

namespace {

/// The collectives and waits of a run by their sites, for the arrows between them. A site runs once per iteration of
/// its loop, so a wait belongs to the last collective that began before the wait ended.
class ArrowFinder {
public:
  void addCollective(int64_t site, ArrowEnd begin) { begins[site].push_back(begin); }
  void addWait(int64_t site, ArrowEnd end) { waits.emplace_back(site, end); }

  void addArrows(int64_t process, json::Array &events) {
    for (auto &[site, list] : begins)
      llvm::sort(list, [](const ArrowEnd &a, const ArrowEnd &b) { return a.when < b.when; });
    for (const auto &[site, end] : waits) {
      std::vector<ArrowEnd> &list = begins[site];
      auto later = llvm::upper_bound(list, end.when, [](Ns when, const ArrowEnd &a) { return when < a.when; });
      if (later != list.begin())
        addArrow(process, {*std::prev(later), end}, events);
    }
  }

private:
  llvm::DenseMap<int64_t, std::vector<ArrowEnd>> begins;
  std::vector<std::pair<int64_t, ArrowEnd>> waits;
};

} // namespace

/// What a collective moves, for those that refine a profile by the run (RunTimeline.h). A size that only the run time
/// knows is left out.
static void addMoved(const CollectiveRow &row, json::Object &arguments) {
  arguments["ranks"] = row.shape.ranks;
  arguments["nodes"] = row.shape.nodes;
  arguments["ranks_per_node"] = row.shape.ranksPerNode;
  arguments["element"] = stringify(row.element);
  if (row.bytes > 0 || row.kind == CollectiveKind::Barrier)
    arguments["bytes"] = row.bytes;
  if (row.parts > 1)
    arguments["parts"] = row.parts;
  if (row.isOneShot)
    arguments["one_shot"] = true;
}

void commsched::addMeasured(const MeasuredRun &run, int64_t process, const std::optional<BlockSnapshot> &predicted,
                            json::Array &events) {
  std::vector<std::pair<commrt_trace_record, std::optional<int64_t>>> records;
  int64_t sites = 0;
  for (int64_t i = 0, n = commrt_trace_size(run.context); i < n; ++i) {
    commrt_trace_record record;
    if (commrt_trace_get(run.context, i, &record) != COMMRT_OK || record.begin_ns < run.begin ||
        record.begin_ns > run.end || record.kind == markRecord)
      continue;
    int64_t last = 0;
    bool isKnown = commrt_trace_last_begin(run.context, i, &last) == COMMRT_OK;
    records.emplace_back(record, isKnown ? std::optional(last) : std::nullopt);
    sites = std::max(sites, record.site + 1);
  }
  events.push_back(metadata("process_name", process, computeLane, run.name));
  events.push_back(metadata("thread_name", process, computeLane, "compute"));
  bool isStraight = predicted && static_cast<int64_t>(predicted->rows.size()) == sites;
  StringMap<int64_t> lanes;
  ArrowFinder arrows;
  for (const auto &[record, last] : records) {
    bool isWait = record.kind == waitRecord, isCompute = record.kind == computeRecord;
    int64_t lane = computeLane;
    if (!isWait && !isCompute) {
      auto [found, isNew] = lanes.try_emplace(record.name, lanes.size() + 1);
      lane = found->second;
      if (isNew)
        events.push_back(metadata("thread_name", process, lane, ("@" + StringRef(record.name)).str()));
    }
    json::Object event = span(process, lane,
                              isWait      ? "wait"
                              : isCompute ? record.name
                                          : commrt_kind_name(record.kind),
                              isWait      ? "exposed"
                              : isCompute ? "compute"
                                          : "collective",
                              record.begin_ns - run.origin, record.end_ns - run.origin);
    if (!isCompute && record.site >= 0) {
      const LaneId row = static_cast<LaneId>(lane);
      if (isWait) // A moment before the end is inside of the rectangle.
        arrows.addWait(record.site, {row, std::max(record.begin_ns, record.end_ns - 1) - run.origin});
      else
        arrows.addCollective(record.site, {row, record.begin_ns - run.origin});
      json::Object arguments{{"site", record.site}};
      if (last)
        arguments["after_last_us"] = toMicroseconds(record.end_ns - *last);
      if (isStraight) {
        const CollectiveRow &row = predicted->rows[record.site];
        arguments["location"] = join(row.locations, ", ");
        arguments["predicted_us"] = toMicroseconds(isWait ? row.exposed : row.cost);
        if (!isWait) {
          addMoved(row, arguments);
          // The ranks of one file share a clock; `ts` counts from the beginning of each rank's run.
          arguments["clock_ns"] = record.begin_ns;
        }
      }
      event["args"] = std::move(arguments);
    }
    events.push_back(std::move(event));
  }
  arrows.addArrows(process, events);
}

void commsched::addPredicted(StringRef name, int64_t process, const BlockSnapshot &predicted, json::Array &events) {
  events.push_back(metadata("process_name", process, computeLane, name));
  for (auto [lane, laneName] : enumerate(predicted.lanes))
    events.push_back(metadata("thread_name", process, lane, laneName));
  for (const TimelineSpan &entry : predicted.spans)
    events.push_back(span(process, entry.lane, entry.name,
                          entry.stall                  ? "exposed"
                          : entry.lane == kComputeLane ? "compute"
                                                       : "collective",
                          entry.start, entry.end));
  for (const WaitArrow &arrow : arrowsOf(predicted))
    addArrow(process, arrow, events);
  for (auto [when, bytes] : predicted.memory)
    events.push_back(json::Object{{"ph", "C"},
                                  {"pid", process},
                                  {"ts", toMicroseconds(when)},
                                  {"name", "live bytes"},
                                  {"args", json::Object{{"bytes", bytes}}}});
}

Error commsched::writeTrace(StringRef path, json::Array events) {
  return writeWhole(path, [&](raw_ostream &os) {
    os << json::Value(json::Object{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) << "\n";
    return Error::success();
  });
}
