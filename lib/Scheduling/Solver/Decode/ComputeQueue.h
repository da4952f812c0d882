//===- ComputeQueue.h - Ready computations in priority order ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The eligible set of the serial schedule generation scheme, for the compute lane. Everything that occupies the compute
// lane has a rank, which a policy and a reference order fix before a decode begins: computes and hybrids, unpacks
// (under the name of their wait), and waits, which become candidates if memory refuses them when their data arrives.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_COMPUTEQUEUE_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_COMPUTEQUEUE_H

#include "Policy.h"
#include "Problem/RankSet.h"
#include "ScheduleFacts.h"

namespace commsched {

/// The ready candidates of the compute lane. Insertions, removals and steps from one candidate to the next are
/// O(log N).
class ComputeQueue {
public:
  explicit ComputeQueue(const ScheduleFacts &facts) : facts(facts) {}

  /// Empties the queue and ranks all nodes. O(N log N + E).
  void reset(const Reference &reference, const Policy &policy);

  void insert(NodeId node) { ready.insert(rank[node]); }

  /// Tells the queue that a node has been placed or absorbed by a bucket, whether it was ready or not.
  void markPlaced(NodeId node) {
    if (rank[node] == kNone)
      return;
    ready.erase(rank[node]);
    placedAtRank[rank[node]] = 1;
    while (front < static_cast<int32_t>(byRank.size()) && placedAtRank[front])
      ++front;
  }

  /// The smallest rank of a ready candidate, and the smallest one above `rank`; negative if there is none.
  int32_t first() const { return ready.first(); }
  int32_t next(int32_t rank) const { return ready.next(rank + 1); }
  NodeId nodeAt(int32_t rank) const { return byRank[rank]; }
  /// The number of ranks between a candidate and the first node that has not been placed.
  int32_t ahead(int32_t rank) const { return rank - front; }

private:
  Ns keyOf(const Reference &reference, const Policy &policy, NodeId node) const;

  const ScheduleFacts &facts;
  /// Indexed by node: its rank, or kNone for starts and their feeders.
  std::vector<int32_t> rank;
  /// Indexed by rank: the node, and whether it has been placed.
  std::vector<NodeId> byRank;
  std::vector<char> placedAtRank;
  RankSet ready;
  /// The first rank that has not been placed.
  int32_t front = 0;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_COMPUTEQUEUE_H
