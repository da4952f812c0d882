//===- Decoder.h - The state of one pass of the list scheduler --------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Private to the list scheduler. Decoder.cpp holds set-up, computes and waits; DecoderStarts.cpp what is issued on
// communication lanes, buckets included.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODER_H

#include "ListScheduler.h"
#include "Model/RankSet.h"
#include <queue>

namespace commsched {

/// The arrays of a decode; they are kept from one decode to the next.
class Decoder {
public:
  explicit Decoder(const ScheduleFacts &facts);

  /// See ListScheduler::run.
  bool run(const Reference &reference, const Policy &policy, Bytes limit, Ns cutoff, llvm::ArrayRef<Ns> bias,
           Decoded &result);

private:
  /// Something that ends on a communication lane: a wait, or (where wait is kNone) a bucket that is to be unpacked.
  struct Flight {
    Ns end;
    NodeId wait;
    int32_t bucket;
    bool operator>(const Flight &other) const {
      return std::tie(end, wait, bucket) > std::tie(other.end, other.wait, other.bucket);
    }
  };
  /// Ready starts of one merge key, or those of a lane that cannot be merged.
  struct Queue {
    LaneId lane = kNone;
    bool merges = false;
    std::vector<NodeId> byRank;
    RankSet ready;
    /// Bytes that are ready, and bytes that have not been issued.
    Bytes readyBytes = 0, toCome = 0;
  };
  /// A merge under consideration. A single start is one with one member.
  struct Draft {
    std::vector<NodeId> members;
    Bytes bytes = 0;
    Ns cost = 0;
    /// The first member's.
    Ns due = 0;
    bool sink = false;
  };
  /// What the copies of a packed bucket take on the compute lane; grows member by member.
  struct CopyTime {
    Bytes read = 0, written = 0, small = 0;
    Ns unpacks = 0, casts = 0;
    int32_t members = 0;
  };
  /// A way to merge some starts: what it takes on the communication lane, and how much more on the compute lane.
  struct Terms {
    BucketForm form = BucketForm::Packed;
    Ns lane = 0, copies = 0;
  };
  /// A bucket in flight.
  struct FlyingBucket {
    Ns end = 0;
    /// A packed all-gather: every wait (but those in `shared`, for which the first stands) is an unpack.
    bool unpacks = false;
    /// The members' waits by position, and those that one unpack serves.
    std::vector<NodeId> waits, shared;
  };

  // Set-up.
  void prepare(llvm::ArrayRef<Ns> bias);
  Ns computeKey(NodeId node) const;
  void rankComputes(llvm::ArrayRef<Ns> bias);
  void rankStarts(llvm::ArrayRef<Ns> bias);
  void fillQueues();

  // What becomes ready, and what is done.
  void makeReady(NodeId node);
  void complete(NodeId node);
  void leaveReference(NodeId node);
  void leaveCompute(NodeId node);
  bool mayFuse(NodeId node) const;
  void emit(DecodeStep::What what, int32_t id) { result->steps.push_back({what, id}); }

  // Computes and waits.
  void drain();
  bool runACandidate();
  bool tryCompute(NodeId node);
  void runCompute(NodeId node);
  void runUnpack(NodeId wait);
  void runWait(NodeId wait);
  void completeWait(NodeId wait);
  void landEarliest();
  void runFront();
  Ns durationOf(NodeId node) const;
  bool isUnpack(NodeId wait) const { return bucketOf[wait] != kNone && flyingBuckets[bucketOf[wait]].unpacks; }

  // Starts and buckets.
  bool feed(Ns until);
  bool packAhead(Ns until);
  bool feedLane(LaneId lane, bool urgent);
  void draftBuckets(LaneId lane, bool urgent);
  bool mayGo(const Draft &draft, Ns at) const;
  bool tryFurtherSingles(LaneId lane, bool urgent);
  bool draftFrom(const Queue &queue, Ns at, bool urgent, Draft &draft) const;
  void fill(const Queue &queue, Ns at, Draft &draft) const;
  NodeId nextMember(const Queue &queue, NodeId last, int32_t &rank) const;
  Ns laxity(const Draft &draft, Ns at) const { return deadlineOf(draft.due) - at - draft.cost; }
  Ns deadlineOf(Ns due) const;
  CopyTime copies(CopyTime sum, NodeId member) const;
  Ns extraCompute(const CopyTime &sum) const;
  Terms terms(const MergeKey &key, Bytes bytes, const CopyTime &sum) const;
  int64_t priceOf(const Terms &terms) const;
  bool issue(Draft &draft);
  bool issueAlone(NodeId start);
  bool issueBucket(Draft &draft);
  bool tryForm(const Draft &draft, BucketForm form);
  void commit(const Draft &draft, BucketForm form, llvm::ArrayRef<NodeId> prelude, FlyingBucket bucket);
  void occupyLane(NodeId first, Ns cost);
  void leaveQueue(NodeId start, Ns end);

  const ScheduleFacts &facts;
  const Problem &problem;
  MemoryPromise memory;
  const Reference *reference = nullptr;
  Policy policy;
  Decoded *result = nullptr;

  /// Of each node: whether it has run or vanished; of leaders: the edges that still hold the group back.
  std::vector<char> gone;
  std::vector<int32_t> pending;
  /// The first position of the reference, and the first rank, that has something left.
  int32_t front = 0, rankFront = 0;
  /// Ready computes, unpacks and put-off waits, by rank; what may run at once.
  std::vector<int32_t> rank;
  std::vector<NodeId> byRank;
  RankSet ready;
  std::vector<NodeId> freeReady;

  std::vector<Queue> queues;
  std::vector<llvm::SmallVector<int32_t, 4>> queuesOfLane;
  std::vector<int32_t> queueOf, startRank;
  /// Of each start: by when, in compute time of the reference, its result is wanted.
  std::vector<Ns> due;
  /// Drafts of the lane that is being fed.
  std::vector<Draft> drafts;

  /// The clocks, and the compute time that is left; of it, the casts that a pack may still do itself.
  Ns compute = 0, computeLeft = 0, fusableLeft = 0, horizon = 0;
  std::vector<Ns> laneFree;
  /// Of each lane: how much earlier it is fed, for a pack that is like the last one; 0 if it had none.
  std::vector<Ns> packTime;
  std::priority_queue<Flight, std::vector<Flight>, std::greater<>> flying;
  /// Of each start: when it ends.
  std::vector<Ns> endOf;
  Bytes prefetched = 0;

  /// Of each all-gather that may be merged: what an unpack of its own takes.
  std::vector<Ns> ownUnpack;
  /// Of each wait: its bucket or kNone, and what its unpack takes. By bucket: its flight.
  std::vector<int32_t> bucketOf;
  std::vector<Ns> unpackCost;
  std::vector<FlyingBucket> flyingBuckets;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODER_H
