//===- TimelineSnapshot.cpp - Timeline part of a block's snapshot -----------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Rectangles on rows, live bytes over time with the buffers that they consist of, and the facts of each operation.
//
//===------------------------------------------------------------------------------------------===//

#include "TimelineSnapshot.h"
#include "CommSched/Analysis/Locations.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace commsched;
using namespace commsched::comm;

namespace {

class TimelineBuilder {
public:
  TimelineBuilder(BlockSnapshot &snapshot, const LoadedBlock &block, const OperationCosts &costs,
                  const Timeline &timeline, const MemoryProfile &memory)
      : snapshot(snapshot), block(block), problem(block.problem), costs(costs), timeline(timeline), memory(memory) {}

  void run() {
    for (int64_t number : ArrayRef<int64_t>(problem.streams).drop_front(problem.hasStreams() ? 1 : 0))
      snapshot.lanes.push_back("stream " + std::to_string(number));
    describeOperations();
    for (NodeId node = 0; node < problem.size(); ++node)
      addSpans(node);
    if (problem.hasStreams())
      addMemoryByTime();
    else
      addMemoryByPosition();
  }

private:
  void describeOperations();
  void addSpans(NodeId node);
  void addMemoryByPosition();
  void addMemoryByTime();

  /// The row of a node that computes or waits: each stream but stream 0 has one below the lanes.
  LaneId rowOfCompute(NodeId node) const {
    int32_t stream = problem.nodes[node].stream;
    return stream == 0 ? kComputeLane : problem.numLanes() + stream - 1;
  }

  BlockSnapshot &snapshot;
  const LoadedBlock &block;
  const Problem &problem;
  const OperationCosts &costs;
  const Timeline &timeline;
  const MemoryProfile &memory;
};

} // namespace

//===-----------------------------------------------------------------------------------------===//
// Operations
//===-----------------------------------------------------------------------------------------===//

/// The file positions inside a location, in their order, each once.
static std::vector<std::string> placesOf(Location loc) {
  llvm::SetVector<Location> found;
  loc->walk([&](Location part) {
    if (isa<FileLineColLoc>(part))
      found.insert(part);
    return WalkResult::advance();
  });
  std::vector<std::string> places;
  for (Location part : found) {
    auto file = cast<FileLineColLoc>(part);
    places.push_back(
        llvm::formatv("{0}:{1}:{2}", file.getFilename().getValue(), file.getLine(), file.getColumn()).str());
  }
  return places;
}

/// Whether an operation is a contraction over one dimension whose result has rows and columns.
static bool isProduct(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !linalg::isaContractionOpInterface(linalgOp))
    return false;
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(linalgOp);
  return succeeded(dims) && dims->k.size() == 1 && !dims->m.empty() && !dims->n.empty();
}

void TimelineBuilder::describeOperations() {
  // Indexed by stream: when it comes to its next operation.
  std::vector<Ns> clocks(std::max<size_t>(problem.streams.size(), 1), 0);
  snapshot.details.operations.resize(problem.size());
  size_t row = 0;
  for (NodeId node = 0; node < problem.size(); ++node) {
    const Node &entry = problem.nodes[node];
    Operation *op = block.nodes[node];
    TimelineOperation &told = snapshot.details.operations[node];
    told.kind = getTableName(op).str();
    told.isProduct = isProduct(op);
    told.names = describeLocation(op->getLoc());
    told.places = placesOf(op->getLoc());
    Ns &clock = clocks[entry.stream];
    told.stream = entry.stream;
    told.reached = clock;
    clock = entry.kind == NodeKind::Start ? clock + entry.issue : timeline.end[node];
    told.cost = entry.cost;
    told.workspace = entry.workspace;
    told.estimate = costs.estimateOf(op);
    if (auto collective = dyn_cast<CollectiveOpInterface>(op))
      told.group = ("@" + collective.getGroupAttr().getValue()).str();
    if (entry.kind == NodeKind::Start) {
      // The rows are those of the starts, in their order.
      const CollectiveRow &facts = snapshot.rows[row++];
      told.isStart = true;
      told.bytes = facts.bytes;
      told.exposed = facts.exposed;
      told.limitingFactor = facts.limitingFactor;
    }
    if (entry.kind == NodeKind::Wait) {
      told.awaited = awaitedStart(problem, timeline, node);
      told.exposed = timeline.exposed[node];
      if (told.awaited != kNone && told.exposed > 0)
        told.limitingFactor = snapshot.details.operations[told.awaited].limitingFactor;
    }
  }
}

