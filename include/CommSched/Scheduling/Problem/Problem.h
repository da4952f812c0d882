//===- Problem.h - One block as dense integer arrays ------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Every model and every solver of this folder works on a Problem: the operations of one block as nodes 0..N-1 in
// their given order, with costs, lanes, dependences and buffers. No MLIR is seen here. A Problem is loaded from IR by
// Analysis/ProblemLoader, or made by a test.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_PROBLEM_PROBLEM_H
#define COMMSCHED_SCHEDULING_PROBLEM_PROBLEM_H

#include "CommSched/Support/Arithmetic.h"
#include "CommSched/Support/CollectiveKind.h"
#include "CommSched/Support/CollectiveVariant.h"
#include "CommSched/Support/Demand.h"
#include "CommSched/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace commsched {

/// Index of a node; also its position in the given order.
using NodeId = int32_t;
/// Index of a buffer.
using BufferId = int32_t;
/// Index of a lane. Lane 0 computes; the others communicate.
using LaneId = int32_t;

inline constexpr int32_t kNone = -1;
inline constexpr LaneId kComputeLane = 0;

/// What a node does to the lanes.
enum class NodeKind : uint8_t {
  /// Runs on the compute lane for `cost`. Views are computes of cost 0.
  Compute,
  /// Starts a collective on `lane` for `cost`; costs the compute lane `issue`.
  Start,
  /// Holds the compute lane until the collective of `start` has ended (or, for a future that came in as an argument,
  /// until `ready`).
  Wait,
  /// Occupies the compute lane and `lane` together for `cost` (a fused matmul + all-reduce).
  Hybrid,
};

/// What a node does because of its regions, or because of the function that it calls. Such a node is a compute or a
/// hybrid with more than one lane: it begins when the compute lane and all its lanes are free and when everything that
/// it waits for has ended; it then occupies all its lanes for Node::cost.
struct RegionWork {
  /// The communication lanes of its collectives, ascending; Node::lane is the first of them. Empty for a compute.
  std::vector<LaneId> lanes;
  /// Starts of the block that the node waits for, ascending. Node::ready is the same for futures that came in.
  std::vector<NodeId> starts;
  /// The groups of its collectives (Node::group), ascending.
  std::vector<int32_t> groups;
  /// Whether it sends or receives.
  bool pointToPoint = false;
};

/// One operation of the block.
struct Node {
  NodeKind kind = NodeKind::Compute;
  /// The communication lane of a start or hybrid; the compute lane otherwise.
  LaneId lane = kComputeLane;
  /// Duration on its lane(s), ns. 0 of a wait.
  Ns cost = 0;
  /// What issuing a start costs the compute lane, or what an event takes to reach the stream that awaits it, ns.
  Ns issue = 0;
  /// Of a wait: the start that it waits for, or kNone for a future that came in as an argument.
  NodeId start = kNone;
  /// Of a wait without a start, and of a node with a region: when the data that came in is there, ns.
  Ns ready = 0;
  /// Bytes that are live only while the node runs.
  Bytes workspace = 0;
  /// Of a start or hybrid: what it is.
  CollectiveKind collective = CollectiveKind::Barrier;
  /// Of a start: the bytes that its cost is a function of (all-gather: gathered bytes; reduce-scatter and all-reduce:
  /// input bytes), 0 otherwise.
  Bytes bytes = 0;
  /// Of a start that may be merged: index into Problem::mergeKeys; kNone otherwise.
  int32_t mergeKey = kNone;
  /// Of a start or hybrid: its group, for the order of collectives within one group; kNone: the lane stands for it.
  int32_t group = kNone;
  /// Of a compute or hybrid with communication in its regions: index into Problem::regions; kNone otherwise.
  int32_t region = kNone;
  /// `comm.pinned`: keeps its order relative to the other pinned nodes.
  bool pinned = false;
  /// `comm.unit`: nodes of one unit are consecutive in the given order and have to be so in every answer, in the same
  /// order; kNone: on its own. The problem has the edges of KeepTogether's closeUnits.
  int32_t unit = kNone;
  /// Index into Problem::streams of the stream that runs the node; 0 if there is only one, and of nodes on no stream.
  int32_t stream = 0;
  /// With several streams, of a compute that makes its stream wait for an event: the node that records it; kNone for
  /// all others, and for an event that was recorded outside of the block.
  NodeId event = kNone;
  /// With several streams, of a compute that records an event on its stream.
  bool records = false;
  /// Index into Problem::demands of what the node's work needs; kNone if it needs nothing that others use.
  int32_t demand = kNone;
  /// Of a start that may be carried out in other ways: index into Problem::startVariants; kNone otherwise.
  int32_t variants = kNone;
};

