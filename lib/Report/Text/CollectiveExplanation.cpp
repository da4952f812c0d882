//===- CollectiveExplanation.cpp - One collective in words ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// comm-opt --comm-explain. Everything is read off the timelines of a report: when a collective is issued, runs and is
// waited for, which computation runs beside it, and what is live meanwhile.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Report/Report.h"
#include "CommSched/Support/Count.h"
#include "CommSched/Support/NearestName.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/WithColor.h"

using namespace llvm;
using namespace commsched;

namespace {

/// At most this many collectives are explained for one name, and this many computations that hide one.
constexpr size_t kMostExplained = 20, kMostCovers = 4;
/// At most this many members of a merged collective are named.
constexpr size_t kMostMembers = 6;

void printFact(raw_ostream &os, StringRef name, const Twine &fact) { os << formatv("  {0,-14}", name) << fact << "\n"; }

/// "a, b, c and 4 more".
std::string listSome(ArrayRef<std::string> names) {
  std::string text = join(names.take_front(kMostMembers), ", ");
  if (names.size() > kMostMembers)
    text += formatv(" and {0} more", names.size() - kMostMembers).str();
  return text;
}

/// "'matmul' at model.py:7:12", or a name that the program gives.
std::string nameOf(const TimelineOperation &operation) {
  std::string place = operation.names.empty() ? "" : operation.names.front();
  if (place.empty() || place == operation.kind)
    return "'" + operation.kind + "'";
  bool isPosition = is_contained(operation.places, place);
  return isPosition ? "'" + operation.kind + "' at " + place : place;
}

/// Whether `asked` is `name`, or the end of it behind a slash: "layer.py:12:3" is enough of "src/layer.py:12:3".
bool isEndOf(StringRef asked, StringRef name) {
  return name.consume_back(asked) && (name.empty() || name.ends_with("/"));
}

/// Whether a start is meant: by its name, by that of a member, or by a position, with or without the column.
bool isMeant(const TimelineOperation &start, StringRef asked) {
  return any_of(start.names, [&](StringRef name) { return isEndOf(asked, name); }) ||
         any_of(start.places,
                [&](StringRef place) { return isEndOf(asked, place) || isEndOf(asked, place.rsplit(':').first); });
}

/// A start in one timeline.
struct PlayedStart {
  NodeId node = kNone;
  /// When its stream comes to it, when it runs, and when a stream first comes to one of its waits, ns.
  Ns issued = 0, begin = 0, end = 0;
  std::optional<Ns> awaited;
  /// When the last of its waits is over, and how long compute stands still in all of them, ns.
  Ns done = 0, exposed = 0;
};

/// A computation beside a collective, and for how long, ns.
struct Cover {
  NodeId operation = kNone;
  Ns time = 0;
};

/// One timeline, by start. Holds references to it.
class PlayedBlock {
public:
  /// O(operations + spans).
  explicit PlayedBlock(const BlockSnapshot &snapshot) : snapshot(snapshot), starts(operations().size()) {
    for (auto [node, operation] : enumerate(operations()))
      if (operation.isStart) {
        Ns issued = operation.reached;
        starts[node] = {static_cast<NodeId>(node), issued, issued, issued, std::nullopt, issued, 0};
      }
    for (const TimelineSpan &span : snapshot.spans)
      if (span.operation != kNone && operations()[span.operation].isStart) {
        starts[span.operation].begin = span.start;
        starts[span.operation].end = span.end;
      }
    for (const TimelineOperation &wait : operations())
      if (wait.awaited != kNone) {
        PlayedStart &start = starts[wait.awaited];
        start.awaited = std::min(start.awaited.value_or(wait.reached), wait.reached);
        start.done = std::max(start.done, wait.reached + wait.exposed);
        start.exposed += wait.exposed;
      }
  }

  ArrayRef<TimelineOperation> operations() const { return snapshot.details.operations; }
  const PlayedStart &at(NodeId node) const { return starts[node]; }

