//===- MemoryLimitedBound.cpp - A bound on the makespan under a peak limit --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemmas 10 and 11 of Bounds.md, at the nodes at which memory is scarcest: classify all nodes by their relation to
// the node, weigh the buffers, and fill one fractional knapsack for each lane.
//
//===------------------------------------------------------------------------------------------===//

#include "MemoryLimitedBound.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "CommSched/Support/Arithmetic.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Limit on the number of nodes for which the bound is computed, the scarcest first.
constexpr int64_t kScarcest = 256;
/// Limit on the sum of nodes that are visited for all of these: a few hundredths of a second.
constexpr int64_t kMaxVisits = int64_t(1) << 23;

/// The relation of a node to the node under consideration, in the partial order of dependences.
enum class Relation : uint8_t { Incomparable, Ancestor, Descendant, Self };

/// Computes the memory-limited bound, node by node.
class MemoryLimitedBounder {
public:
  MemoryLimitedBounder(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times, Bytes limit,
                       bool bucketing)
      : problem(problem), costs(costs), times(times), limit(limit), replaceable(problem.size(), 0),
        released(problem.size(), kNone), defines(definitions(problem)) {
    for (NodeId node = 0; node < problem.size(); ++node) {
      if (problem.nodes[node].kind != NodeKind::Start)
        continue;
      if (costs.lane[node] > 0)
        starts.push_back(node);
      if (!bucketing || problem.nodes[node].mergeKey == kNone || !isMergeable(problem, node))
        continue;
      const MergeMember &member = problem.members[node];
      replaceable[node] = replaceable[member.wait] = 1;
      released[member.wait] = member.input;
      if (NodeId cast = fusedCast(problem, node); cast != kNone)
        replaceable[cast] = 1;
    }
  }

  bool hasStarts() const { return !starts.empty(); }
  /// Whether the lemma applies to a node: no bucket can replace it.
  bool isUsable(NodeId node) const { return !replaceable[node] && times.exit[node] > 0; }

  /// Tightens `bound` with the bound derived at `node`.
  void tighten(NodeId node, MemoryLimitedBound &bound) {
    classify(node);
    weigh();
    fillKnapsacks(node, roomAt(node), bound);
  }

  /// The bound at the node that was looked at last for one lane, with the costs as they are now.
  Ns boundOf(NodeId node, LaneId lane) {
    MemoryLimitedBound bound;
    fillKnapsacks(node, roomAt(node), bound, lane);
    return bound.makespan;
  }

  /// Of the node that was looked at last: how another node is related to it.
  Relation relationOf(NodeId other) const { return relations[other]; }

  /// Of the starts of one lane, which are not related to the node that was looked at last: the largest sum of the
  /// `bytes` of collectives that may come before it.
  Bytes mostBefore(NodeId node, llvm::ArrayRef<NodeId> unrelated) const {
    Bytes most = 0, left = roomAt(node);
    std::vector<Item> held;
    for (NodeId start : unrelated)
      if (Bytes bytes = heldBy(start); bytes > 0)
        held.push_back({start, bytes});
      else
        most += problem.nodes[start].bytes;
    llvm::sort(held, [&](const Item &a, const Item &b) {
      int densities = compareProducts(problem.nodes[a.start].bytes, b.bytes, problem.nodes[b.start].bytes, a.bytes);
      return densities != 0 ? densities > 0 : a.start < b.start;
    });
    for (const Item &item : held) {
      Bytes fits = std::min(left, item.bytes);
      left -= fits;
      most += mulDivUp(problem.nodes[item.start].bytes, fits, item.bytes);
    }
    return most;
  }

private:
  struct Item {
    NodeId start;
    Bytes bytes;
  };

