//===- BucketedOrder.h - An order whose buckets can be changed one by one ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Expanding a problem takes time in proportion to its size, a local search changes a few nodes in each trial. So this
// order has a fixed number of *slots*, and a change of buckets changes what its slots do:
//
//   slot                        alone           in a bucket
//   a start                     the start       the leader's: the bucket's start; the others': nothing
//   a wait                      the wait        an unpack; or the leader's: the bucket's wait; the others': nothing
//   the cast of a start         the cast        nothing, if the pack does its work
//   two more for each start     nothing         the leader's: the pack, and the wait of a packed all-gather
//
// A slot that does nothing takes no time and no memory, and may stand anywhere. The view of a packed reduction follows
// its wait, and has no slot. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_BUCKETEDORDER_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_BUCKETEDORDER_H

#include "CommSched/Scheduling/Buckets/BucketShape.h"
#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "Solver/Decode/DecodedSchedule.h"
#include "Time/IncrementalTimeline.h"
#include <memory>
#include <optional>

namespace commsched {

/// A bucket that a change makes.
struct FormedBucket {
  Bucket bucket;
  /// The member whose slots do the bucket's work.
  NodeId leader = kNone;
  /// Where pack and start go if they are not there already: the slot of a start that stood alone or led a bucket.
  NodeId place = kNone;
};

/// A change of buckets: some are dissolved, then some are formed of starts that are alone.
struct BucketChange {
  llvm::SmallVector<int32_t, 2> dissolved;
  llvm::SmallVector<FormedBucket, 2> formed;
  /// Where starts that are alone afterwards go: to the place that their slot has had if that is legal, before the pack
  /// of their bucket, or behind its start.
  enum Place : uint8_t { Stay, BeforePack, BehindStart } place = Stay;
  /// Slots of given nodes that move along, in their order, and the slot before which, or behind which, they go.
  llvm::SmallVector<NodeId, 8> carried;
  NodeId anchor = kNone;
  bool isBehind = false;
};

/// What an order may take with other costs: those of the nodes and merge keys of `problem`, which is otherwise the
/// problem that is solved, ns.
struct TimeGuard {
  const Problem *problem;
  Ns most;
};

/// An order with buckets, its clocks and its live bytes. Every order that it holds is legal and within the limit.
class BucketedOrder {
public:
  /// `decoded` is a legal schedule of `problem` with a peak of at most `limit` bytes, and as fast as `guards` ask.
  /// Without `bucketing` no buckets can be formed. O((N + touches) log N + E), and O(N + E) for each guard.
  BucketedOrder(const Problem &problem, bool bucketing, const DecodedSchedule &decoded, Bytes limit,
                llvm::ArrayRef<TimeGuard> guards = {});

  Ns makespan() const { return timeline->makespan(); }
  /// The order of the slots.
  llvm::ArrayRef<NodeId> order() const { return timeline->order(); }
  int32_t size() const { return static_cast<int32_t>(slots.nodes.size()); }
  /// The same order in terms of the given problem. O(N).
  DecodedSchedule decoded() const;

  int32_t position(NodeId slot) const { return memory->position(slot); }
  bool isEmpty(NodeId slot) const { return roles[slot] == Role::Empty; }
  bool isCritical(int32_t position) const { return timeline->isCritical(position); }
  /// Whether compute stands still at a wait, and the makespan depends on it.
  bool isExposed(int32_t position) const { return timeline->isExposed(position); }
  /// Whether a lane stands still before the collective of a start, and the makespan depends on it.
  bool isStarved(int32_t position) const { return timeline->isStarved(position); }
  /// The slot of the start that a wait waits for; kNone for other slots.
  NodeId startOf(NodeId slot) const { return slots.nodes[slot].start; }
  LaneId laneOf(NodeId slot) const { return slots.nodes[slot].lane; }
  /// The range of positions to which a slot can move by its dependences. O(degree, or members and their degrees).
  int32_t earliest(NodeId slot) const;
  int32_t latest(NodeId slot) const;
  /// Calls `visit` with every slot that has to come before a slot, and maybe with the slot itself. O(degree, or members
  /// and their degrees).
  void forEachBefore(NodeId slot, llvm::function_ref<void(NodeId)> visit) const;
  /// Whether a slot is a start that is alone, or the one of a bucket. O(1), for those who look at many.
  bool isStart(NodeId slot) const { return isGivenStart[slot] && roles[slot] != Role::Empty; }

  /// What the order takes with the costs of a guard, ns.
  Ns makespanOf(size_t guard) const { return guarded[guard]->timeline->makespan(); }

