//===- ReportTrace.cpp - The report as a trace ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Chrome's trace-event format. TimelinePage.cpp writes the same facts as a page.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;

/// Returns true for spans of the compute lane and of streams, whose rows are those after the lanes.
static bool isCompute(const BlockSnapshot &snapshot, const TimelineSpan &span) {
  return span.lane == kComputeLane || span.lane >= static_cast<LaneId>(snapshot.laneLoads.size());
}

/// Nanoseconds as the format's microseconds, exactly.
static json::Value toMicroseconds(Ns ns) { return static_cast<double>(ns) / 1000; }

/// Where the arrow to each wait ends. Indexed by operation; none of operations that are no wait. An exposed wait has a
/// rectangle, and the arrow ends where compute goes on; any other wait takes no time, so its arrow ends at the next
/// computation of its stream, if there is one. O(operations + spans).
static std::vector<std::optional<ArrowEnd>> arrowEnds(const BlockSnapshot &snapshot) {
  ArrayRef<TimelineOperation> operations = snapshot.details.operations;
  std::vector<std::optional<ArrowEnd>> ends(operations.size());
  // Indexed by stream: the next computation.
  std::vector<std::optional<ArrowEnd>> next(std::max<size_t>(snapshot.streams.size(), 1));
  ArrayRef<TimelineSpan> later = snapshot.spans;
  for (NodeId id = static_cast<NodeId>(operations.size()) - 1; id >= 0; --id) {
    const TimelineSpan *stall = nullptr;
    for (; !later.empty() && later.back().operation == id; later = later.drop_back()) {
      if (later.back().stall)
        stall = &later.back();
      else if (isCompute(snapshot, later.back()))
        next[operations[id].stream] = {later.back().lane, later.back().start};
    }
    // A moment before the end is inside of the rectangle, and not before the collective.
    if (operations[id].awaited != kNone)
      ends[id] = stall ? ArrowEnd{stall->lane, stall->end - 1} : next[operations[id].stream];
  }
  return ends;
}

std::vector<WaitArrow> commsched::arrowsOf(const BlockSnapshot &snapshot) {
  // Indexed by operation: its first rectangle.
  std::vector<const TimelineSpan *> spans(snapshot.details.operations.size(), nullptr);
  for (const TimelineSpan &span : reverse(snapshot.spans))
    spans[span.operation] = &span;
  std::vector<std::optional<ArrowEnd>> ends = arrowEnds(snapshot);
  std::vector<WaitArrow> arrows;
  for (auto [wait, operation] : enumerate(snapshot.details.operations))
    if (const TimelineSpan *start = operation.awaited == kNone ? nullptr : spans[operation.awaited];
        start && ends[wait])
      arrows.push_back({{start->lane, start->start}, *ends[wait]});
  return arrows;
}

/// Writes the arrows of a process. `id` is that of the next arrow of the trace.
static void writeArrows(json::OStream &json, int64_t pid, const BlockSnapshot &snapshot, int64_t &id) {
  for (const WaitArrow &arrow : arrowsOf(snapshot)) {
    auto end = [&](StringRef phase, const ArrowEnd &at) {
      json.object([&] {
        json.attribute("ph", phase);
        json.attribute("pid", pid);
        json.attribute("tid", at.row);
        json.attribute("ts", toMicroseconds(at.when));
        json.attribute("id", id);
        json.attribute("name", "wait");
        json.attribute("cat", "wait");
        if (phase == "f")
          json.attribute("bp", "e");
      });
    };
    end("s", arrow.start);
    end("f", arrow.wait);
    ++id;
  }
}

static void writeProcess(json::OStream &json, int64_t pid, const std::string &name, const BlockSnapshot &snapshot,
                         int64_t &arrow) {
  auto metadata = [&](StringRef what, int64_t tid, StringRef value) {
    json.object([&] {
      json.attribute("ph", "M");
      json.attribute("pid", pid);
      json.attribute("tid", tid);
      json.attribute("name", what);
      json.attributeObject("args", [&] { json.attribute("name", value); });
    });
  };
  metadata("process_name", 0, name);
  for (auto [lane, laneName] : enumerate(snapshot.lanes))
    metadata("thread_name", lane, laneName);
  for (const TimelineSpan &span : snapshot.spans)
    json.object([&] {
      json.attribute("ph", "X");
      json.attribute("pid", pid);
      json.attribute("tid", span.lane);
      json.attribute("ts", toMicroseconds(span.start));
      json.attribute("dur", toMicroseconds(span.end - span.start));
      json.attribute("name", span.name);
      json.attribute("cat", span.stall ? "exposed" : isCompute(snapshot, span) ? "compute" : "collective");
      if (!span.reason.empty())
        json.attributeObject("args", [&] { json.attribute("limiting_factor", span.reason); });
    });
  writeArrows(json, pid, snapshot, arrow);
  for (const std::pair<Ns, Bytes> &point : snapshot.memory)
    json.object([&] {
      json.attribute("ph", "C");
      json.attribute("pid", pid);
      json.attribute("ts", toMicroseconds(point.first));
      json.attribute("name", "live bytes");
      json.attributeObject("args", [&] { json.attribute("bytes", point.second); });
    });
  for (const ResourceUse &use : snapshot.contention ? snapshot.contention->uses : std::vector<ResourceUse>())
    json.object([&] {
      json.attribute("ph", "C");
      json.attribute("pid", pid);
      json.attribute("ts", toMicroseconds(use.begin));
      json.attribute("name", "resources in use, percent");
      json.attributeObject("args", [&] {
        for (unsigned resource = 0; resource < kNumResources; ++resource)
          if (snapshot.contention->average[resource] > 0)
            json.attribute(stringify(static_cast<Resource>(resource)), use.share[resource] / 1e4);
      });
    });
}

void commsched::writeTrace(const Report &report, raw_ostream &os) {
  json::OStream json(os);
  json.object([&] {
    json.attribute("displayTimeUnit", "ms");
    json.attributeArray("traceEvents", [&] {
      int64_t pid = 0, arrow = 0;
      for (const BlockReport &block : report.blocks) {
        writeProcess(json, pid++, block.name + " before", block.before, arrow);
        writeProcess(json, pid++, block.name + " after", block.after, arrow);
      }
    });
  });
  os << "\n";
}
