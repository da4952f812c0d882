//===- ParetoReport.cpp - Time against peak, as JSON and as a picture -------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/ParetoReport.h"
#include "CommSched/Report/Report.h"
#include "Markup.h"
#include "llvm/Support/FormatVariadic.h"
#include <array>
#include <cmath>

using namespace llvm;
using namespace commsched;

//===-----------------------------------------------------------------------------------------===//
// JSON
//===-----------------------------------------------------------------------------------------===//

static double gapOf(Ns makespan, Ns bound) {
  return bound > 0 ? static_cast<double>(makespan - bound) / static_cast<double>(bound) : 0;
}

json::Value ParetoReport::toJSON() const {
  json::Array functions;
  for (const ParetoBlock &block : blocks) {
    auto toObject = [&](const ParetoPoint &point) {
      return json::Object{{"peak_bytes", point.peak},
                          {"makespan_ns", point.makespan},
                          {"gap", gapOf(point.makespan, block.bound)},
                          {"collectives", point.collectives}};
    };
    json::Array points;
    for (const ParetoPoint &point : block.curve.points)
      points.push_back(toObject(point));
    functions.push_back(json::Object{{"name", block.name},
                                     {"lower_bound_ns", block.bound},
                                     {"lower_bound_by", block.boundBy},
                                     {"peak_lower_bound_bytes", block.peakBound},
                                     {"input", toObject(block.curve.input)},
                                     {"points", std::move(points)},
                                     {"limits", block.curve.limits},
                                     {"steps", block.curve.steps}});
  }
  return json::Object{{"schema_version", 1}, {"machine", machine}, {"functions", std::move(functions)}};
}

//===-----------------------------------------------------------------------------------------===//
// SVG
//===-----------------------------------------------------------------------------------------===//

/// Geometry of one panel, in pixels: the plot's frame and the room around it.
static constexpr double kWidth = 860, kPanelHeight = 410, kLeft = 84, kRight = 40, kTop = 66, kBottom = 62;
/// What a letter of a label takes, in pixels: its width on average, and the heights above and below the line.
static constexpr double kLetter = 6.3, kAscent = 11, kDescent = 4;

