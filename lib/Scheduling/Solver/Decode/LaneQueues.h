//===- LaneQueues.h - Ready starts of the communication lanes ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The eligible set of the serial schedule generation scheme, for communication lanes: one queue for each merge key,
// whose starts may share a bucket, and one for each lane with the starts that may not. A queue is ordered by due time
// (earliest due date first), which a policy and a reference order fix before a decode begins.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_LANEQUEUES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_LANEQUEUES_H

#include "Policy.h"
#include "Problem/RankSet.h"
#include "ScheduleFacts.h"

namespace commsched {

/// The starts of one merge key, or those of one lane that cannot be merged.
struct LaneQueue {
  LaneId lane = kNone;
  /// Whether the starts may share a bucket.
  bool merges = false;
  /// Indexed by rank: the starts, by ascending due time.
  std::vector<NodeId> byRank;
  /// The ranks of ready starts.
  RankSet ready;
};

/// All queues. Insertions and removals are O(log N).
class LaneQueues {
public:
  explicit LaneQueues(const ScheduleFacts &facts) : facts(facts) {}

  /// Empties the queues and ranks all starts. O(N log N).
  void reset(const Reference &reference, const Policy &policy);

  void insert(NodeId start) {
    LaneQueue &queue = queues[queueOf[start]];
    queue.ready.insert(rank[start]);
    ++readyStarts[queue.lane];
  }
  void remove(NodeId start) {
    LaneQueue &queue = queues[queueOf[start]];
    queue.ready.erase(rank[start]);
    --readyStarts[queue.lane];
  }

  /// Indices of a lane's queues: those of its merge keys first.
  llvm::ArrayRef<int32_t> ofLane(LaneId lane) const { return queuesOfLane[lane]; }
  /// Whether any start of a lane is ready.
  bool hasReady(LaneId lane) const { return readyStarts[lane] > 0; }
  const LaneQueue &operator[](int32_t index) const { return queues[index]; }
  /// A start's rank within its queue.
  int32_t rankOf(NodeId start) const { return rank[start]; }
  /// When a start's result is wanted, in compute time of the reference, ns.
  Ns dueOf(NodeId start) const { return due[start]; }
  bool shareQueue(NodeId a, NodeId b) const { return queueOf[a] == queueOf[b]; }

private:
  void assignQueues();

  const ScheduleFacts &facts;
  /// One queue for each merge key, then one for each lane.
  std::vector<LaneQueue> queues;
  std::vector<llvm::SmallVector<int32_t, 4>> queuesOfLane;
  /// Indexed by lane: the number of ready starts.
  std::vector<int32_t> readyStarts;
  /// Indexed by node, meaningful for starts: the queue, the rank in it, and the due time.
  std::vector<int32_t> queueOf, rank;
  std::vector<Ns> due;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_LANEQUEUES_H
