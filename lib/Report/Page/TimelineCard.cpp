//===- TimelineCard.cpp - The timeline as a picture -------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// One block as SVG, of the size of the pictures that pages show beside a link. The colours follow the reader's choice
// of a light or a dark page.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "Markup.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <map>

using namespace llvm;
using namespace commsched;

namespace {

/// Geometry in pixels: the picture, the room around the panels, and the parts of a panel.
constexpr double kCardWidth = 1200, kCardHeight = 630, kCardLeft = 180, kCardRight = 36, kCardTop = 128,
                 kCardBottom = 596;
constexpr double kCardHeading = 30, kCardCurve = 50, kCardGap = 5, kHighestCardLane = 36, kCardPanelGap = 18;
/// At most this many lanes have a row, those that work most.
constexpr size_t kMostCardLanes = 6;
/// Two bars with less than this distance, in pixels, are drawn as one.
constexpr double kSameBar = 0.1;

constexpr StringLiteral kCardStyle =
    "text{font:17px Helvetica,Arial,sans-serif;fill:#24292f}.title{font-size:30px;font-weight:bold}\n"
    ".head{font-weight:bold}.lane{text-anchor:end}.ground{fill:#fff}.rule{stroke:#d0d7de}\n"
    ".compute{fill:#3b6ea5}.exposed{fill:#d9534f}.collective{fill:#e8a33d}.memory{fill:#9aa5b1}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}.rule{stroke:#30363d}\n"
    ".compute{fill:#5b95d6}.memory{fill:#6e7781}}\n";

void writeText(raw_ostream &os, StringRef kind, double x, double y, const Twine &words) {
  os << formatv("<text class='{0}' x='{1:f1}' y='{2:f1}'>{3}</text>\n", kind, x, y, escapeMarkup(words.str()));
}

/// The lanes and streams that have a row, in their order.
SmallVector<LaneId> lanesToDraw(const BlockSnapshot &snapshot) {
  std::map<LaneId, Ns> work;
  for (const TimelineSpan &span : snapshot.spans)
    work[span.lane] += span.end - span.start;
  SmallVector<LaneId> lanes(make_first_range(work));
  // Compute stays, whatever it works.
  sort(lanes, [&](LaneId a, LaneId b) {
    return std::tuple(a != kComputeLane, -work[a], a) < std::tuple(b != kComputeLane, -work[b], b);
  });
  if (lanes.size() > kMostCardLanes)
    lanes.truncate(kMostCardLanes);
  sort(lanes);
  return lanes;
}

/// One order of a block, with its upper edge at `top`.
class CardPanel {
public:
  /// `longest` and `most`: the makespan and the peak that fill the panel, ns and bytes, both above 0.
  CardPanel(const BlockSnapshot &snapshot, double top, double height, Ns longest, Bytes most, raw_ostream &os)
      : snapshot(snapshot), os(os), top(top), bottom(top + height), most(static_cast<double>(most)),
        scale((kCardWidth - kCardLeft - kCardRight) / static_cast<double>(longest)) {}

  void write(StringRef when) {
    writeText(os, "head", kCardLeft, top + 20,
              when + ": " + formatNs(snapshot.makespan) + ", peak " + formatBytes(snapshot.peak));
    const SmallVector<LaneId> lanes = lanesToDraw(snapshot);
    const double room = bottom - top - kCardHeading - kCardCurve - kCardGap;
    const double height =
        std::min(kHighestCardLane, room / static_cast<double>(std::max<size_t>(lanes.size(), 1)) - kCardGap);
    double y = top + kCardHeading;
    for (LaneId lane : lanes) {
      if (static_cast<size_t>(lane) < snapshot.lanes.size())
        writeText(os, "lane", kCardLeft - 12, y + height / 2 + 6, snapshot.lanes[lane]);
      writeBars(lane, y, height);
      y += height + kCardGap;
    }
    writeText(os, "lane", kCardLeft - 12, y + kCardCurve / 2 + 6, "live memory");
    writeMemory(y);
    os << formatv("<path class='rule' d='M{0} {1:f1}H{2}'/>\n", kCardLeft, y + kCardCurve, kCardWidth - kCardRight);
  }

private:
  double at(Ns time) const { return kCardLeft + static_cast<double>(time) * scale; }

  StringRef kindOf(const TimelineSpan &span) const {
    const bool isCompute = span.lane == kComputeLane || span.lane >= static_cast<LaneId>(snapshot.laneLoads.size());
    return span.stall ? "exposed" : isCompute ? "compute" : "collective";
  }

