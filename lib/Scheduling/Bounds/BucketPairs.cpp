//===- BucketPairs.cpp - Two members in one bucket, or in two ---------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 23 of Bounds.md. A sweep over the nodes carries, for one merge key, the member whose wait and the
// computations behind it hold a node back most, and the two largest members that the node needs.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketPairs.h"
#include "BatchBound.h"
#include "CommSched/Scheduling/Model/Bucketing.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <map>

using namespace commsched;

namespace {

/// The members of one key that a node needs.
struct Needed {
  /// The member that holds the node back most, or kNone, and the work between its wait and the node, ns.
  NodeId critical = kNone;
  Ns behind = 0;
  /// The members with the most bytes, or kNone.
  NodeId largest = kNone, second = kNone;
};

/// The pairs of one merge key.
class KeyPairs {
public:
  KeyPairs(const Problem &problem, const MergeKey &key, llvm::ArrayRef<NodeId> members, const BoundCosts &costs,
           HeadsAndTails &times)
      : problem(problem), key(key), costs(costs), times(times), memberOf(problem.size(), kNone), after(problem.size()) {
    for (NodeId id : members)
      memberOf[problem.members[id].wait] = id;
  }

  /// Returns whether a head has risen.
  bool raise() {
    bool hasRisen = false;
    for (NodeId id = 0; id < problem.size(); ++id) {
      Needed needed;
      for (NodeId pred : problem.preds[id])
        merge(needed, after[pred]);
      NodeId other = needed.largest == needed.critical ? needed.second : needed.largest;
      if (problem.nodes[id].kind == NodeKind::Compute && needed.critical != kNone && other != kNone)
        if (Ns head = headWith(needed, other); head > times.head[id]) {
          times.head[id] = head;
          hasRisen = true;
        }
      leave(needed, id);
      after[id] = needed;
    }
    return hasRisen;
  }

private:
  Ns delay(const Needed &needed) const {
    return times.begin[needed.critical] + costs.path[needed.critical] + needed.behind;
  }
  void keep(Needed &into, NodeId member) const {
    if (member == kNone || member == into.largest || member == into.second)
      return;
    auto bytes = [&](NodeId id) { return id == kNone ? -1 : problem.nodes[id].bytes; };
    if (bytes(member) > bytes(into.largest))
      into.second = std::exchange(into.largest, member);
    else if (bytes(member) > bytes(into.second))
      into.second = member;
  }
  void merge(Needed &into, const Needed &from) const {
    if (from.critical != kNone && (into.critical == kNone || delay(from) > delay(into))) {
      into.critical = from.critical;
      into.behind = from.behind;
    }
    keep(into, from.largest);
    keep(into, from.second);
  }
  /// What is needed at a node's turn becomes what is needed after it.
  void leave(Needed &needed, NodeId id) const {
    needed.behind += costs.compute[id];
    if (problem.nodes[id].kind != NodeKind::Wait)
      return;
    // Waits of one bucket are one wait, so no work is known to be between them.
    needed.critical = memberOf[id];
    needed.behind = 0;
    keep(needed, memberOf[id]);
  }

  /// The head of a node that needs the critical member and another one (Lemma 23).
  Ns headWith(const Needed &needed, NodeId other) {
    const NodeId first = needed.critical;
    const Ns apart = std::min(times.begin[first], times.begin[other]) + costs.path[first] + costs.path[other];
    const Bytes bytes = problem.nodes[first].bytes + problem.nodes[other].bytes;
    if (key.cap >= 0 && bytes > key.cap)
      return apart;
    // Both are in a bucket of these costs at least.
    auto [known, isNew] = together.try_emplace({first, other});
    if (isNew)
      known->second = std::max<Ns>(std::min(key.cost(bytes) + unpackOf(first), key.coalescedCost(bytes, 2)), 0);
    return std::min(apart, std::max(times.begin[first], times.begin[other]) + known->second + needed.behind);
  }
  /// What the member's own unpack takes between a packed bucket and what depends on the wait, ns.
  Ns unpackOf(NodeId id) const {
    const Bytes output = problem.members[id].outputBytes;
    if (problem.nodes[id].collective != CollectiveKind::AllGather || output <= kSmallUnpackBytes || !problem.copyCost)
      return 0;
    return std::max<Ns>(problem.copyCost(output, output), 0);
  }

  const Problem &problem;
  const MergeKey &key;
  const BoundCosts &costs;
  HeadsAndTails &times;
  /// Indexed by node, for waits: the member that it waits for, or kNone.
  std::vector<NodeId> memberOf;
  /// Indexed by node.
  std::vector<Needed> after;
  /// By critical and other member: the least time from the beginning of a bucket with both to what follows, ns.
  std::map<std::pair<NodeId, NodeId>, Ns> together;
};

} // namespace

void commsched::raiseByPairs(const Problem &problem, const BoundCosts &costs, const BucketShares &shares,
                             HeadsAndTails &times) {
  std::vector<std::vector<NodeId>> members = membersInNoOrder(problem, shares);
  std::vector<std::pair<Bytes, size_t>> keys;
  for (auto [index, list] : llvm::enumerate(members)) {
    Bytes bytes = 0;
    for (NodeId id : list)
      bytes += problem.nodes[id].bytes;
    if (list.size() > 1)
      keys.push_back({-bytes, index});
  }
  llvm::sort(keys);
  bool hasRisen = false;
  for (auto [bytes, index] : llvm::ArrayRef(keys).take_front(kPairedKeys))
    hasRisen |= KeyPairs(problem, problem.mergeKeys[index], members[index], costs, times).raise();
  if (hasRisen)
    propagateHeads(problem, costs, times);
}
