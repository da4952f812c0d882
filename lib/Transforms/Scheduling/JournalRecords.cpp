//===- JournalRecords.cpp - Journal records of a pass -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "JournalRecords.h"
#include "CommSched/Analysis/Environment.h"
#include "CommSched/Analysis/Locations.h"
#include "CommSched/Report/Explanations.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Time/Timeline.h"
#include "CommSched/Transforms/Scheduling/BlockNames.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace commsched;

/// How many places a search for names may look at.
static constexpr int32_t kMostPlaces = 128;

PassJournal *commsched::journalOf(MLIRContext *context) {
  Environment *environment = Environment::of(context);
  return environment ? environment->journal.get() : nullptr;
}

namespace {

/// An order with the computation before each place, ns.
class OrderView {
public:
  OrderView(const Problem &problem, ArrayRef<NodeId> order)
      : problem(problem), order(order), place(problem.size()), firstWaits(problem.size(), kNone),
        line(simulate(problem, order)), exposed(exposedByCollective(problem, line)), peak(peakOf(problem, order)) {
    before.push_back(0);
    costed.push_back(0);
    for (auto [at, id] : llvm::enumerate(order)) {
      const Node &node = problem.nodes[id];
      place[id] = static_cast<int32_t>(at);
      before.push_back(before.back() + (hides(id) ? node.cost : 0));
      costed.push_back(costed.back() + hides(id));
      if (node.kind == NodeKind::Wait && node.start != kNone && firstWaits[node.start] == kNone)
        firstWaits[node.start] = id;
    }
  }

  int32_t placeOf(NodeId id) const { return place[id]; }
  Ns makespan() const { return line.makespan; }
  Ns exposedTotal() const { return line.exposedTotal; }
  Bytes peakBytes() const { return peak; }

  /// The start that a record is about; kNone: a future that came in, waited for by `id`.
  NodeId startOf(NodeId id) const { return problem.nodes[id].kind == NodeKind::Wait ? problem.nodes[id].start : id; }

  Ns exposedOf(NodeId id) const {
    NodeId start = startOf(id);
    return exposed[start == kNone ? id : start];
  }

  /// The places between a collective's start and its first wait.
  std::pair<int32_t, int32_t> flightOf(NodeId id) const {
    NodeId start = startOf(id), wait = start == kNone ? id : firstWaits[start];
    int32_t begin = start == kNone ? 0 : place[start] + 1;
    int32_t end = wait == kNone ? static_cast<int32_t>(order.size()) : place[wait];
    return {begin, std::max(begin, end)};
  }

  Ns computeOf(NodeId id) const {
    auto [begin, end] = flightOf(id);
    return before[end] - before[begin];
  }

  int64_t countHiding(NodeId id) const {
    auto [begin, end] = flightOf(id);
    return costed[end] - costed[begin];
  }

  /// Looks at the places from `first` in steps of `step`, as long as there are any and `visit` says so.
  void scan(int32_t first, int32_t step, llvm::function_ref<bool(NodeId)> visit) const {
    for (int32_t at = first, looked = 0; at >= 0 && at < static_cast<int32_t>(order.size()) && looked < kMostPlaces;
         at += step, ++looked)
      if (!visit(order[at]))
        return;
  }

  bool hides(NodeId id) const {
    const Node &node = problem.nodes[id];
    return (node.kind == NodeKind::Compute || node.kind == NodeKind::Hybrid) && node.cost > 0;
  }

private:
  const Problem &problem;
  ArrayRef<NodeId> order;
  std::vector<int32_t> place;
  std::vector<NodeId> firstWaits;
  Timeline line;
  std::vector<Ns> exposed;
  Bytes peak;
  /// Indexed by place: computation, and the number of computations, before it.
  std::vector<Ns> before;
  std::vector<int64_t> costed;
};

std::string nameOf(Operation *op) {
  if (auto compute = dyn_cast<comm::ComputeOp>(op))
    return compute.getName().str();
  return op->getName().getStringRef().str();
}

/// Fills in a row from the two orders of one problem.
class RowMaker {
public:
  RowMaker(const LoadedBlock &block, const OrderView &given, const OrderView &found)
      : block(block), problem(block.problem), given(given), found(found) {}