  /// What the starts that come before the node may hold, bytes.
  Bytes roomAt(NodeId node) const {
    Bytes room = limit - problem.nodes[node].workspace;
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      NodeId def = problem.buffers[id].def;
      if (def == kNone || relations[def] == Relation::Ancestor || relations[def] == Relation::Self)
        room -= weights[id];
    }
    return std::max<Bytes>(room, 0);
  }

  /// What a start adds to the sum of Lemma 10.
  Bytes heldBy(NodeId start) const {
    Bytes bytes = 0;
    for (BufferId id : defines[start])
      bytes += weights[id];
    for (BufferId id : given[start])
      bytes -= weights[id];
    return bytes;
  }

  static IndexLists definitions(const Problem &problem) {
    std::vector<std::vector<int32_t>> lists(problem.size());
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id)
      if (problem.buffers[id].def != kNone)
        lists[problem.buffers[id].def].push_back(id);
    IndexLists result;
    for (const std::vector<int32_t> &list : lists)
      result.append(list);
    return result;
  }

  void classify(NodeId node) {
    relations.assign(problem.size(), Relation::Incomparable);
    relations[node] = Relation::Self;
    auto isIn = [&](Relation relation) {
      return
          [this, relation](NodeId other) { return relations[other] == relation || relations[other] == Relation::Self; };
    };
    for (NodeId other = node + 1; other < problem.size(); ++other)
      if (llvm::any_of(problem.preds[other], isIn(Relation::Descendant)))
        relations[other] = Relation::Descendant;
    for (NodeId other = node - 1; other >= 0; --other)
      if (llvm::any_of(problem.succs[other], isIn(Relation::Ancestor)))
        relations[other] = Relation::Ancestor;
  }

  /// Sets the weights of all buffers (Lemma 10), from the last node to the first: the weights given to a node are
  /// limited by the weights of its results, and these depend on later nodes only.
  void weigh() {
    weights.assign(problem.buffers.size(), 0);
    given.assign(problem.size(), {});
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      const Buffer &buffer = problem.buffers[id];
      NodeId last = kNone;
      bool isHeld = buffer.liveOut;
      for (NodeId user : problem.users[id]) {
        if (released[user] == id)
          continue;
        isHeld |= relations[user] == Relation::Descendant || relations[user] == Relation::Self;
        if (relations[user] == Relation::Incomparable && user != buffer.def)
          last = user;
      }
      if (isHeld && !problem.users[id].empty())
        weights[id] = buffer.bytes;
      else if (last != kNone)
        given[last].push_back(id);
    }
    for (NodeId node = problem.size() - 1; node >= 0; --node) {
      Bytes results = 0;
      for (BufferId id : given[node].empty() ? llvm::ArrayRef<int32_t>() : defines[node])
        results += weights[id];
      for (BufferId id : given[node]) {
        weights[id] = std::min(results, problem.buffers[id].bytes);
        results -= weights[id];
      }
    }
  }

  /// The starts that are not ancestors of the node fill the room of their lane. The work that does not fit begins after
  /// the node (Lemma 11).
  void fillKnapsacks(NodeId node, Bytes room, MemoryLimitedBound &bound, LaneId only = kNone) {
    llvm::SmallVector<Ns, 8> work(problem.numLanes(), 0), tail(problem.numLanes(), INT64_MAX);
    items.clear();
    for (NodeId start : starts) {
      if (relations[start] == Relation::Ancestor || relations[start] == Relation::Self)
        continue;
      LaneId lane = problem.nodes[start].lane;
      tail[lane] = std::min(tail[lane], times.laneTail[start]);
      if (relations[start] == Relation::Descendant) {
        work[lane] += costs.lane[start];
        continue;
      }
      if (Bytes bytes = heldBy(start); bytes > 0)
        items.push_back({start, bytes});
    }
    llvm::sort(items, [&](const Item &a, const Item &b) {
      int densities = compareProducts(costs.lane[a.start], b.bytes, costs.lane[b.start], a.bytes);
      return densities != 0 ? densities > 0 : a.start < b.start;
    });
    llvm::SmallVector<Bytes, 8> left(problem.numLanes(), room);
    for (const Item &item : items) {
      LaneId lane = problem.nodes[item.start].lane;
      Bytes fits = std::min(left[lane], item.bytes);
      left[lane] -= fits;
      work[lane] += mulDiv(costs.lane[item.start], item.bytes - fits, item.bytes);
    }
    for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
      if ((only == kNone || lane == only) && work[lane] > 0 &&
          times.exit[node] + work[lane] + tail[lane] > bound.makespan)
        bound = {times.exit[node] + work[lane] + tail[lane], lane, node};
  }

  const Problem &problem;
  const BoundCosts &costs;
  const HeadsAndTails &times;
  const Bytes limit;
  std::vector<NodeId> starts;
  /// Indexed by node: whether a bucket may replace it.
  std::vector<char> replaceable;
  /// Indexed by node, for waits: the buffer that the wait does not hold in a packed bucket, or kNone.
  std::vector<BufferId> released;
  /// Indexed by node: the buffers that it defines.
  const IndexLists defines;
  /// For the node under consideration. Indexed by node: its relation, and the buffers that are given to it. Indexed by
  /// buffer: its weight.
  std::vector<Relation> relations;
  std::vector<Bytes> weights;
  std::vector<llvm::SmallVector<BufferId, 2>> given;
  std::vector<Item> items;
};

} // namespace

