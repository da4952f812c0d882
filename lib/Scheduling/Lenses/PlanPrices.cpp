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

PricedRepetitions::PricedRepetitions(const Problem &problem, llvm::ArrayRef<Repetition> repetitions)
    : items(repetitions.size()) {
  // Indexed by buffer: the repetition that allocates it. Indexed by node: the repetition that it is part of.
  std::vector<int32_t> ownerOf(problem.buffers.size(), kNone), partOf(problem.size(), kNone);
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
    std::vector<int64_t> shape;
    item.gap = repetition.again.back() - repetition.first.back();
    for (NodeId id : repetition.again) {
      const Node &node = problem.nodes[id];
      item.work.push_back({node.lane, node.cost});
      shape.insert(shape.end(), {static_cast<int64_t>(node.kind), node.lane, node.cost});
      for (BufferId buffer : problem.touches[id])
        if (ownerOf[buffer] == static_cast<int32_t>(index) && problem.buffers[buffer].def == id) {
          item.bytes += problem.buffers[buffer].bytes;
          item.hasReader |= problem.buffers[buffer].liveOut || llvm::any_of(problem.users[buffer], [&](NodeId user) {
                              return partOf[user] == kNone;
                            });
          shape.push_back(-problem.buffers[buffer].bytes);
        } else if (ownerOf[buffer] != kNone && ownerOf[buffer] != static_cast<int32_t>(index)) {
          item.inputs.push_back(ownerOf[buffer]);
        }
    }
    llvm::sort(item.inputs);
    item.inputs.erase(llvm::unique(item.inputs), item.inputs.end());
    item.shape = shapes.try_emplace(std::move(shape), static_cast<int32_t>(shapes.size())).first->second;
  }
  orderByUse();
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
  return work * kMebibyte;
}

llvm::BitVector PricedRepetitions::keptAt(const PlanPrices &prices) const {
  // Indexed by repetition: the price of having its value, one way or the other.
  std::vector<Wide> cheapest(items.size(), 0);
  auto priceOfKeeping = [&](const Item &item) { return static_cast<Wide>(prices.mebibyte) * item.bytes; };
  for (int32_t index : llvm::reverse(readersFirst)) {
    Wide again = workOf(items[index], prices);
    for (int32_t input : items[index].inputs)
      again += cheapest[input];
    cheapest[index] = std::min(priceOfKeeping(items[index]), again);
  }
  llvm::BitVector kept(size(), true), isNeeded(size());
  for (int32_t index : readersFirst) {
    const Item &item = items[index];
    if (!item.hasReader && !isNeeded.test(index))
      continue;
    Wide again = workOf(item, prices);
    for (int32_t input : item.inputs)
      again += isNeeded.test(input) || items[input].hasReader ? 0 : cheapest[input];
    if (again >= priceOfKeeping(item))
      continue;
    kept.reset(index);
    for (int32_t input : item.inputs)
      isNeeded.set(input);
  }
  return kept;
}
