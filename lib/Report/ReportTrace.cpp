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

static void writeProcess(json::OStream &json, int64_t pid, const std::string &name, const BlockSnapshot &snapshot) {
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
      int64_t pid = 0;
      for (const BlockReport &block : report.blocks) {
        writeProcess(json, pid++, block.name + " before", block.before);
        writeProcess(json, pid++, block.name + " after", block.after);
      }
    });
  });
  os << "\n";
}
