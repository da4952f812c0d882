//===- ReportTrace.cpp - The report as a trace and as a page ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;
using namespace commsched;

//===-----------------------------------------------------------------------------------------===//
// Chrome trace
//===-----------------------------------------------------------------------------------------===//

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

//===-----------------------------------------------------------------------------------------===//
// HTML
//===-----------------------------------------------------------------------------------------===//

/// Geometry of the page, in pixels.
static constexpr int kWidth = 1200, kLaneHeight = 26, kMemoryHeight = 90, kLabelWidth = 110;

static std::string escape(StringRef text) {
  std::string result;
  raw_string_ostream os(result);
  printHTMLEscaped(text, os);
  return result;
}

namespace {

/// Draws one snapshot; before and after share the scales.
class SvgWriter {
public:
  SvgWriter(raw_ostream &os, Ns endOfTime, Bytes mostBytes, Bytes limit)
      : os(os), end(std::max<Ns>(endOfTime, 1)), most(std::max<Bytes>(mostBytes, 1)), limit(limit) {}

  void draw(const BlockSnapshot &snapshot) {
    drawn = &snapshot;
    int lanesHeight = static_cast<int>(snapshot.lanes.size()) * (kLaneHeight + 4);
    os << formatv("<svg viewBox='0 0 {0} {1}' width='100%'>\n", kLabelWidth + kWidth, lanesHeight + kMemoryHeight + 8);
    for (auto [lane, name] : enumerate(snapshot.lanes))
      os << formatv("<text x='0' y='{0}'>{1}</text>\n", lane * (kLaneHeight + 4) + 17, escape(name));
    drawSpans(snapshot);
    drawMemory(snapshot, lanesHeight + 4);
    os << "</svg>\n";
  }

private:
  double x(Ns when) const { return kLabelWidth + static_cast<double>(when) / static_cast<double>(end) * kWidth; }

  /// Neighbours of one colour that are narrower than a pixel become one rectangle: the page stays small.
  void drawSpans(const BlockSnapshot &snapshot) {
    std::vector<TimelineSpan> spans = snapshot.spans;
    stable_sort(spans, [](const TimelineSpan &a, const TimelineSpan &b) {
      return std::tie(a.lane, a.start) < std::tie(b.lane, b.start);
    });
    for (size_t first = 0; first < spans.size();) {
      size_t last = first + 1;
      Ns spanEnd = spans[first].end;
      while (last < spans.size() && spans[last].lane == spans[first].lane && spans[last].stall == spans[first].stall &&
             x(spans[last].start) - x(spanEnd) < 0.3 && x(spans[last].end) - x(spans[first].start) < 1) {
        spanEnd = std::max(spanEnd, spans[last].end);
        ++last;
      }
      drawSpan(spans[first], spanEnd, last - first);
      first = last;
    }
  }

  void drawSpan(const TimelineSpan &span, Ns spanEnd, size_t count) {
    StringRef kind = span.stall ? "stall" : isCompute(*drawn, span) ? "compute" : "comm";
    std::string label = count > 1 ? formatv("{0} and {1} more", span.name, count - 1).str() : span.name;
    std::string reason = count > 1 || span.reason.empty() ? "" : "; " + span.reason;
    os << formatv(
        "<rect class='{0}' x='{1:f2}' y='{2}' width='{3:f2}' height='{4}'><title>{5}: {6} to {7}{8}</title></rect>\n",
        kind, x(span.start), span.lane * (kLaneHeight + 4), std::max(0.4, x(spanEnd) - x(span.start)), kLaneHeight,
        escape(label), formatNs(span.start), formatNs(spanEnd), escape(reason));
  }

  void drawMemory(const BlockSnapshot &snapshot, int top) {
    auto y = [&](Bytes bytes) {
      return top + kMemoryHeight - static_cast<double>(bytes) / static_cast<double>(most) * kMemoryHeight;
    };
    os << formatv("<text x='0' y='{0}'>memory</text>\n<polyline class='memory' points='", top + 17);
    Bytes level = 0;
    for (size_t first = 0, last = 0; first < snapshot.memory.size(); first = last) {
      // What happens within half a pixel is one jump, by way of its highest point.
      double at = x(snapshot.memory[first].first);
      Bytes highest = 0, before = level;
      for (; last < snapshot.memory.size() && x(snapshot.memory[last].first) - at < 0.5; ++last)
        highest = std::max(highest, level = snapshot.memory[last].second);
      for (Bytes bytes : {before, highest, level})
        os << formatv("{0:f1},{1:f1} ", at, y(bytes));
    }
    os << formatv("{0:f1},{1:f1}", x(snapshot.makespan), y(level));
    os << "'/>\n";
    os << formatv("<line class='limit' x1='{0}' x2='{1}' y1='{2:f1}' y2='{2:f1}'/>\n", kLabelWidth,
                  kLabelWidth + kWidth, y(limit));
  }

  raw_ostream &os;
  Ns end;
  Bytes most, limit;
  const BlockSnapshot *drawn = nullptr;
};

} // namespace

static void writeBlock(const BlockReport &block, raw_ostream &os) {
  const BlockSnapshot &before = block.before, &after = block.after;
  Bytes most = std::max({before.peak, after.peak, block.limit});
  SvgWriter svg(os, std::max(before.makespan, after.makespan), most, block.limit);
  os << "<h2>" << escape(block.name) << "</h2>\n";
  for (auto [title, snapshot] : {std::pair("before", &before), std::pair("after", &after)}) {
    os << formatv("<h3>{0}: {1}, {2} of it exposed, peak {3}</h3>\n", title, formatNs(snapshot->makespan),
                  formatNs(snapshot->exposed), formatBytes(snapshot->peak));
    svg.draw(*snapshot);
  }
  os << formatv("<p>No schedule is faster than {0} ({1}). Memory limit {2}.</p>\n", formatNs(before.jointBound),
                escape(before.jointBoundBy), formatBytes(block.limit));
}

void commsched::writeHtml(const Report &report, raw_ostream &os) {
  os << "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>CommSched timeline</title>\n<style>\n"
        "body{font:14px system-ui,sans-serif;margin:24px auto;max-width:1340px;color:#222}\n"
        "h2{margin:28px 0 0}h3{font-weight:500;margin:14px 0 4px}svg text{font-size:12px;fill:#444}\n"
        ".compute{fill:#4c78a8}.comm{fill:#f58518}.stall{fill:#e45756}\n"
        ".memory{fill:none;stroke:#54a24b;stroke-width:1.2}.limit{stroke:#888;stroke-dasharray:5 4}\n"
        ".key span{display:inline-block;width:12px;height:12px;margin:0 4px 0 14px}\n</style></head><body>\n"
        "<h1>Timeline</h1>\n<p class='key'>machine "
     << escape(report.machine)
     << "<span style='background:#4c78a8'></span>compute<span style='background:#f58518'></span>collective"
        "<span style='background:#e45756'></span>exposed: compute waits"
        "<span style='background:#54a24b'></span>live bytes, limit dashed</p>\n";
  for (const BlockReport &block : report.blocks)
    writeBlock(block, os);
  os << "</body></html>\n";
}