void TimelineBuilder::addSpans(NodeId node) {
  const Node &entry = problem.nodes[node];
  bool isWait = entry.kind == NodeKind::Wait, isAnchor = entry.records || entry.event != kNone;
  auto add = [&](LaneId row, StringRef reason = "") {
    snapshot.spans.push_back(
        {nameOperation(block.nodes[node]), row, timeline.start[node], timeline.end[node], isWait, reason.str(), node});
  };
  if (!isAnchor && (isWait ? timeline.exposed[node] > 0 : timeline.end[node] > timeline.start[node]))
    add(entry.lane == kComputeLane ? rowOfCompute(node) : entry.lane,
        isWait ? snapshot.details.operations[node].limitingFactor : "");
  if (entry.kind == NodeKind::Hybrid)
    add(rowOfCompute(node));
  if (entry.kind == NodeKind::Hybrid && entry.region != kNone)
    for (LaneId lane : ArrayRef<LaneId>(problem.regions[entry.region].lanes).drop_front())
      add(lane);
}

//===-----------------------------------------------------------------------------------------===//
// Memory
//===-----------------------------------------------------------------------------------------===//

/// One entry per position. A buffer counts from the first operation that touches it to the last one.
void TimelineBuilder::addMemoryByPosition() {
  for (NodeId node = 0; node < problem.size(); ++node) {
    // What a start needs is live from its issue on, which may be long before its lane is free.
    bool isWait = problem.nodes[node].kind == NodeKind::Wait;
    snapshot.memory.emplace_back(isWait ? timeline.end[node] : snapshot.details.operations[node].reached,
                                 memory.live[node]);
    if (Bytes bytes = problem.nodes[node].workspace)
      snapshot.details.buffers.push_back({bytes, node, node, node, true});
  }
  for (BufferId id = 0; id < problem.users.size(); ++id) {
    const Buffer &buffer = problem.buffers[id];
    ArrayRef<NodeId> users = problem.users[id];
    if (!users.empty() && buffer.bytes > 0)
      snapshot.details.buffers.push_back({buffer.bytes, buffer.def == kNone ? 0 : users.front(),
                                          buffer.liveOut ? problem.size() - 1 : users.back(), buffer.def});
  }
}

/// With several streams, the positions of operations tell nothing about when they run. A buffer counts from the moment
/// at which the first operation that uses it begins, until the last one has ended.
void TimelineBuilder::addMemoryByTime() {
  struct Life {
    Ns begin, end;
    TimelineBuffer buffer;
  };
  std::vector<Life> lives;
  std::map<Ns, Bytes> changes;
  auto add = [&](Ns begin, Ns end, bool toTheEnd, const TimelineBuffer &buffer) {
    if (buffer.bytes == 0 || (end <= begin && !toTheEnd))
      return;
    changes[begin] += buffer.bytes;
    if (!toTheEnd)
      changes[end] -= buffer.bytes;
    lives.push_back({begin, toTheEnd ? -1 : end, buffer});
  };
  for (BufferId id = 0; id < problem.users.size(); ++id) {
    const Buffer &buffer = problem.buffers[id];
    ArrayRef<NodeId> users = problem.users[id];
    if (users.empty())
      continue;
    Ns begin = buffer.def == kNone ? 0 : timeline.makespan, end = 0;
    for (NodeId user : users) {
      begin = std::min(begin, timeline.start[user]);
      end = std::max(end, timeline.end[user]);
    }
    add(begin, end, buffer.liveOut, {buffer.bytes, 0, 0, buffer.def});
  }
  for (NodeId node = 0; node < problem.size(); ++node)
    add(timeline.start[node], timeline.end[node], false, {problem.nodes[node].workspace, 0, 0, node, true});

  std::map<Ns, int32_t> entries;
  Bytes live = 0;
  for (auto [when, change] : changes) {
    entries[when] = static_cast<int32_t>(snapshot.memory.size());
    snapshot.memory.emplace_back(when, live += change);
  }
  for (Life &life : lives) {
    life.buffer.first = entries[life.begin];
    life.buffer.last = (life.end < 0 ? static_cast<int32_t>(snapshot.memory.size()) : entries[life.end]) - 1;
    snapshot.details.buffers.push_back(life.buffer);
  }
}

void commsched::addTimeline(BlockSnapshot &snapshot, const LoadedBlock &block, const OperationCosts &costs,
                            const Timeline &timeline, const MemoryProfile &memory) {
  TimelineBuilder(snapshot, block, costs, timeline, memory).run();
}