  /// The bars of a lane: one path of each kind.
  void writeBars(LaneId lane, double y, double height) {
    std::map<StringRef, std::vector<std::pair<double, double>>> bars;
    for (const TimelineSpan &span : snapshot.spans)
      if (span.lane == lane && span.end > span.start)
        bars[kindOf(span)].push_back({at(span.start), at(span.end)});
    for (auto &[kind, intervals] : bars) {
      sort(intervals);
      os << "<path class='" << kind << "' d='";
      for (size_t first = 0; first < intervals.size();) {
        auto [begin, end] = intervals[first++];
        for (; first < intervals.size() && intervals[first].first < end + kSameBar; ++first)
          end = std::max(end, intervals[first].second);
        const double width = std::max(end - begin, kSameBar);
        os << formatv("M{0:f2} {1:f1}h{2:f2}v{3:f1}h{4:f2}z", begin, y, width, height, -width);
      }
      os << "'/>\n";
    }
  }

  /// The live bytes as an area: of all moments in one pixel, the most.
  void writeMemory(double y) {
    std::map<int, Bytes> columns;
    for (auto [time, live] : snapshot.memory) {
      Bytes &column = columns[static_cast<int>(at(time))];
      column = std::max(column, live);
    }
    const double ground = y + kCardCurve;
    double level = ground;
    os << formatv("<path class='memory' d='M{0} {1:f1}", kCardLeft, ground);
    for (auto [column, live] : columns) {
      const double next = ground - kCardCurve * static_cast<double>(live) / most;
      os << formatv("L{0} {1:f1}L{0} {2:f1}", column, level, next);
      level = next;
    }
    os << formatv("L{0:f1} {1:f1}L{0:f1} {2:f1}z'/>\n", at(snapshot.makespan), level, ground);
  }

  const BlockSnapshot &snapshot;
  raw_ostream &os;
  double top, bottom, most, scale;
};

/// The picture of one block of a report.
class CardWriter {
public:
  CardWriter(const Report &report, const BlockReport &block, raw_ostream &os) : report(report), block(block), os(os) {}

  void write() {
    writeText(os, "title", 36, 50, title());
    writeText(os, "facts", 36, 80, facts());
    writeLegend();
    const Ns longest = std::max({block.before.makespan, block.after.makespan, Ns(1)});
    const Bytes most = std::max({block.before.peak, block.after.peak, Bytes(1)});
    if (block.isOneMeasurement)
      return CardPanel(block.after, kCardTop, kCardBottom - kCardTop, longest, most, os).write("as given");
    const double height = (kCardBottom - kCardTop - kCardPanelGap) / 2;
    CardPanel(block.before, kCardTop, height, longest, most, os).write("before");
    CardPanel(block.after, kCardTop + height + kCardPanelGap, height, longest, most, os).write("after");
  }

private:
  std::string title() const {
    const Ns before = block.before.makespan, after = block.after.makespan;
    std::string times = formatNs(before);
    if (!block.isOneMeasurement)
      times += formatv(" to {0} ({1}{2:f1} %)", formatNs(after), after > before ? "+" : "",
                       100 * static_cast<double>(after - before) / static_cast<double>(std::max<Ns>(before, 1)));
    return block.name + ": " + times;
  }

  std::string facts() const {
    std::string facts = "predicted for " + report.machine;
    if (block.before.limitBound > 0)
      facts += "; no schedule within the memory limit takes less than " + formatNs(block.before.limitBound);
    if (report.blocks.size() > 1)
      facts += formatv("; the longest of {0} blocks", report.blocks.size());
    return facts;
  }

  void writeLegend() {
    double x = kCardLeft;
    for (auto [kind, words] : {std::pair<StringRef, StringRef>{"compute", "computes"},
                               {"exposed", "waits for a collective"},
                               {"collective", "collective runs"}}) {
      os << formatv("<rect class='{0}' x='{1}' y='98' width='15' height='15'/>", kind, x);
      writeText(os, "key", x + 22, 112, words);
      x += 220;
    }
  }

  const Report &report;
  const BlockReport &block;
  raw_ostream &os;
};

} // namespace

void commsched::writeCard(const Report &report, raw_ostream &os) {
  os << formatv("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:f0} {1:f0}' width='{0:f0}' "
                "height='{1:f0}'>\n<style>\n{2}"
                "</style>\n<rect class='ground' width='100%' height='100%'/>\n",
                kCardWidth, kCardHeight, kCardStyle);
  auto longest = max_element(
      report.blocks, [](const BlockReport &a, const BlockReport &b) { return a.before.makespan < b.before.makespan; });
  if (longest == report.blocks.end())
    writeText(os, "title", 36, 50, "No block has collectives.");
  else
    CardWriter(report, *longest, os).write();
  os << "</svg>\n";
}
