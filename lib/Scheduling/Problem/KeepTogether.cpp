//===- KeepTogether.cpp - Nodes that stay next to each other ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Closes dependences over units, so that each unit can be placed as one, and gathers the members of units that an order
// has torn apart.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Problem/KeepTogether.h"
#include "llvm/ADT/STLExtras.h"

using namespace commsched;

namespace {

/// The ids of a unit's first and last member. Indexed by unit.
using UnitRange = std::pair<NodeId, NodeId>;

std::vector<UnitRange> findRanges(int32_t numNodes, llvm::function_ref<int32_t(NodeId)> unitOf) {
  std::vector<UnitRange> ranges;
  for (NodeId id = 0; id < numNodes; ++id) {
    int32_t unit = unitOf(id);
    if (unit == kNone)
      continue;
    if (static_cast<size_t>(unit) >= ranges.size())
      ranges.resize(unit + 1, {kNone, kNone});
    if (ranges[unit].first == kNone)
      ranges[unit].first = id;
    ranges[unit].second = id;
  }
  return ranges;
}

std::vector<UnitRange> findRanges(const Problem &problem) {
  return findRanges(problem.size(), [&](NodeId id) { return problem.nodes[id].unit; });
}

} // namespace

IndexLists commsched::closeUnits(const IndexLists &preds, llvm::ArrayRef<int32_t> unitOf,
                                 llvm::ArrayRef<std::pair<int32_t, int32_t>> turns) {
  std::vector<UnitRange> ranges = findRanges(preds.size(), [&](NodeId id) { return unitOf[id]; });
  if (ranges.empty())
    return preds;
  std::vector<llvm::SmallVector<NodeId, 2>> before(ranges.size());
  for (auto [earlier, later] : turns)
    before[later].push_back(ranges[earlier].second);
  IndexLists closed;
  closed.reserve(preds.size(), 2 * preds.numValues());
  std::vector<NodeId> row;
  // Adds what `id` depends on outside of its unit: of another unit, all of it.
  auto addOutside = [&](NodeId id) {
    for (NodeId pred : preds[id])
      if (unitOf[pred] == kNone)
        row.push_back(pred);
      else if (unitOf[pred] != unitOf[id])
        row.push_back(ranges[unitOf[pred]].second);
  };
  for (NodeId id = 0; id < preds.size(); ++id) {
    row.assign(preds[id].begin(), preds[id].end());
    int32_t unit = unitOf[id];
    if (unit == kNone) {
      addOutside(id);
    } else if (id == ranges[unit].first) {
      for (NodeId member = id; member <= ranges[unit].second; ++member)
        addOutside(member);
      llvm::append_range(row, before[unit]);
    } else {
      row.push_back(id - 1);
    }
    llvm::sort(row);
    row.erase(llvm::unique(row), row.end());
    closed.append(row);
  }
  return closed;
}

bool commsched::hasUnits(const Problem &problem) {
  return llvm::any_of(problem.nodes, [](const Node &node) { return node.unit != kNone; });
}

Order commsched::gatherUnits(const Problem &problem, llvm::ArrayRef<NodeId> order, UnitPlace place) {
  std::vector<UnitRange> ranges = findRanges(problem);
  Order gathered;
  gathered.reserve(order.size());
  for (NodeId id : order) {
    int32_t unit = problem.nodes[id].unit;
    if (unit == kNone) {
      gathered.push_back(id);
      continue;
    }
    auto [first, last] = ranges[unit];
    if (id == (place == UnitPlace::First ? first : last))
      for (NodeId member = first; member <= last; ++member)
        gathered.push_back(member);
  }
  return gathered;
}

std::optional<Order> commsched::keepTogether(const Problem &problem, Order order,
                                             llvm::function_ref<bool(llvm::ArrayRef<NodeId> order)> accept) {
  Order last = gatherUnits(problem, order, UnitPlace::Last);
  if (last == order)
    return order;
  if (accept(last))
    return last;
  Order first = gatherUnits(problem, order, UnitPlace::First);
  if (accept(first))
    return first;
  return std::nullopt;
}