  PassRow make(const CollectiveRecord &record, ArrayRef<std::string> reasons) const {
    NodeId id = record.node;
    PassRow row;
    row.locations = describeLocation(block.nodes[id]->getLoc());
    NodeId start = found.startOf(id);
    row.kind = problem.nodes[id].kind == NodeKind::Wait ? "wait" : stringify(problem.nodes[id].collective).str();
    row.cost = start == kNone ? problem.nodes[id].ready : problem.nodes[start].cost;
    row.compute = {given.computeOf(id), found.computeOf(id)};
    row.exposed = {given.exposedOf(id), found.exposedOf(id)};
    row.moves = record.moves;
    addNames(record, row);
    row.limitingFactor = describe(block, record);
    row.exposedBecause = start == kNone ? "" : reasons[start];
    return row;
  }

private:
  void addNames(const CollectiveRecord &record, PassRow &row) const {
    NodeId id = record.node;
    bool wait = problem.nodes[id].kind == NodeKind::Wait;
    int32_t ahead = wait ? 1 : -1, here = found.placeOf(id);
    // Taken along: what it needs, or what needs it, on the side that it moves to.
    row.takenAlong.count = record.grouped;
    llvm::SmallSet<NodeId, 16> related;
    auto relate = [&](NodeId node) {
      for (NodeId other : wait ? problem.succs[node] : problem.preds[node])
        related.insert(other);
    };
    relate(id);
    found.scan(here + ahead, ahead, [&](NodeId node) {
      if (related.contains(node)) {
        add(row.takenAlong, node);
        relate(node);
      }
      return hasRoom(row.takenAlong);
    });
    // Passed: what is on the other side of it now.
    row.passed.count = std::abs(record.moves);
    found.scan(here - ahead, -ahead, [&](NodeId node) {
      if (ahead * (given.placeOf(node) - given.placeOf(id)) > 0)
        add(row.passed, node);
      return hasRoom(row.passed);
    });
    auto [begin, end] = found.flightOf(id);
    row.hiddenBy.count = found.countHiding(id);
    found.scan(begin, 1, [&, end = end](NodeId node) {
      if (found.placeOf(node) >= end)
        return false;
      if (found.hides(node))
        add(row.hiddenBy, node);
      return hasRoom(row.hiddenBy);
    });
  }

  void add(NamedOperations &operations, NodeId node) const { operations.names.push_back(nameOf(block.nodes[node])); }
  static bool hasRoom(const NamedOperations &operations) {
    return operations.names.size() <
           std::min<size_t>(NamedOperations::kMostNames, static_cast<size_t>(operations.count));
  }

  const LoadedBlock &block;
  const Problem &problem;
  const OrderView &given, &found;
};

PassRecord startRecord(StringRef pass, const LoadedBlock &block, const OrderView &given, const OrderView &found) {
  PassRecord record;
  record.pass = pass.str();
  record.block = reportNameOf(block.nodes.getBlock());
  record.makespan = {given.makespan(), found.makespan()};
  record.exposed = {given.exposedTotal(), found.exposedTotal()};
  record.peak = {given.peakBytes(), found.peakBytes()};
  return record;
}

} // namespace

PassRecord commsched::makeRecord(StringRef pass, const LoadedBlock &block, const Schedule &result,
                                 ArrayRef<std::string> reasons) {
  Order identity = identityOrder(block.problem);
  OrderView given(block.problem, identity), found(block.problem, result.order);
  PassRecord record = startRecord(pass, block, given, found);
  RowMaker rows(block, given, found);
  for (const CollectiveRecord &collective : result.records)
    record.rows.push_back(rows.make(collective, reasons));
  return record;
}

PassRecord commsched::makeRecord(StringRef pass, const LoadedBlock &block, const Schedule &result,
                                 llvm::ArrayRef<StartOutcome> outcomes) {
  Order identity = identityOrder(block.problem);
  const ExpandedProblem &expanded = result.expanded;
  const Problem &carriedOut = result.carriedOut(block.problem);
  OrderView given(block.problem, identity), found(carriedOut, result.order);
  PassRecord record = startRecord(pass, block, given, found);
  for (const StartOutcome &outcome : outcomes) {
    NodeId image = result.imageOf(outcome.start);
    PassRow row;
    row.locations = describeLocation(block.nodes[outcome.start]->getLoc());
    row.kind = stringify(block.problem.nodes[outcome.start].collective).str();
    // A bucket's members take what the bucket takes.
    row.cost = carriedOut.nodes[image].cost;
    row.compute = {given.computeOf(outcome.start), found.computeOf(image)};
    row.exposed = {outcome.exposedBefore, outcome.exposedAfter};
    row.moves = outcome.positionBefore - outcome.positionAfter;
    if (outcome.bucket != kNone)
      for (NodeId member : result.buckets[outcome.bucket].members) {
        row.takenAlong.count += member != outcome.start;
        if (member != outcome.start && row.takenAlong.names.size() < NamedOperations::kMostNames)
          llvm::append_range(row.takenAlong.names, describeLocation(block.nodes[member]->getLoc()));
      }
    auto [begin, end] = found.flightOf(image);
    row.hiddenBy.count = found.countHiding(image);
    found.scan(begin, 1, [&, end = end](NodeId node) {
      if (found.placeOf(node) >= end)
        return false;
      if (NodeId origin = result.isExpanded() ? expanded.origin[node] : node; found.hides(node))
        row.hiddenBy.names.push_back(origin == kNone ? "bucket copy" : nameOf(block.nodes[origin]));
      return row.hiddenBy.names.size() < NamedOperations::kMostNames;
    });
    row.limitingFactor = row.exposedBecause = describe(block, outcome.reason, outcome.start);
    record.rows.push_back(std::move(row));
  }
  return record;
}
