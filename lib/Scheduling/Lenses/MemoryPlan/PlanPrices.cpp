//===- PlanPrices.cpp - Plans from prices of lanes and of memory ------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//

#include "PlanPrices.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

using namespace commsched;

/// The unit of PlanPrices::mebibyte, bytes.
static constexpr Wide kMebibyte = Wide(1) << 20;
/// The scarcity of the whole order.
static constexpr int64_t kWholeScarcity = int64_t(1) << 20;

PricedRepetitions::PricedRepetitions(const Problem &problem, llvm::ArrayRef<Repetition> repetitions,
                                     llvm::ArrayRef<int64_t> scarcity)
    : items(repetitions.size()), ownerOf(problem.buffers.size(), kNone), partOf(problem.size(), kNone) {
  int64_t total = 1, sum = 0;
  for (int64_t weight : scarcity)
    total += weight;
  for (int64_t weight : scarcity) {
    before.push_back(mulDiv(sum, kWholeScarcity, total));
    sum += weight;
  }
  for (auto [index, repetition] : llvm::enumerate(repetitions))
    for (NodeId node : repetition.again) {
      partOf[node] = static_cast<int32_t>(index);
      for (BufferId buffer : problem.touches[node])
        if (problem.buffers[buffer].def == node)
          ownerOf[buffer] = static_cast<int32_t>(index);
    }
  std::map<std::vector<int64_t>, int32_t> shapes;
  for (auto [index, repetition] : llvm::enumerate(repetitions)) {
    Item &item = items[index];
    item.gap = repetition.again.back() - repetition.first.back();
    item.begin = repetition.again.front();
    item.lastEarly = repetition.first.back();
    for (NodeId id : repetition.first)
      for (BufferId buffer : problem.touches[id])
        if (problem.buffers[buffer].def == id)
          for (NodeId user : problem.users[buffer])
            if (user < item.begin)
              item.lastEarly = std::max(item.lastEarly, user);
    std::vector<int64_t> shape;
    for (NodeId id : repetition.again)
      addNode(static_cast<int32_t>(index), problem, id, shape);
    llvm::sort(item.inputs);
    item.inputs.erase(llvm::unique(item.inputs), item.inputs.end());
    item.shape = shapes.try_emplace(std::move(shape), static_cast<int32_t>(shapes.size())).first->second;
  }
  orderByUse();
}

/// Adds a node of a repetition to what is known of it.
void PricedRepetitions::addNode(int32_t index, const Problem &problem, NodeId id, std::vector<int64_t> &shape) {
  Item &item = items[index];
  const Node &node = problem.nodes[id];
  item.work.push_back({node.lane, node.cost});
  shape.insert(shape.end(), {static_cast<int64_t>(node.kind), node.lane, node.cost});
  for (BufferId buffer : problem.touches[id]) {
    if (ownerOf[buffer] != kNone && ownerOf[buffer] != index)
      item.inputs.push_back(ownerOf[buffer]);
    if (problem.buffers[buffer].def != id)
      continue;
    item.bytes += problem.buffers[buffer].bytes;
    shape.push_back(-problem.buffers[buffer].bytes);
    if (problem.buffers[buffer].liveOut)
      item.firstLate = item.begin;
    for (NodeId user : problem.users[buffer])
      if (partOf[user] == kNone && (item.firstLate == kNone || user < item.firstLate))
        item.firstLate = user;
  }
}

/// Kahn's algorithm. What reads a value is made after it, so there are no cycles.
void PricedRepetitions::orderByUse() {
  std::vector<int32_t> readers(items.size(), 0);
  for (const Item &item : items)
    for (int32_t input : item.inputs)
      ++readers[input];
  for (int32_t index = 0; index < size(); ++index)
    if (readers[index] == 0)
      readersFirst.push_back(index);
  for (size_t next = 0; next < readersFirst.size(); ++next)
    for (int32_t input : items[readersFirst[next]].inputs)
      if (--readers[input] == 0)
        readersFirst.push_back(input);
}

Wide PricedRepetitions::workOf(const Item &item, const PlanPrices &prices) const {
  Wide work = 0;
  for (auto [lane, time] : item.work)
    work += static_cast<Wide>(prices.lanes[lane]) * time;
  return work * kMebibyte * kWholeScarcity;
}

/// The price of having the buffers of a repetition from one node to another one.
Wide PricedRepetitions::priceOfBytes(const Item &item, const PlanPrices &prices, NodeId from, NodeId to) const {
  return to <= from ? 0 : static_cast<Wide>(prices.mebibyte) * item.bytes * (before[to] - before[from]);
}

/// Indexed by repetition: about what it costs to have its value for the first repetition that reads it.
std::vector<Wide> PricedRepetitions::cheapestAt(const PlanPrices &prices) const {
  std::vector<Wide> cheapest(items.size(), 0);
  for (int32_t index : llvm::reverse(readersFirst)) {
    const Item &item = items[index];
    Wide again = workOf(item, prices);
    if (item.firstLate != kNone)
      again += priceOfBytes(item, prices, item.begin, item.firstLate);
    for (int32_t input : item.inputs)
      again += cheapest[input];
    cheapest[index] = std::min(priceOfBytes(item, prices, item.lastEarly, item.begin), again);
  }
  return cheapest;
}

llvm::BitVector PricedRepetitions::keptAt(const PlanPrices &prices) const {
  std::vector<Wide> cheapest = cheapestAt(prices);
  // Indexed by repetition: where its value is needed first; kNone if it is not.
  std::vector<NodeId> neededAt;
  for (const Item &item : items)
    neededAt.push_back(item.firstLate);
  llvm::BitVector kept(size(), true);
  for (int32_t index : readersFirst) {
    const Item &item = items[index];
    const NodeId at = neededAt[index];
    if (at == kNone)
      continue;
    Wide again = workOf(item, prices);
    for (int32_t input : item.inputs) {
      const Item &read = items[input];
      // A value that is needed later anyway is kept, or made again so much earlier.
      again += neededAt[input] == kNone ? cheapest[input]
                                        : std::min(priceOfBytes(read, prices, read.lastEarly, neededAt[input]),
                                                   priceOfBytes(read, prices, at, neededAt[input]));
    }
    if (again >= priceOfBytes(item, prices, item.lastEarly, at))
      continue;
    kept.reset(index);
    for (int32_t input : item.inputs)
      if (neededAt[input] == kNone || at < neededAt[input])
        neededAt[input] = at;
  }
  return kept;
}