  /// What computes while a start runs, the longest first. O(spans).
  std::vector<Cover> coversOf(const PlayedStart &start) const {
    std::vector<Cover> covers;
    for (const TimelineSpan &span : snapshot.spans) {
      bool computes = span.lane == kComputeLane || span.lane >= static_cast<LaneId>(snapshot.laneLoads.size());
      Ns time = std::min(span.end, start.end) - std::max(span.start, start.begin);
      if (computes && !span.stall && time > 0 && span.operation != start.node)
        covers.push_back({span.operation, time});
    }
    stable_sort(covers, [](const Cover &a, const Cover &b) { return a.time > b.time; });
    return covers;
  }

  /// The collective that runs on the lane of `start` until it begins; kNone if there is none. O(spans).
  NodeId findAhead(const PlayedStart &start) const {
    auto own = find_if(snapshot.spans, [&](const TimelineSpan &span) { return span.operation == start.node; });
    if (own == snapshot.spans.end())
      return kNone;
    auto ahead = find_if(snapshot.spans, [&](const TimelineSpan &span) {
      return span.lane == own->lane && span.end == start.begin && span.operation != start.node;
    });
    return ahead == snapshot.spans.end() ? kNone : ahead->operation;
  }

  /// The most live bytes from its issue until its last wait. O(entries).
  Bytes mostLive(const PlayedStart &start) const {
    Bytes most = 0;
    ArrayRef<std::pair<Ns, Bytes>> memory = snapshot.memory;
    for (auto [index, entry] : enumerate(memory)) {
      bool endsBefore =
          index + 1 < memory.size() && memory[index + 1].first <= start.issued && entry.first < start.issued;
      if (!endsBefore && entry.first <= std::max(start.done, start.end))
        most = std::max(most, entry.second);
    }
    return most;
  }

private:
  const BlockSnapshot &snapshot;
  /// Indexed by node; empty entries where a node is not a start.
  std::vector<PlayedStart> starts;
};

/// Explains starts of one block.
class ExplanationWriter {
public:
  ExplanationWriter(const BlockReport &block, raw_ostream &os)
      : block(block), os(os), before(block.before), after(block.after) {}

  /// The starts that are meant by `asked`, by position.
  std::vector<NodeId> findMeant(StringRef asked) const {
    std::vector<NodeId> meant;
    for (auto [node, operation] : enumerate(after.operations()))
      if (operation.isStart && isMeant(operation, asked))
        meant.push_back(static_cast<NodeId>(node));
    return meant;
  }

  void write(NodeId node);

private:
  std::vector<NodeId> membersBefore(const TimelineOperation &start) const;
  const CollectiveRow &rowOf(NodeId node) const;
  void writePlace(NodeId node, ArrayRef<NodeId> members);
  void writeTimes(NodeId node, const CollectiveRow &row);
  void writeExposed(NodeId node, const CollectiveRow &row, ArrayRef<NodeId> members);