MemoryLimitedBound commsched::memoryLimitedBound(const Problem &problem, const BoundCosts &costs,
                                                 const HeadsAndTails &times, llvm::ArrayRef<Bytes> mandatory,
                                                 Bytes limit, bool bucketing) {
  MemoryLimitedBound bound;
  MemoryLimitedBounder bounder(problem, costs, times, limit, bucketing);
  if (!bounder.hasStarts())
    return bound;
  std::vector<NodeId> nodes;
  for (NodeId node = 0; node < problem.size(); ++node)
    if (bounder.isUsable(node))
      nodes.push_back(node);
  const int64_t most = std::clamp<int64_t>(kMaxVisits / std::max<int64_t>(1, problem.size()), 1, kScarcest);
  const size_t scarcest = std::min<size_t>(nodes.size(), static_cast<size_t>(most));
  std::partial_sort(nodes.begin(), nodes.begin() + scarcest, nodes.end(), [&](NodeId a, NodeId b) {
    return mandatory[a] != mandatory[b] ? mandatory[a] > mandatory[b] : a < b;
  });
  nodes.resize(scarcest);
  for (NodeId node : nodes)
    bounder.tighten(node, bound);
  return bound;
}

namespace {

/// The members of one key that do not come before a node.
struct MembersAfter {
  /// The descendants of the node; and all that have to come after it at least.
  std::vector<Release> atHead, atTail, restAtTail;
  Ns leastTail = INT64_MAX;
  /// At most so many bytes may come before the node.
  Bytes mostBefore = 0;
};

/// Forgets the last `bytes` of what is released.
void dropLast(std::vector<Release> &releases, Bytes bytes) {
  for (; bytes > 0 && !releases.empty(); releases.pop_back()) {
    Bytes dropped = std::min(bytes, releases.back().bytes);
    bytes -= dropped;
    releases.back().bytes -= dropped;
    if (releases.back().bytes > 0)
      return;
  }
}

/// Lemma 17 at a node at which memory is scarce.
class BatchesAfterNode final : public BatchArgument {
public:
  BatchesAfterNode(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                   const BucketShares &shares, Bytes limit, const MemoryLimitedBound &limited, SmallMembers rule)
      : BatchArgument(problem), times(times), limited(limited), lineCosts(costs),
        bounder(problem, lineCosts, times, limit, /*bucketing=*/true) {
    MemoryLimitedBound unused;
    bounder.tighten(limited.node, unused);
    auto isAfter = [&](NodeId id) { return costs.lane[id] > 0 && bounder.relationOf(id) != Relation::Ancestor; };
    members = membersToBatch(problem, shares, limited.lane, rule, isAfter);
    for (NodeId id = 0; id < problem.size(); ++id)
      if (problem.nodes[id].lane == limited.lane && shares.lane[id] != kNone &&
          !members[problem.nodes[id].mergeKey].empty())
        lineCosts.lane[id] = 0;
    for (auto [index, key] : llvm::enumerate(problem.mergeKeys))
      if (!members[index].empty()) {
        keys.emplace_back(problem, key, members[index]);
        add(members[index]);
      }
    llvm::erase_if(members, [](const std::vector<NodeId> &list) { return list.empty(); });
  }

private:
  void add(llvm::ArrayRef<NodeId> list) {
    MembersAfter &after = sorted.emplace_back();
    std::vector<NodeId> unrelated;
    for (NodeId id : list) {
      Bytes bytes = problem.nodes[id].bytes;
      after.restAtTail.push_back({times.laneTail[id], bytes});
      if (bounder.relationOf(id) == Relation::Incomparable) {
        unrelated.push_back(id);
        continue;
      }
      after.atHead.push_back({times.begin[id], bytes});
      after.atTail.push_back({times.laneTail[id], bytes});
      after.leastTail = std::min(after.leastTail, times.laneTail[id]);
    }
    for (std::vector<Release> *releases : {&after.atHead, &after.atTail, &after.restAtTail})
      llvm::stable_sort(*releases, [](const Release &a, const Release &b) { return a.time < b.time; });
    after.mostBefore = bounder.mostBefore(limited.node, unrelated);
    dropLast(after.restAtTail, after.mostBefore);
  }