namespace {

/// Where a label may stand: the end of its line at which it is anchored.
struct LabelSpot {
  double x, y;
  StringRef anchor;
};

/// A rectangle in the picture.
struct LabelBox {
  double left, top, right, bottom;
  bool meets(const LabelBox &other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// A unit that makes axis numbers short.
struct AxisUnit {
  StringLiteral name;
  double size;
};

/// One axis: a range of round numbers in a unit, and where they lie on the page.
class Axis {
public:
  Axis(double low, double high, ArrayRef<AxisUnit> units, double from, double to) : from(from), to(to) {
    unit = &units.front();
    for (const AxisUnit &candidate : units)
      if (high >= candidate.size)
        unit = &candidate;
    // At least a hundredth of the value: smaller differences look as small as they are.
    double margin = std::max({(high - low) * 0.1, (high * 0.01 - (high - low)) / 2, unit->size * 0.01});
    double raw = (high - low + 2 * margin) / unit->size / 6;
    double power = std::pow(10, std::floor(std::log10(raw)));
    step = power * (raw / power <= 1 ? 1 : raw / power <= 2 ? 2 : raw / power <= 5 ? 5 : 10);
    first = std::max(0.0, std::floor((low - margin) / unit->size / step) * step);
    last = std::ceil((high + margin) / unit->size / step) * step;
  }

  /// Where `value` (in ns or bytes) lies.
  double at(double value) const { return from + (value / unit->size - first) / (last - first) * (to - from); }

  /// The round numbers, as values and as texts.
  std::vector<std::pair<double, std::string>> ticks() const {
    std::vector<std::pair<double, std::string>> result;
    int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
    int count = static_cast<int>(std::lround((last - first) / step));
    for (int index = 0; index <= count; ++index) {
      double value = first + index * step;
      std::string text;
      raw_string_ostream(text) << format("%.*f", decimals, value);
      result.push_back({value * unit->size, text});
    }
    return result;
  }

  StringRef unitName() const { return unit->name; }

private:
  double from, to, first = 0, last = 1, step = 1;
  const AxisUnit *unit = nullptr;
};

constexpr AxisUnit kByteUnits[] = {
    {"bytes", 1}, {"KiB", 1024.0}, {"MiB", 1024.0 * 1024}, {"GiB", 1024.0 * 1024 * 1024}};
constexpr AxisUnit kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

/// Draws one block's curve with its upper left corner at (0, `top`).
class PanelWriter {
public:
  PanelWriter(const ParetoBlock &block, double top, raw_ostream &os)
      : block(block), points(block.curve.points), os(os), top(top),
        x(double(std::min(block.peakBound, points.front().peak)),
          double(std::max(points.back().peak, block.curve.input.peak)), kByteUnits, kLeft, kWidth - kRight),
        y(double(std::min(block.bound, points.back().makespan)),
          double(std::max(points.front().makespan, inputIsFar() ? 0 : block.curve.input.makespan)), kTimeUnits,
          top + kPanelHeight - kBottom, top + kTop) {}

  void write() {
    os << formatv("<text class='title' x='{0}' y='{1}'>{2}</text>\n", kLeft, top + 26, escapeMarkup(block.name));
    writeAxes();
    writeBoundLines();
    writeCurve();
    writeInput();
    writeLabels();
  }

private:
  /// Whether the input is so slow that the curve would be a line if both were drawn to scale.
  bool inputIsFar() const {
    Ns slowest = points.front().makespan;
    return block.curve.input.makespan - slowest > 4 * (slowest - std::min(block.bound, points.back().makespan));
  }

  void writeAxes() {
    double bottom = top + kPanelHeight - kBottom, right = kWidth - kRight;
    for (auto &[value, text] : x.ticks())
      os << formatv("<line class='grid' x1='{0:f1}' x2='{0:f1}' y1='{1}' y2='{2}'/>"
                    "<text class='tick' x='{0:f1}' y='{3}' text-anchor='middle'>{4}</text>\n",
                    x.at(value), top + kTop, bottom, bottom + 18, text);
    for (auto &[value, text] : y.ticks())
      os << formatv("<line class='grid' x1='{0}' x2='{1}' y1='{2:f1}' y2='{2:f1}'/>"
                    "<text class='tick' x='{3}' y='{4:f1}' text-anchor='end'>{5}</text>\n",
                    kLeft, right, y.at(value), kLeft - 8, y.at(value) + 4, text);
    os << formatv("<text class='axis' x='{0}' y='{1}' text-anchor='middle'>peak memory, {2}</text>\n",
                  (kLeft + right) / 2, bottom + 42, x.unitName());
    os << formatv("<text class='axis' transform='translate(22 {0}) rotate(-90)' text-anchor='middle'>makespan, {1}"
                  "</text>\n",
                  (top + kTop + bottom) / 2, y.unitName());
  }

  void writeBoundLines() {
    double level = y.at(double(block.bound)), least = x.at(double(block.peakBound)), end = kWidth - kRight;
    os << formatv("<line class='bound' x1='{0}' x2='{1}' y1='{2:f1}' y2='{2:f1}'/>"
                  "<line class='bound' x1='{3:f1}' x2='{3:f1}' y1='{4}' y2='{5}'/>\n",
                  kLeft, end, level, least, top + kTop, top + kPanelHeight - kBottom);
  }

  void writeCurve() {
    os << "<path class='curve' d='";
    for (auto [index, point] : enumerate(points))
      os << (index == 0 ? formatv("M{0:f1} {1:f1}", x.at(double(point.peak)), y.at(double(point.makespan)))
                        : formatv(" H{0:f1} V{1:f1}", x.at(double(point.peak)), y.at(double(point.makespan))))
                .str();
    os << formatv(" H{0}'/>\n", kWidth - kRight);
    for (const ParetoPoint &point : points)
      os << formatv("<circle class='point' cx='{0:f1}' cy='{1:f1}' r='4'><title>{2}</title></circle>\n",
                    x.at(double(point.peak)), y.at(double(point.makespan)), describe(point));
  }

  /// The input's point; an arrow above the frame where it is out of the picture.
  void writeInput() {
    auto [px, py] = inputAt();
    if (inputIsFar())
      os << formatv("<path class='input' d='M{0:f1} {1:f1} l-6 10 h12 z'/>\n", px, py - 5);
    else
      os << formatv("<circle class='input' cx='{0:f1}' cy='{1:f1}' r='5'/>\n", px, py);
  }

  std::pair<double, double> inputAt() const {
    const ParetoPoint &input = block.curve.input;
    return {x.at(double(input.peak)), inputIsFar() ? top + kTop - 12 : y.at(double(input.makespan))};
  }

  /// The labels, the most important first: one that finds no place is left out.
  void writeLabels() {
    double level = y.at(double(block.bound)), least = x.at(double(block.peakBound)), end = kWidth - kRight;
    std::string peakLabel = "no order needs less than " + formatBytes(block.peakBound);
    os << formatv("<text class='boundlabel' transform='translate({0:f1} {1}) rotate(-90)' text-anchor='end'>{2}"
                  "</text>\n",
                  least - 6, top + kTop, peakLabel);
    taken = {{least - 6 - kAscent, top + kTop, least - 6 + kDescent, top + kTop + kLetter * double(peakLabel.size())}};
    auto [px, py] = inputAt();
    writeLabel("inputlabel", {{px + 11, py + 4, "start"}, {px - 11, py + 4, "end"}, {px, py + 20, "start"}},
               "input: " + describe(block.curve.input) + (inputIsFar() ? ", out of the picture" : ""));
    std::string bound = ("no schedule is faster than " + formatNs(block.bound) + " (" + block.boundBy + ")");
    writeLabel("boundlabel", {{end, level + 15, "end"}, {least + 6, level + 15, "start"}, {end, level - 6, "end"}},
               bound);
    writePointLabel(points.front());
    if (points.size() > 1)
      writePointLabel(points.back());
    auto within = llvm::find_if(llvm::reverse(points),
                                [&](const ParetoPoint &point) { return point.peak <= block.curve.input.peak; });
    if (within != points.rend() && &*within != &points.front() && &*within != &points.back())
      writePointLabel(*within);
  }

  void writePointLabel(const ParetoPoint &point) {
    double px = x.at(double(point.peak)), py = y.at(double(point.makespan));
    writeLabel(
        "label",
        {{px + 4, py - 10, "start"}, {px - 6, py + 17, "end"}, {px - 6, py - 10, "end"}, {px + 6, py + 17, "start"}},
        describe(point));
  }

  /// Writes a label at the first spot at which it meets no other one and stays in the picture.
  void writeLabel(StringRef kind, ArrayRef<LabelSpot> spots, const std::string &text) {
    for (const LabelSpot &spot : spots) {
      double width = kLetter * double(text.size()), left = spot.anchor == "end" ? spot.x - width : spot.x;
      LabelBox box = {left, spot.y - kAscent, left + width, spot.y + kDescent};
      bool isFree = llvm::none_of(taken, [&](const LabelBox &other) { return box.meets(other); });
      if (!isFree || box.left < 0 || box.right > kWidth)
        continue;
      taken.push_back(box);
      os << formatv("<text class='{0}' x='{1:f1}' y='{2:f1}' text-anchor='{3}'>{4}</text>\n", kind, spot.x, spot.y,
                    spot.anchor, escapeMarkup(text));
      return;
    }
  }

  std::string describe(const ParetoPoint &point) const {
    return formatv("{0} at {1}, {2:f1} % above the bound", formatNs(point.makespan), formatBytes(point.peak),
                   100 * gapOf(point.makespan, block.bound));
  }

  const ParetoBlock &block;
  const std::vector<ParetoPoint> &points;
  raw_ostream &os;
  double top;
  Axis x, y;
  /// Where labels stand.
  std::vector<LabelBox> taken;
};

} // namespace

void commsched::writeSvg(const ParetoReport &report, raw_ostream &os) {
  double height = kPanelHeight * static_cast<double>(std::max<size_t>(report.blocks.size(), 1)) + 34;
  os << formatv("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}'>\n", kWidth,
                height);
  os << "<style>\ntext{font:12px system-ui,sans-serif;fill:#444}.title{font-size:17px;font-weight:600;fill:#222}\n"
        ".head{font-size:13px;fill:#222}.axis{font-size:13px;fill:#222}.grid{stroke:#e6e6e6}\n"
        ".curve{fill:none;stroke:#4c78a8;stroke-width:2}.point{fill:#4c78a8}.label{fill:#2f5580}\n"
        ".input{fill:#fff;stroke:#e45756;stroke-width:2}.inputlabel{fill:#b8322f}\n"
        ".bound{stroke:#54a24b;stroke-dasharray:6 4;stroke-width:1.5}.boundlabel{fill:#3d7a35}\n"
        ".label,.inputlabel,.boundlabel{paint-order:stroke;stroke:#fff;stroke-width:4px}.ground{fill:#fff}\n"
        "@media(prefers-color-scheme:dark){text{fill:#b8c0ca}.title,.head,.axis{fill:#e6edf3}.grid{stroke:#30363d}\n"
        ".curve{stroke:#7aa8d8}.point{fill:#7aa8d8}.label{fill:#a9c8ea}.input{fill:#0d1117}.inputlabel{fill:#ff8a80}\n"
        ".boundlabel{fill:#8fd184}.label,.inputlabel,.boundlabel{stroke:#0d1117}.ground{fill:#0d1117}}\n</style>\n"
        "<rect class='ground' width='100%' height='100%'/>\n";
  os << formatv("<text class='head' x='{0}' y='24'>What memory buys: predicted time against peak memory, machine {1}"
                "</text>\n",
                kLeft, escapeMarkup(report.machine));
  if (report.blocks.empty())
    os << formatv("<text x='{0}' y='60'>No block has collectives.</text>\n", kLeft);
  double top = 34;
  for (const ParetoBlock &block : report.blocks) {
    PanelWriter(block, top, os).write();
    top += kPanelHeight;
  }
  os << "</svg>\n";
}