  const BlockReport &block;
  raw_ostream &os;
  PlayedBlock before, after;
};

/// The starts of the input that became `start`: those with one of its names.
std::vector<NodeId> ExplanationWriter::membersBefore(const TimelineOperation &start) const {
  llvm::StringSet<> names;
  for (const std::string &name : start.names)
    names.insert(name);
  std::vector<NodeId> members;
  for (auto [node, operation] : enumerate(before.operations()))
    if (operation.isStart && any_of(operation.names, [&](StringRef name) { return names.contains(name); }))
      members.push_back(static_cast<NodeId>(node));
  return members;
}

/// The rows are those of the starts, in their order.
const CollectiveRow &ExplanationWriter::rowOf(NodeId node) const {
  size_t row = count_if(after.operations().take_front(node), [](const TimelineOperation &op) { return op.isStart; });
  return block.after.rows[row];
}

void ExplanationWriter::writePlace(NodeId node, ArrayRef<NodeId> members) {
  std::string place = formatv("operation {0} of {1}", node + 1, after.operations().size());
  if (!block.isOneMeasurement && !members.empty()) {
    auto places = map_range(members.take_front(kMostMembers), [](NodeId old) { return std::to_string(old + 1); });
    place += formatv("; before {0}{1} of {2}", join(places, ", "), members.size() > kMostMembers ? ", ..." : "",
                     before.operations().size());
  }
  printFact(os, "place", place);
}

void ExplanationWriter::writeTimes(NodeId node, const CollectiveRow &row) {
  const PlayedStart &start = after.at(node);
  std::string queue;
  if (start.begin > start.issued) {
    queue = "; waits " + formatNs(start.begin - start.issued) + " for its lane";
    if (NodeId ahead = after.findAhead(start); ahead != kNone)
      queue += " behind " + nameOf(after.operations()[ahead]);
  }
  printFact(os, "issued", "at " + formatNs(start.issued) + queue);
  printFact(os, "runs", formatNs(start.begin) + " to " + formatNs(start.end));
  printFact(os, "needed", start.awaited ? "at " + formatNs(*start.awaited) : "by nothing in this block");
  std::vector<Cover> covers = after.coversOf(start);
  Ns hidden = 0;
  std::vector<std::string> names;
  for (const Cover &cover : covers) {
    hidden += cover.time;
    if (names.size() < kMostCovers)
      names.push_back(nameOf(after.operations()[cover.operation]) + " (" + formatNs(cover.time) + ")");
  }
  std::string more = covers.size() > kMostCovers ? formatv(" and {0} more", covers.size() - kMostCovers).str() : "";
  printFact(os, "hidden by",
            covers.empty() ? "no computation" : formatNs(hidden) + " of computation: " + join(names, ", ") + more);
  printFact(os, "memory",
            "at most " + formatBytes(after.mostLive(start)) + " live while it is in flight, limit " +
                formatBytes(block.limit));
}

void ExplanationWriter::writeExposed(NodeId node, const CollectiveRow &row, ArrayRef<NodeId> members) {
  std::string exposed = formatNs(row.exposed);
  if (!block.isOneMeasurement) {
    Ns was = 0;
    for (NodeId member : members)
      was += before.at(member).exposed;
    exposed += ", before " + formatNs(was);
  }
  printFact(os, "exposed", exposed);
  if (row.exposed > 0) {
    printFact(os, "limited by", row.limitingFactor);
    if (StringRef remedy = remedyFor(row.factor); !remedy.empty())
      printFact(os, "may help", remedy);
  } else if (row.toleratedDelay) {
    printFact(os, "slack", "may end " + formatNs(*row.toleratedDelay) + " later until the block takes longer");
  }
}

void ExplanationWriter::write(NodeId node) {
  const TimelineOperation &start = after.operations()[node];
  const CollectiveRow &row = rowOf(node);
  const std::vector<NodeId> members = membersBefore(start);
  WithColor(os, raw_ostream::CYAN, /*Bold=*/true) << (start.names.empty() ? start.kind : start.names.front());
  os << " in " << block.name << ": " << stringify(row.kind) << " of " << formatBytes(row.bytes) << " on " << row.group
     << ", takes " << formatNs(row.cost) << "\n";
  if (start.names.size() > 1)
    printFact(os, "merged",
              formatCount(static_cast<int64_t>(start.names.size()), "collective") + ": " + listSome(start.names));
  writePlace(node, members);
  writeTimes(node, row);
  writeExposed(node, row, members);
}

} // namespace

Error commsched::printExplanation(const Report &report, StringRef name, raw_ostream &os) {
  StringRef asked = name;
  asked.consume_front("@");
  size_t found = 0;
  llvm::StringSet<> known;
  for (const BlockReport &block : report.blocks) {
    ExplanationWriter writer(block, os);
    for (NodeId node : asked.empty() ? std::vector<NodeId>() : writer.findMeant(asked))
      if (++found <= kMostExplained)
        writer.write(node);
    for (const TimelineOperation &operation : block.after.details.operations)
      if (operation.isStart)
        for (const std::string &own : operation.names)
          known.insert(own);
  }
  if (found > kMostExplained)
    os << "  and " << found - kMostExplained << " more collectives with this name\n";
  if (found > 0)
    return Error::success();
  std::vector<StringRef> names;
  for (const auto &entry : known)
    names.push_back(entry.getKey());
  sort(names);
  std::string advice = names.empty() ? "; there are no collectives" : "";
  if (StringRef nearest = nearestName(asked, names); !nearest.empty())
    advice = ("; did you mean '" + nearest + "'?").str();
  else if (!names.empty())
    advice = "; the names are " + listSome(std::vector<std::string>(names.begin(), names.end()));
  return createStringError("no collective is called '" + name + "' in the result" + advice);
}