  /// From now on nothing is tried that concerns a position outside of these, of which there is at least one, until the
  /// next call, and nothing but makespan() and position() may be asked about what stands there. So what is tried costs
  /// no more than in an order of that length (IncrementalTimeline::focus()). O(N + E) for each guard, and once more.
  void focus(int32_t first, int32_t last);

  /// Moves what stands at `from` to `to`, within that range, if the order then takes at most `allowed` ns, which is at
  /// least makespan(), stays within the limit, and meets the guards. Returns whether it moved.
  bool tryMove(int32_t from, int32_t to, Ns allowed);

  // Buckets.
  /// All starts that may be in a bucket.
  llvm::ArrayRef<NodeId> mergeableStarts() const { return mergeable; }
  /// The bucket that a slot belongs to, or kNone.
  int32_t bucketOf(NodeId slot) const { return slot < given.size() ? bucketOfNode[slot] : bucketAt[slot]; }
  const Bucket &bucket(int32_t index) const { return buckets[index].what; }
  NodeId leaderOf(int32_t index) const { return buckets[index].leader; }
  /// The first slot that works for a start that is alone or leads a bucket: its pack if there is one.
  NodeId firstSlotOf(NodeId start) const {
    int32_t index = bucketOfNode[start];
    return index != kNone && buckets[index].shape.packs ? packSlot(start) : start;
  }

  bool mayMerge(NodeId start) const { return indexOf[start] != kNone; }
  /// The start that the slot at a position stands for: a start that is alone, or the leader of the bucket that the slot
  /// works for; kNone for all other slots.
  NodeId startAt(int32_t position) const {
    NodeId slot = order()[position];
    if (roles[slot] == Role::Empty)
      return kNone;
    if (roles[slot] != Role::Own)
      return buckets[bucketAt[slot]].leader;
    return given.nodes[slot].kind == NodeKind::Start ? slot : kNone;
  }

  /// Makes a change if it is legal and if the order then takes at most `allowed` ns, which is at least makespan(),
  /// stays within the limit, and meets the guards. Returns whether it was made. `work` is increased by the number of
  /// slots and positions that had to be looked at.
  bool tryChange(const BucketChange &change, Ns allowed, int64_t &work);

private:
  enum class Role : uint8_t { Empty, Own, Pack, Start, Wait, Unpack };
  /// What a bucket takes, ns.
  struct Price {
    /// The duration of its collective.
    Ns start = 0;
    /// What it adds to the times of its members alone, on the compute lane and on its own.
    Ns extraCompute = 0, extraLane = 0;
  };
  /// A bucket with the slots that do its work.
  struct LiveBucket {
    Bucket what;
    BucketShape shape;
    NodeId leader = kNone;
    Price price;
  };
  /// The slots with the costs of a guard.
  struct GuardedLine {
    TimeGuard guard;
    Problem slots;
    std::optional<IncrementalTimeline> timeline;
  };
  /// A place between positions: (position << kKeyBits) and a small number.
  using Key = int64_t;
  static constexpr int kKeyBits = 20;

  NodeId packSlot(NodeId start) const { return given.size() + 2 * indexOf[start]; }
  NodeId waitSlot(NodeId start) const { return packSlot(start) + 1; }
  BufferId packedBuffer(const LiveBucket &bucket) const {
    return static_cast<BufferId>(given.buffers.size()) + 2 * indexOf[bucket.leader];
  }
  BufferId mergedBuffer(const LiveBucket &bucket) const {
    return packedBuffer(bucket) + (bucket.shape.definesMerged ? 1 : 0);
  }
  Key keyOf(NodeId slot) const { return keys[slot] != kUnmoved ? keys[slot] : Key(memory->position(slot)) << kKeyBits; }
  Key keyBefore(NodeId slot) const;
  Key keyBehind(NodeId slot) const;

  /// The slot of the wait, and that of an unpack.
  NodeId waitOf(const LiveBucket &bucket) const {
    return bucket.shape.unpacksOutputs ? waitSlot(bucket.leader) : given.members[bucket.leader].wait;
  }
  NodeId slotOf(const LiveBucket &bucket, const BucketShape::Unpack &unpack) const {
    return given.members[bucket.what.members[unpack.members.front()]].wait;
  }
  Price priceOf(const Bucket &bucket) const;
  Ns startCost(const Problem &priced, const Bucket &bucket) const;
  int32_t describe(const FormedBucket &formed, const Price &price);
  bool isPromising(const BucketChange &change, llvm::ArrayRef<Price> prices, Ns allowed) const;
  void activate(int32_t index);
  void deactivate(int32_t index);
  void setOwn(NodeId node);
  void setEmpty(NodeId slot) { roles[slot] = Role::Empty; }
  Node nodeOf(NodeId slot) const { return nodeOf(slot, given); }
  Node nodeOf(NodeId slot, const Problem &priced) const;
  llvm::SmallVector<BufferId, 4> touchesOf(NodeId slot) const;
  void setBuffers(const LiveBucket &bucket);
  void makeSlots();
  void makeGuard(const TimeGuard &guard, llvm::ArrayRef<NodeId> order);
  Order initialOrder(const DecodedSchedule &decoded) const;

