//===- PlanPrices.h - Plans from prices of lanes and of memory --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// With a price for a byte that is kept and for a nanosecond on each lane, every value is either cheaper to keep or
// cheaper to make again. Making a value again may need others that are made again as well, or kept. Bytes have their
// price only while memory is scarce: a weight for each node says so.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANPRICES_H
#define COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANPRICES_H

#include "CommSched/Scheduling/Lenses/Rematerialization.h"

namespace commsched {

/// Prices of a byte and of the lanes.
struct PlanPrices {
  /// Indexed by lane: the price of a nanosecond, in thousandths.
  std::vector<int64_t> lanes;
  /// The price of keeping a mebibyte, in the same unit as a nanosecond of a lane.
  int64_t mebibyte = 0;
};

/// The repetitions of one problem as things with prices.
class PricedRepetitions {
public:
  /// `scarcity` is indexed by node: the weight of the time for which the node runs in the order given. O(size of the
  /// problem).
  PricedRepetitions(const Problem &problem, llvm::ArrayRef<Repetition> repetitions, llvm::ArrayRef<int64_t> scarcity);

  /// The repetitions that are not worth their price, indexed by repetition: what is to be kept. O(repetitions and what
  /// they read).
  llvm::BitVector keptAt(const PlanPrices &prices) const;

  int32_t size() const { return static_cast<int32_t>(items.size()); }
  /// The buffers of a repetition, in bytes.
  Bytes bytesOf(int32_t index) const { return items[index].bytes; }
  /// What repetitions of one kind have in common: kinds, lanes, costs and sizes. Equal numbers for equal shapes, in the
  /// order in which they appear.
  int32_t shapeOf(int32_t index) const { return items[index].shape; }
  /// The number of nodes for which the value would be kept in the order given.
  NodeId gapOf(int32_t index) const { return items[index].gap; }

private:
  struct Item {
    Bytes bytes = 0;
    int32_t shape = 0;
    NodeId gap = 0;
    /// The last reader of the first value in front of the repetition, and the first reader of the repetition that is
    /// no repetition itself; kNone if there is none.
    NodeId lastEarly = 0, firstLate = kNone;
    /// The first node of the repetition.
    NodeId begin = 0;
    /// Lanes and times.
    std::vector<std::pair<LaneId, Ns>> work;
    /// Repetitions whose values it reads, each once.
    std::vector<int32_t> inputs;
  };

  void addNode(int32_t index, const Problem &problem, NodeId id, std::vector<int64_t> &shape);
  void orderByUse();
  Wide workOf(const Item &item, const PlanPrices &prices) const;
  Wide priceOfBytes(const Item &item, const PlanPrices &prices, NodeId from, NodeId to) const;
  std::vector<Wide> cheapestAt(const PlanPrices &prices) const;

  std::vector<Item> items;
  /// Indexed by node: the scarcity before it, in parts of kWholeScarcity.
  std::vector<int64_t> before;
  /// Indexed by buffer: the repetition that allocates it. Indexed by node: the repetition that it is part of.
  std::vector<int32_t> ownerOf, partOf;
  /// All repetitions, those that read a value before the one that makes it.
  std::vector<int32_t> readersFirst;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_LENSES_MEMORYPLAN_PLANPRICES_H