/// Another way to carry out the collective of one start.
struct StartVariant {
  /// Index into Problem::variantNames.
  int32_t name = kNone;
  /// As Node::cost and Node::demand.
  Ns cost = 0;
  int32_t demand = kNone;
};

/// An alias class of values with one storage. Arguments that live throughout are no buffers of a Problem: no order
/// changes them, see Problem::argumentBytes.
struct Buffer {
  Bytes bytes = 0;
  /// The node that allocates it, or kNone for a donated argument, which is live from the beginning.
  NodeId def = kNone;
  /// Returned, or otherwise visible after the block: live to the end once allocated.
  bool liveOut = false;
};

/// A list of integer lists in compressed sparse rows.
class IndexLists {
public:
  IndexLists() : offsets(1, 0) {}
  int32_t size() const { return static_cast<int32_t>(offsets.size()) - 1; }
  llvm::ArrayRef<int32_t> operator[](int32_t row) const {
    return llvm::ArrayRef<int32_t>(values).slice(offsets[row], offsets[row + 1] - offsets[row]);
  }
  /// Appends a row.
  void append(llvm::ArrayRef<int32_t> row) {
    values.insert(values.end(), row.begin(), row.end());
    offsets.push_back(static_cast<int32_t>(values.size()));
  }
  int64_t numValues() const { return static_cast<int64_t>(values.size()); }
  void reserve(int32_t rows, int64_t total) {
    offsets.reserve(rows + 1);
    values.reserve(total);
  }
  /// The transposed relation over `columns` rows: row c lists, ascending, the rows that contain c. O(size + values).
  IndexLists transposed(int32_t columns) const;

private:
  std::vector<int32_t> offsets;
  std::vector<int32_t> values;
};

/// Another way to carry out the merged collectives of one key.
struct KeyVariant {
  /// Index into Problem::variantNames.
  int32_t name = kNone;
  /// As MergeKey::cost, or MergeKey::coalescedCost with more than one member.
  std::function<Ns(Bytes bytes, int32_t members)> cost;
  /// As MergeKey::demand.
  std::function<Demand(Bytes bytes, Ns cost)> demand;
};

/// Starts of one key may be merged: same kind, group, element type and reduction.
struct MergeKey {
  CollectiveKind kind = CollectiveKind::AllGather;
  LaneId lane = kNone;
  /// Ranks of the group: an all-gather's shard is 1/ranks of its `bytes`.
  int32_t ranks = 1;
  /// Cost of one collective of this key over `bytes` in total, ns. Monotone; equal to the cost model's answer for the
  /// merged operation.
  std::function<Ns(Bytes)> cost;
  /// Largest merged collective, bytes; no limit where negative.
  Bytes cap = -1;
  /// Cost of a coalesced bucket of so many members, ns: never less than cost(). Empty: cost().
  std::function<Ns(Bytes, int32_t members)> groupCost;

  /// What a merged collective over `bytes` that takes `cost` needs; empty: nothing. Never less, of any resource, than
  /// `leastDemand`. Its share times `cost` is never less than the bytes times `leastUse`, or the whole resource.
  std::function<Demand(Bytes bytes, Ns cost)> demand;
  Shares leastDemand{};
  Uses leastUse{};
  /// Other ways to carry out a merged collective.
  std::vector<KeyVariant> variants = {};

  Ns coalescedCost(Bytes bytes, int32_t members) const { return groupCost ? groupCost(bytes, members) : cost(bytes); }
  Demand demandOf(Bytes bytes, Ns cost) const { return demand ? demand(bytes, cost) : Demand(); }
};

/// What bucketing has to know of one start beyond its Node; only starts with a mergeKey have one.
struct MergeMember {
  /// The start's only wait, and the start's only user.
  NodeId wait = kNone;
  /// The start's input buffer, or kNone where the input is an argument.
  BufferId input = kNone;
  /// The buffer of the wait's result.
  BufferId output = kNone;
  /// The start's input, in bytes (an all-gather's shard).
  Bytes inputBytes = 0;
  /// The wait's result, in bytes.
  Bytes outputBytes = 0;
  /// A cast whose only user is the start and which a pack can do itself, or kNone.
  NodeId cast = kNone;
  /// What that cast reads, in bytes.
  Bytes castInputBytes = 0;
};