  void collect(NodeId slot, std::vector<NodeId> &slots);
  void collectSlots(const LiveBucket &bucket);
  void collectTouchers(const LiveBucket &bucket);
  void shiftBefore(NodeId slot, NodeId anchor);
  void shiftBehind(NodeId slot, NodeId anchor);
  void shiftTo(NodeId slot, Key key);
  void placeBucket(const LiveBucket &bucket, const LiveBucket *base, NodeId place);
  void placeUnpacks(const LiveBucket &bucket);
  void placeWait(const LiveBucket &bucket);
  void placeAlone(NodeId start, const LiveBucket &from, BucketChange::Place place);
  bool isLegal() const;
  bool takesOtherTime(NodeId slot) const;
  void findWindow();
  void exchange(llvm::ArrayRef<int32_t> out, llvm::ArrayRef<int32_t> in);
  void placeAll(const BucketChange &change, llvm::ArrayRef<int32_t> formed);
  bool takesAtMost(Ns allowed);
  bool meetsGuards(int32_t first);
  void replaceWindow(int32_t first);
  void retime(llvm::ArrayRef<NodeId> slots);
  bool staysInMemory(NodeId slot, llvm::ArrayRef<BufferId> touches) const;
  void retouch(llvm::ArrayRef<NodeId> order, llvm::ArrayRef<int32_t> active);

  const Problem &given;
  Bytes limit;
  /// The starts that may be merged. Indexed by start: its place in that list, or kNone.
  std::vector<NodeId> mergeable;
  std::vector<int32_t> indexOf;
  /// Indexed as `mergeable`: the cast that a pack does the work of, or kNone; and the duration of an unpack that serves
  /// no other member, or 0 if there is none, ns.
  std::vector<NodeId> castOf;
  std::vector<Ns> ownUnpack;
  /// The slots as a problem, with the nodes of the order that was accepted last. It has no edges: these are the given
  /// problem's, between the slots below. Its buffers are the given ones, and two for each start that may be merged.
  Problem slots;
  std::vector<LiveBucket> buckets;
  std::vector<int32_t> unusedBuckets;
  /// Indexed by slot: what it does, its bucket if it is none of the given nodes by itself, and of an unpack, its index
  /// in the bucket's shape.
  std::vector<Role> roles;
  /// Indexed by slot: whether it is that of a start of the given problem.
  std::vector<char> isGivenStart;
  std::vector<int32_t> bucketAt, unpackAt;
  /// Indexed by given node: the bucket that has absorbed it, or kNone.
  std::vector<int32_t> bucketOfNode;
  /// Indexed by given node: the slot that comes behind what it depends on, and the one that what depends on it follows.
  std::vector<NodeId> before, after;
  /// Indexed by given buffer: the one that stands for it.
  std::vector<BufferId> image;

  /// Number of changes that did not look promising.
  int64_t unpromising = 0;

  /// The change in progress: the slots that it may change, those whose times and those whose touches it changes, and
  /// those that it moves.
  std::vector<NodeId> changing, changed, retouched, moved;
  /// Indexed by slot: the number of the last change that collected it.
  std::vector<int64_t> collectedIn;
  int64_t numChanges = 0;
  static constexpr Key kUnmoved = INT64_MIN;
  /// Indexed by slot: where the change moves it, or kUnmoved.
  std::vector<Key> keys;
  int32_t numShifts = 0;
  /// Indexed by given node: `after` before the change.
  std::vector<NodeId> afterUntilNow;
  /// The positions that it changes, and what will stand there.
  int32_t windowFirst = 0;
  /// The positions of the focus.
  int32_t focusFirst = 0, focusEnd = 0;
  Order window;
  /// The positions of what it moves, ascending.
  std::vector<int32_t> left;

  std::optional<MoveEvaluator> memory;
  std::optional<IncrementalTimeline> timeline;
  std::vector<std::unique_ptr<GuardedLine>> guarded;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_BUCKETEDORDER_H