  /// Charges the members what the lines say, and computes the bound without latencies.
  void linesChanged() override {
    for (auto [key, list] : llvm::zip_equal(keys, members))
      for (NodeId id : list)
        lineCosts.lane[id] = key.costOf(problem.nodes[id].bytes);
    withoutLatencies = bounder.boundOf(limited.node, limited.lane);
  }

  bool fits(Ns makespan) const override {
    llvm::SmallVector<int64_t, 4> numbers;
    for (auto [key, after] : llvm::zip_equal(keys, sorted)) {
      Ns exit = times.exit[limited.node];
      std::optional<int64_t> fromHeads =
          after.atHead.empty() ? 0 : key.batches(after.atHead, makespan - after.leastTail);
      std::optional<int64_t> fromTails = key.batches(after.atTail, makespan - exit);
      std::optional<int64_t> rest = key.batches(after.restAtTail, makespan - exit);
      if (!fromHeads || !fromTails || !rest)
        return false;
      numbers.push_back(std::max({*fromHeads, *fromTails, *rest}));
    }
    return fitsWith(withoutLatencies, numbers, makespan);
  }

  const HeadsAndTails &times;
  const MemoryLimitedBound &limited;
  /// With the charges of the lines.
  BoundCosts lineCosts;
  /// Of each of the `keys`.
  std::vector<std::vector<NodeId>> members;
  MemoryLimitedBounder bounder;
  std::vector<MembersAfter> sorted;
  Ns withoutLatencies = 0;
};

} // namespace

MemoryLimitedBound commsched::memoryLimitedBatches(const Problem &problem, const BoundCosts &costs,
                                                   const HeadsAndTails &times, const BucketShares &shares, Bytes limit,
                                                   const MemoryLimitedBound &limited, Ns floor) {
  MemoryLimitedBound bound = limited;
  if (limited.node == kNone)
    return bound;
  // No member counts more than what it takes alone.
  Wide most = limited.makespan;
  for (NodeId id = 0; id < problem.size(); ++id)
    if (shares.lane[id] != kNone && problem.nodes[id].lane == limited.lane)
      most += std::max<Ns>(problem.nodes[id].cost - costs.lane[id], 0);
  if (most > floor)
    for (SmallMembers rule : rulesForSmallMembers(problem))
      bound.makespan =
          BatchesAfterNode(problem, costs, times, shares, limit, limited, rule).raise(std::max(floor, bound.makespan));
  return bound;
}