/// One block, ready for scheduling. Nodes are in an order that respects every edge; edges only point forward.
struct Problem {
  std::vector<Node> nodes;
  std::vector<Buffer> buffers;
  /// Of each node, ascending: the nodes that must come before it (dependences of every sort, the collective order
  /// included), and those that must come after it.
  IndexLists preds, succs;
  /// Of each node: the buffers that it defines, reads or writes, itself or through a view, each once. A wait touches
  /// the inputs and the outputs of its start too: they are live until the last wait.
  IndexLists touches;
  /// Of each buffer, ascending: the nodes that touch it (the transposed relation).
  IndexLists users;
  /// Communication lanes by index, lane 0 ("compute") included: names for reports.
  std::vector<std::string> laneNames;
  /// Numbers of the streams (`comm.stream`), 0 first; empty if everything is on stream 0.
  std::vector<int64_t> streams;
  /// Of nodes with communication in their regions, see Node::region.
  std::vector<RegionWork> regions;
  /// By lane: until when it is busy with what came in, ns; lanes beyond the end of the list are free from the
  /// beginning.
  std::vector<Ns> busyUntil;
  /// Whether the block is the body of a loop: an iteration ends when all lanes are free, and what compute stands still
  /// for them then is exposed.
  bool joinsAtEnd = false;
  /// What may be merged; empty without bucketing. `members` has one entry per node and is empty without keys.
  std::vector<MergeKey> mergeKeys;
  std::vector<MergeMember> members;
  /// Duration of a kernel that reads and writes this many bytes to pack or unpack a bucket, ns. Empty: there is no such
  /// kernel, and every bucket is coalesced.
  std::function<Ns(Bytes read, Bytes written)> copyCost;
  /// What nodes need of the device, see Node::demand; empty if no activity disturbs another one.
  std::vector<Demand> demands;
  /// What a kernel needs that packs or unpacks a bucket.
  Demand copyDemand;
  /// The ways in which starts may be carried out other than as their cost says, and the lists of them that
  /// Node::variants names; empty if there is no choice. A schedule chooses (Schedule::variants).
  std::vector<VariantName> variantNames;
  std::vector<std::vector<StartVariant>> startVariants;
  /// Arguments that live throughout, in bytes; not part of any peak of this folder.
  Bytes argumentBytes = 0;

  NodeId size() const { return static_cast<NodeId>(nodes.size()); }
  LaneId numLanes() const { return static_cast<LaneId>(laneNames.size()); }
  /// Whether operations are on several streams. Such a block is measured and reported; solvers do not take it.
  bool hasStreams() const { return streams.size() > 1; }
  /// Whether activities that run together may slow each other down (Models.md, "Contention").
  bool hasContention() const { return !demands.empty(); }
  /// Whether collectives may be carried out in several ways.
  bool hasVariants() const { return !variantNames.empty(); }
  /// What a node's work needs.
  const Demand &demandOf(const Node &node) const {
    static const Demand nothing;
    return node.demand == kNone ? nothing : demands[node.demand];
  }
  /// Gives a node a demand.
  void setDemand(Node &node, const Demand &demand);
  /// Forgets all demands if no resource is used on two lanes: a lane runs one activity at a time, so nothing is ever
  /// slowed down. To be called before keys and variants are loaded. O(N).
  void dropIdleDemands();
  /// The clocks of the lanes before the first node.
  template <class Lanes> void beginLanes(Lanes &lanes) const {
    lanes.assign(std::max<LaneId>(numLanes(), 1), 0);
    std::copy(busyUntil.begin(), busyUntil.end(), lanes.begin());
  }
  /// When the starts that a node with a region waits for have ended, ns. `ends`: by node.
  Ns endOfAwaited(const Node &node, const std::vector<Ns> &ends) const {
    Ns end = node.ready;
    for (NodeId start : regions[node.region].starts)
      end = std::max(end, ends[start]);
    return end;
  }
  /// When a node with a region begins, ns. `compute` is the compute lane's clock; `lanes` has the other lanes'.
  template <class Lanes>
  Ns beginOfRegion(const Node &node, Ns compute, const Lanes &lanes, const std::vector<Ns> &ends) const {
    Ns begin = std::max(compute, endOfAwaited(node, ends));
    for (LaneId lane : regions[node.region].lanes)
      begin = std::max(begin, lanes[lane]);
    return begin;
  }

  /// Derives `succs` and `users` from `preds` and `touches`. To be called once after loading. O(N + E).
  void finalize();

  /// Says what is wrong with the arrays (an edge that points backward, a wait of a node that is no start, a buffer
  /// touched before its definition, a lane out of range, sums that could overflow, ...), or returns an empty string.
  /// O(N + E).
  std::string validate() const;
};

/// The largest sums of all times and of all sizes of a Problem, in ns and bytes: solvers and bounds add and compare
/// sums of them without looking for overflows.
inline constexpr Ns kMaxTotalNs = kLargestAmount;
inline constexpr Bytes kMaxTotalBytes = kLargestAmount;

/// A permutation of a Problem's nodes.
using Order = std::vector<NodeId>;

/// The given order: 0, 1, ..., N-1.
Order identityOrder(const Problem &problem);

/// The problem whose given order is `order` of `problem`, a permutation that respects its edges. O(N + E).
Problem inOrder(const Problem &problem, llvm::ArrayRef<NodeId> order);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_PROBLEM_PROBLEM_H
