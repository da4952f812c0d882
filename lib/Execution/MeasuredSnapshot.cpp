//===- MeasuredSnapshot.cpp - A run as a block's snapshot -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The runtime knows collectives and waits by site, the index of the start in the program, and computations by name.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Execution/MeasuredTimeline.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace commsched;

namespace {

/// Kinds of records that are no collectives (Runtime.h).
constexpr int32_t kWaited = 100, kComputed = 101, kMarked = 102;
/// The name under which the runtime records a matrix product of linalg.
constexpr StringLiteral kProduct = "comm.contract";

class MeasuredSide {
public:
  MeasuredSide(const RankTrace &call, const BlockSnapshot &predicted) : call(call), measured(predicted) {
    origin = call.marks.front();
    measured.makespan = call.marks.back() - origin;
    measured.exposed = 0;
    measured.spans.clear();
    measured.contention.reset();
    llvm::fill(measured.laneLoads, 0);
    for (auto [index, op] : enumerate(measured.details.operations)) {
      op.cost = op.exposed = 0;
      op.estimate.reset();
      op.limitingFactor.clear();
      if (op.isStart)
        starts.push_back(index);
      else if (op.awaited != kNone)
        waits[op.awaited].push_back(index);
    }
    for (const TimelineSpan &span : predicted.spans)
      if (!span.stall && measured.details.operations[span.operation].isStart)
        lanes.try_emplace(span.operation, span.lane);
  }

  std::optional<BlockSnapshot> run() {
    std::vector<commrt_trace_record> records;
    llvm::copy_if(call.records, std::back_inserter(records), [](const auto &record) { return record.kind != kMarked; });
    llvm::stable_sort(records, [](const auto &a, const auto &b) { return a.begin_ns < b.begin_ns; });
    begins.assign(measured.details.operations.size(), std::nullopt);
    size_t sites = 0;
    for (const commrt_trace_record &record : records) {
      if (record.kind != kComputed && record.site >= 0)
        sites = std::max<size_t>(sites, record.site + 1);
      if (sites > starts.size())
        return std::nullopt;
      place(record);
    }
    if (sites != starts.size())
      return std::nullopt;
    moveMemory();
    return std::move(measured);
  }

private:
  void place(const commrt_trace_record &record);
  NodeId operationOf(const commrt_trace_record &record);
  NodeId computationOf(StringRef name);
  LaneId rowOf(const TimelineOperation &op) const {
    return op.stream == 0 ? kComputeLane : static_cast<LaneId>(measured.laneLoads.size()) + op.stream - 1;
  }
  void moveMemory();

  const RankTrace &call;
  BlockSnapshot measured;
  Ns origin = 0;
  /// By site.
  std::vector<NodeId> starts;
  /// Indexed by start: what waits for it, and how many of these the run has come to; and its lane.
  DenseMap<NodeId, SmallVector<NodeId, 1>> waits;
  DenseMap<NodeId, size_t> waited;
  DenseMap<NodeId, LaneId> lanes;
  /// Indexed by operation of the prediction: when the run came to it.
  std::vector<std::optional<Ns>> begins;
  /// The operation behind the last computation that was found.
  size_t next = 0;
};

} // namespace

/// The next computation that is called `name`. If there is none, it becomes an operation behind all others.
NodeId MeasuredSide::computationOf(StringRef name) {
  std::vector<TimelineOperation> &operations = measured.details.operations;
  for (size_t at = next; at < begins.size(); ++at) {
    const TimelineOperation &op = operations[at];
    if (op.isStart || op.awaited != kNone || !(name == kProduct ? op.isProduct : op.kind == name))
      continue;
    next = at + 1;
    return at;
  }
  TimelineOperation &unknown = operations.emplace_back();
  unknown.kind = name.str();
  unknown.names = {name.str()};
  return operations.size() - 1;
}

/// kNone of a wait that the prediction lacks.
NodeId MeasuredSide::operationOf(const commrt_trace_record &record) {
  if (record.kind == kComputed)
    return computationOf(record.name);
  if (record.site < 0)
    return kNone;
  NodeId start = starts[record.site];
  if (record.kind != kWaited)
    return start;
  ArrayRef<NodeId> all = waits[start];
  size_t number = waited[start]++;
  return number < all.size() ? all[number] : kNone;
}

void MeasuredSide::place(const commrt_trace_record &record) {
  NodeId id = operationOf(record);
  if (id == kNone)
    return;
  TimelineOperation &op = measured.details.operations[id];
  Ns begin = record.begin_ns - origin, end = record.end_ns - origin;
  bool isStall = record.kind == kWaited;
  op.reached = begin;
  (isStall ? op.exposed : op.cost) = end - begin;
  LaneId row = op.isStart ? lanes.lookup_or(id, kComputeLane) : rowOf(op);
  if (isStall) {
    measured.exposed += end - begin;
    measured.details.operations[op.awaited].exposed += end - begin;
  } else if (static_cast<size_t>(row) < measured.laneLoads.size()) {
    measured.laneLoads[row] += end - begin;
  }
  if (static_cast<size_t>(id) < begins.size())
    begins[id] = isStall ? end : begin;
  if (end > begin)
    measured.spans.push_back({op.names.empty() ? op.kind : op.names.front(), row, begin, end, isStall, "", id});
  measured.makespan = std::max(measured.makespan, end);
}

/// On one stream, entry N of the curve belongs to operation N. One that was not recorded happens with the one before.
/// On several streams, nothing is known.
void MeasuredSide::moveMemory() {
  if (measured.streams.size() > 1) {
    measured.memory.clear();
    measured.details.buffers.clear();
    return;
  }
  Ns now = 0;
  for (auto [index, entry] : enumerate(measured.memory)) {
    now = std::max(now, begins[index].value_or(now));
    entry.first = now;
  }
  for (size_t unknown = measured.memory.size(); unknown < measured.details.operations.size(); ++unknown)
    measured.memory.emplace_back(now, measured.memory.empty() ? 0 : measured.memory.back().second);
}

std::optional<BlockSnapshot> commsched::measuredSnapshot(const RankTrace &call, const BlockSnapshot &predicted) {
  if (call.marks.size() != 2)
    return std::nullopt;
  return MeasuredSide(call, predicted).run();
}
