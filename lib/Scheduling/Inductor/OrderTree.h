//===- OrderTree.h - A balanced tree over an order --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A treap with implicit keys (R. Seidel and C. R. Aragon, "Randomized search trees", 1996) over the positions of an
// order. Segments swap places, ranges of live bytes change, and queries like "the nearest position to the left at which
// this would exceed the limit" are answered, each in logarithmic time. It replaces the walk of adjacent swaps in the
// passes that move one collective at a time.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_INDUCTOR_ORDERTREE_H
#define COMMSCHED_LIB_SCHEDULING_INDUCTOR_ORDERTREE_H

#include "CommSched/Scheduling/Problem/Problem.h"

namespace commsched {

/// The values of one node.
struct OrderTreeItem {
  /// Live bytes while the node runs.
  Bytes live = 0;
  /// Live bytes at one side of the node; the user chooses the side.
  Bytes edge = 0;
  /// A non-negative amount that is summed up over ranges.
  int64_t work = 0;
  /// Bits that can be searched for.
  uint8_t tags = 0;
};

/// An order of the nodes 0..N-1. Ranges are half-open positions [first, last). Every operation is O(log N) unless it
/// says otherwise. The shape depends on the sequence of operations alone, so equal calls take equal steps.
class OrderTree {
public:
  /// `items` is indexed by node. O(N).
  OrderTree(llvm::ArrayRef<NodeId> order, llvm::ArrayRef<OrderTreeItem> items);

  int32_t size() const { return static_cast<int32_t>(links.size()); }
  int32_t position(NodeId node) const;
  NodeId at(int32_t position) const;
  /// O(N).
  Order order() const;

  Bytes live(int32_t position) const { return valueAt(position, Field::Live); }
  Bytes edge(int32_t position) const { return valueAt(position, Field::Edge); }
  void addLive(int32_t first, int32_t last, Bytes bytes) { add(root, 0, first, last, Field::Live, bytes); }
  void addEdge(int32_t first, int32_t last, Bytes bytes) { add(root, 0, first, last, Field::Edge, bytes); }
  /// The largest `live` of a non-empty range.
  Bytes maxLive(int32_t first, int32_t last) const { return maximum(root, 0, first, last); }
  /// The sum of `work` over a range; 0 for an empty range.
  int64_t work(int32_t first, int32_t last) const { return prefixWork(last) - prefixWork(first); }

  /// The first / last position of the range where live > liveLimit or edge > edgeLimit, or kNone.
  int32_t firstAbove(int32_t first, int32_t last, Bytes liveLimit, Bytes edgeLimit) const;
  int32_t lastAbove(int32_t first, int32_t last, Bytes liveLimit, Bytes edgeLimit) const;
  /// The first / last position of the range that has one of these tags, or kNone.
  int32_t firstTagged(int32_t first, int32_t last, uint8_t tags) const;
  int32_t lastTagged(int32_t first, int32_t last, uint8_t tags) const;
  /// The first position p of the range with work(first, p + 1) > amount, or kNone.
  int32_t firstWithWork(int32_t first, int32_t last, int64_t amount) const;
  /// The last position p of the range with work(p, last) > amount, or kNone.
  int32_t lastWithWork(int32_t first, int32_t last, int64_t amount) const;

  /// Swaps the neighbouring segments [first, middle) and [middle, last).
  void rotate(int32_t first, int32_t middle, int32_t last);

private:
  enum class Field : uint8_t { Live, Edge };
  /// The shape, stored apart from the values because most walks through the tree need the shape alone.
  struct Links {
    NodeId left = kNone, right = kNone, parent = kNone;
    int32_t size = 1;
  };
  /// Maxima, sums and tags are those of the subtree. Pending additions have been applied to this node and its
  /// aggregates, not yet to its children.
  struct Values {
    Bytes value[2], most[2], pending[2] = {0, 0};
    int64_t work, workSum;
    uint8_t tags, tagsBelow;
  };
  struct Query;

  int32_t sizeOf(NodeId node) const { return node == kNone ? 0 : links[node].size; }
  NodeId build(llvm::ArrayRef<NodeId> order);
  void pull(NodeId node);
  void push(NodeId node);
  void apply(NodeId node, Field field, Bytes bytes);
  void split(NodeId node, int32_t count, NodeId &left, NodeId &right);
  NodeId merge(NodeId left, NodeId right);
  void add(NodeId node, int32_t offset, int32_t first, int32_t last, Field field, Bytes bytes);
  Bytes maximum(NodeId node, int32_t offset, int32_t first, int32_t last) const;
  Bytes valueAt(int32_t position, Field field) const;
  int64_t prefixWork(int32_t position) const;
  int32_t longestPrefixWithin(int64_t amount) const;
  int32_t search(const Query &query, NodeId node, int32_t offset, Bytes live, Bytes edge) const;
  uint32_t random(uint32_t bound);

  std::vector<Links> links;
  std::vector<Values> values;
  NodeId root = kNone;
  uint64_t state = 0x9E3779B97F4A7C15ull;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_INDUCTOR_ORDERTREE_H
