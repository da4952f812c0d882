//===- HeadsAndTails.cpp - The earliest and the latest that lanes allow -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two passes over the nodes in their (topological) order, forward for heads and backward for tails. Each keeps, for a
// universe of nodes, the set of pieces of work before (after) each node as bits, one section of bits per lane. Within a
// section the bits are sorted by falling head (tail), so that a level is a prefix of the set bits. A head that has
// become larger than the one that the bits were sorted by makes a level weaker, never wrong.
//
// Up to a size the universe is everything. Beyond, universes are overlapping windows; what lies before a window enters
// as one block per lane: the best level at one milestone, for those nodes that descend from it.
//
//===------------------------------------------------------------------------------------------===//

#include "HeadsAndTails.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <limits>

using namespace commsched;

namespace {

/// The work of one level: it begins no earlier than `head` and keeps its lane busy for `load`.
struct Level {
  Ns head = std::numeric_limits<Ns>::max();
  Ns load = 0;
  Ns value() const { return load == 0 ? 0 : head + load; }
};

/// The sets of a range of nodes.
class Universe {
public:
  /// `computeKey` and `laneKey` are what the bits are sorted by. With `twoSets` a row has a second set for each
  /// communication lane.
  Universe(const Problem &problem, const BoundCosts &costs, NodeId first, NodeId last,
           const std::vector<Ns> &computeKey, const std::vector<Ns> &laneKey, bool twoSets)
      : first(first), last(last), sections(problem.numLanes()), computeBit(last - first, kNone),
        laneBit(last - first, kNone), rows(last - first, kNone) {
    int32_t word = 0;
    std::vector<std::vector<NodeId>> byLane(problem.numLanes());
    for (NodeId id = first; id < last; ++id) {
      if (costs.compute[id] > 0)
        byLane[kComputeLane].push_back(id);
      if (costs.lane[id] > 0)
        byLane[problem.nodes[id].lane].push_back(id);
    }
    for (LaneId lane = 0; lane < problem.numLanes(); ++lane) {
      bool isCompute = lane == kComputeLane;
      const std::vector<Ns> &key = isCompute ? computeKey : laneKey;
      std::vector<NodeId> &nodes = byLane[lane];
      llvm::stable_sort(nodes, [&](NodeId a, NodeId b) { return key[a] > key[b]; });
      Section &section = sections[lane];
      section.firstWord = word;
      section.words = static_cast<int32_t>(llvm::divideCeil(nodes.size(), 64));
      word += section.words;
      section.key.resize(section.words * 64, 0);
      section.load.resize(section.words * 64, 0);
      section.rest.resize(section.words + 1, 0);
      for (auto [index, id] : llvm::enumerate(nodes)) {
        (isCompute ? computeBit : laneBit)[id - first] = section.firstWord * 64 + static_cast<int32_t>(index);
        section.key[index] = key[id];
        section.load[index] = (isCompute ? costs.compute : costs.lane)[id];
      }
      for (int32_t at = section.words - 1; at >= 0; --at)
        for (int32_t bit = 63; bit >= 0; --bit)
          section.rest[at] += section.load[at * 64 + bit] + (bit == 63 ? section.rest[at + 1] : 0);
      if (isCompute)
        commWord = word;
    }
    secondSet = twoSets ? word - commWord : 0;
    words = word + secondSet;
  }

  bool contains(NodeId id) const { return id >= first && id < last; }

  uint64_t *row(NodeId id) { return pool.data() + static_cast<size_t>(rows[id - first]) * words; }
  int32_t rowIndex(NodeId id) const { return rows[id - first]; }
  void shareRow(NodeId id, NodeId other) { rows[id - first] = rows[other - first]; }
  void newRow(NodeId id) {
    rows[id - first] = used++;
    if (static_cast<size_t>(used) * words > pool.size())
      pool.resize(std::max<size_t>(static_cast<size_t>(used) * words, std::min<size_t>(pool.size() * 2, capacity())));
  }
  /// Unites the rows of `others` into a new row for `id`, or shares a row where that is the same.
  void unite(NodeId id, llvm::ArrayRef<NodeId> others) {
    newRow(id);
    uint64_t *into = row(id);
    for (NodeId other : others) {
      const uint64_t *from = row(other);
      for (int32_t word = 0; word < words; ++word)
        into[word] |= from[word];
    }
  }
  bool equal(NodeId a, NodeId b) { return rowIndex(a) == rowIndex(b) || std::equal(row(a), row(a) + words, row(b)); }

  void addCompute(NodeId id) { set(row(id), computeBit[id - first]); }
  /// Puts the lane work of `what` into the sets of `id`.
  void addLane(NodeId id, NodeId what) { set(row(id), laneBit[what - first]); }
  void addLaneSecond(NodeId id, NodeId what) {
    if (laneBit[what - first] != kNone)
      set(row(id), laneBit[what - first] + 64 * secondSet);
  }
  /// Puts the second set of `from` on `lane` into the first set of `id`.
  void completeLane(NodeId id, NodeId from, LaneId lane) {
    const Section &section = sections[lane];
    uint64_t *into = row(id) + section.firstWord;
    const uint64_t *second = row(from) + section.firstWord + secondSet;
    for (int32_t word = 0; word < section.words; ++word)
      into[word] |= second[word];
  }

  /// The keys that levels are computed with.
  void setComputeKey(NodeId id, Ns key) {
    if (computeBit[id - first] != kNone)
      sections[kComputeLane].key[computeBit[id - first]] = key;
  }
  void setLaneKey(NodeId id, LaneId lane, Ns key) {
    if (laneBit[id - first] != kNone)
      sections[lane].key[laneBit[id - first] - 64 * sections[lane].firstWord] = key;
  }

  /// The largest level in the set of `id` on `lane`, with `block` as its last piece of work; a level of value `floor`
  /// or less does not matter. O(bits of the set).
  Level bestLevel(NodeId id, LaneId lane, bool second, const Level &block, Ns floor) {
    const Section &section = sections[lane];
    const uint64_t *bits = row(id) + section.firstWord + (second ? secondSet : 0);
    Level best, now;
    Ns bestValue = floor;
    for (int32_t word = 0; word < section.words; ++word) {
      uint64_t left = bits[word];
      if (left == 0)
        continue;
      // Nothing that is still to come can lift a level above the best.
      if (now.load > 0 && now.head + now.load + section.rest[word] + block.load <= bestValue)
        return best;
      for (; left != 0; left &= left - 1) {
        int32_t bit = word * 64 + llvm::countr_zero(left);
        now.head = std::min(now.head, section.key[bit]);
        now.load += section.load[bit];
        if (now.head + now.load > bestValue) {
          best = now;
          bestValue = now.head + now.load;
        }
      }
    }
    if (block.load > 0) {
      now.head = std::min(now.head, block.head);
      now.load += block.load;
      if (now.head + now.load > bestValue)
        best = now;
    }
    return best;
  }

  const NodeId first, last;

private:
  struct Section {
    int32_t firstWord = 0, words = 0;
    /// By bit; `rest` by word: the load from that word on.
    std::vector<Ns> key, load, rest;
  };
  size_t capacity() const { return static_cast<size_t>(last - first) * words; }
  static void set(uint64_t *bits, int32_t bit) {
    if (bit != kNone)
      bits[bit / 64] |= uint64_t(1) << (bit % 64);
  }

  std::vector<Section> sections;
  std::vector<int32_t> computeBit, laneBit, rows;
  std::vector<uint64_t> pool;
  int32_t words = 0, commWord = 0, secondSet = 0, used = 0;
};

/// What the two passes share.
class Pass {
public:
  Pass(const Problem &problem, const BoundCosts &costs, HeadsAndTails &result)
      : problem(problem), costs(costs), result(result), blocks(problem.numLanes()), reachedBy(problem.size(), kNone) {}

protected:
  bool communicates(NodeId id) const {
    return problem.nodes[id].kind == NodeKind::Start || problem.nodes[id].kind == NodeKind::Hybrid;
  }
  /// What stands for the work beyond the universe, of a node that the milestone reaches.
  const Level &block(NodeId id, LaneId lane) const {
    static const Level nothing;
    return isReached(id) ? blocks[lane] : nothing;
  }
  Ns levelOf(Universe &universe, NodeId id, LaneId lane, bool second, Ns floor) const {
    return std::max(floor, universe.bestLevel(id, lane, second, block(id, lane), floor).value());
  }
  Ns allLevels(Universe &universe, NodeId id, Ns value) const {
    for (LaneId lane = 0; lane < problem.numLanes(); ++lane)
      value = levelOf(universe, id, lane, /*second=*/false, value);
    return value;
  }
  /// Makes `next` the milestone: its work stands for what lies beyond the next universe. The marks of the one before
  /// lose their meaning at once, those of nodes outside the next universe too.
  void summarise(Universe &universe, NodeId next) {
    std::vector<Level> levels;
    for (LaneId lane = 0; lane < problem.numLanes(); ++lane)
      levels.push_back(universe.bestLevel(next, lane, /*second=*/false, block(next, lane), 0));
    blocks = std::move(levels);
    milestone = next;
    reachedBy[next] = next;
  }
  /// Whether the milestone's work lies before (after) a node.
  bool isReached(NodeId id) const { return milestone != kNone && reachedBy[id] == milestone; }
  /// Marks a node if one of its neighbours towards the milestone is marked.
  void reach(NodeId id, llvm::ArrayRef<NodeId> neighbours) {
    if (llvm::any_of(neighbours, [&](NodeId other) { return isReached(other); }))
      reachedBy[id] = milestone;
  }

  const Problem &problem;
  const BoundCosts &costs;
  HeadsAndTails &result;
  std::vector<Level> blocks;
  /// The node whose work `blocks` holds; kNone before the first one.
  NodeId milestone = kNone;
  /// Indexed by node: the last milestone that reached it, or kNone.
  std::vector<NodeId> reachedBy;
};

/// Heads. A row holds the work done when the clock leaves the node: of the compute lane, of each communication lane
/// what has ended (first set), and of each communication lane what stands before it in the order (second set): only
/// these are known to precede it on the same lane, ended or not.
class ForwardPass : Pass {
public:
  using Pass::Pass;

  /// Longest paths alone, so that the first universe can be sorted.
  void paths() {
    for (NodeId id = 0; id < problem.size(); ++id)
      leave(id, enter(id), result.head[id]);
  }

  void levels(const BoundOptions &options) {
    NodeId size = problem.size(), step = size <= options.exactNodes ? size : std::max(1, options.window);
    for (NodeId first = 0; first < size; first += step) {
      NodeId from = std::max(0, first - step), last = std::min(size, first + step);
      Universe universe(problem, costs, from, last, result.head, result.begin, /*twoSets=*/true);
      for (NodeId id = from; id < last; ++id)
        visit(universe, id, /*evaluate=*/id >= first);
      if (last < size && first > 0)
        nextMilestone(universe, from, first, std::min(size, last + step));
    }
  }

private:
  Ns enter(NodeId id) const {
    Ns head = result.head[id];
    for (NodeId pred : problem.preds[id])
      head = std::max(head, result.exit[pred]);
    return result.head[id] = head;
  }

  /// Sets begin and exit of a node; `begin` is a bound on the beginning of its work on its communication lane.
  void leave(NodeId id, Ns head, Ns begin) const {
    const Node &node = problem.nodes[id];
    Ns exit = head;
    begin = std::max(begin, head);
    if (communicates(id) && node.lane < static_cast<LaneId>(problem.busyUntil.size()))
      begin = std::max(begin, problem.busyUntil[node.lane]);
    if (node.region != kNone) {
      begin = std::max(begin, node.ready);
      for (NodeId start : problem.regions[node.region].starts)
        begin = std::max(begin, endOf(start));
    }
    switch (node.kind) {
    case NodeKind::Compute:
      exit = (node.region == kNone ? head : begin) + costs.compute[id];
      break;
    case NodeKind::Start:
      exit += costs.compute[id];
      break;
    case NodeKind::Wait:
      exit = std::max(exit, node.start == kNone ? node.ready : endOf(node.start));
      break;
    case NodeKind::Hybrid:
      exit = begin + costs.path[id];
      break;
    }
    result.begin[id] = std::max(result.begin[id], begin);
    result.exit[id] = std::max(result.exit[id], exit);
  }

  Ns endOf(NodeId start) const {
    return std::max(result.head[start] + costs.path[start], result.begin[start] + costs.lane[start]);
  }

  void visit(Universe &universe, NodeId id, bool evaluate) const {
    const Node &node = problem.nodes[id];
    Ns head = evaluate ? enter(id) : result.head[id];
    llvm::SmallVector<NodeId, 8> inside;
    NodeId latest = kNone;
    for (NodeId pred : problem.preds[id])
      if (universe.contains(pred)) {
        if (inside.empty() || universe.rowIndex(inside.back()) != universe.rowIndex(pred))
          inside.push_back(pred);
        if (latest == kNone || result.exit[pred] > result.exit[latest])
          latest = pred;
      }
    bool adds = costs.compute[id] > 0 || costs.lane[id] > 0 || node.kind == NodeKind::Wait || node.region != kNone;
    if (inside.size() == 1 && !adds)
      universe.shareRow(id, inside.front());
    else
      universe.unite(id, inside);
    // A single predecessor's exit knows the levels of its set already.
    if (evaluate && problem.preds[id].size() > 1 && (latest == kNone || !universe.equal(id, latest)))
      result.head[id] = head = allLevels(universe, id, head);

    Ns begin = head;
    if (evaluate && communicates(id))
      begin = levelOf(universe, id, node.lane, /*second=*/true, begin);
    if (node.region != kNone)
      begin = enterRegion(universe, id, evaluate, begin);
    if (node.kind == NodeKind::Wait && node.start != kNone && universe.contains(node.start)) {
      universe.addLane(id, node.start);
      universe.completeLane(id, node.start, problem.nodes[node.start].lane);
    }
    if (node.kind == NodeKind::Hybrid) {
      universe.addLane(id, id);
      universe.completeLane(id, id, node.lane);
    }
    if (communicates(id) && costs.lane[id] > 0)
      universe.addLaneSecond(id, id);
    if (costs.compute[id] > 0)
      universe.addCompute(id);
    if (!evaluate)
      return;
    leave(id, head, begin);
    if (node.kind == NodeKind::Wait && node.start != kNone)
      result.exit[id] = levelOf(universe, id, problem.nodes[node.start].lane, /*second=*/false, result.exit[id]);
    bool beginsLater = node.kind == NodeKind::Hybrid || node.region != kNone;
    universe.setComputeKey(id, beginsLater ? result.begin[id] : head);
    if (communicates(id))
      universe.setLaneKey(id, node.lane, result.begin[id]);
  }

  /// A node with regions begins when what it waits for has ended and all its lanes are free. Returns its beginning.
  Ns enterRegion(Universe &universe, NodeId id, bool evaluate, Ns begin) const {
    const RegionWork &work = problem.regions[problem.nodes[id].region];
    for (LaneId lane : work.lanes)
      begin = evaluate ? levelOf(universe, id, lane, /*second=*/true, begin) : begin;
    for (NodeId start : work.starts)
      if (universe.contains(start)) {
        universe.addLane(id, start);
        universe.completeLane(id, start, problem.nodes[start].lane);
      }
    for (NodeId start : work.starts)
      begin = evaluate ? levelOf(universe, id, problem.nodes[start].lane, /*second=*/false, begin) : begin;
    return begin;
  }

  /// The most critical of the nodes [from, first) stands for all that lies before `first`.
  void nextMilestone(Universe &universe, NodeId from, NodeId first, NodeId last) {
    NodeId best = from;
    auto rank = [&](NodeId id) { return std::make_pair(result.exit[id] + result.tail[id], result.exit[id]); };
    for (NodeId id = from; id < first; ++id)
      if (rank(id) >= rank(best))
        best = id;
    summarise(universe, best);
    for (NodeId id = best + 1; id < last; ++id)
      reach(id, problem.preds[id]);
  }
};

/// Tails. A row holds the work that begins after the clock comes to the node: what follows a node in the order begins
/// after the clock leaves it, on every lane.
class BackwardPass : Pass {
public:
  using Pass::Pass;

  void paths() {
    for (NodeId id = problem.size() - 1; id >= 0; --id) {
      Ns tail = enter(id);
      settle(id, problem.nodes[id].kind == NodeKind::Hybrid ? tail : 0);
    }
  }

  void levels(const BoundOptions &options) {
    NodeId size = problem.size(), step = size <= options.exactNodes ? size : std::max(1, options.window);
    for (NodeId last = size; last > 0; last -= step) {
      NodeId first = std::max(0, last - step), to = std::min(size, last + step);
      Universe universe(problem, costs, first, to, result.tail, result.laneTail, /*twoSets=*/false);
      for (NodeId id = to - 1; id >= first; --id)
        visit(universe, id, /*evaluate=*/id < last);
      if (first > 0 && last < size)
        nextMilestone(universe, last, to, std::max(0, first - step));
      if (first == 0)
        break;
    }
  }

private:
  Ns enter(NodeId id) const {
    Ns tail = result.tail[id];
    for (NodeId succ : problem.succs[id])
      tail = std::max(tail, result.entryTail[succ]);
    return result.tail[id] = tail;
  }

  /// Sets what follows from the tail.
  void settle(NodeId id, Ns laneTail) const {
    Ns tail = result.tail[id], entry = tail + costs.compute[id];
    if (problem.nodes[id].kind == NodeKind::Start) {
      for (NodeId succ : problem.succs[id])
        if (problem.nodes[succ].kind == NodeKind::Wait && problem.nodes[succ].start == id)
          result.endTail[id] = std::max(result.endTail[id], result.tail[succ]);
        else if (int32_t region = problem.nodes[succ].region;
                 region != kNone && llvm::is_contained(problem.regions[region].starts, id))
          result.endTail[id] = std::max(result.endTail[id], result.entryTail[succ]);
      laneTail = std::max(laneTail, result.endTail[id]);
      entry = std::max({entry, costs.path[id] + result.endTail[id], costs.lane[id] + laneTail});
    }
    result.laneTail[id] = std::max(result.laneTail[id], laneTail);
    result.entryTail[id] = std::max(result.entryTail[id], entry);
  }

  void visit(Universe &universe, NodeId id, bool evaluate) const {
    const Node &node = problem.nodes[id];
    Ns tail = evaluate ? enter(id) : result.tail[id];
    llvm::SmallVector<NodeId, 8> inside;
    NodeId longest = kNone;
    for (NodeId succ : problem.succs[id])
      if (universe.contains(succ)) {
        if (inside.empty() || universe.rowIndex(inside.back()) != universe.rowIndex(succ))
          inside.push_back(succ);
        if (longest == kNone || result.entryTail[succ] > result.entryTail[longest])
          longest = succ;
      }
    bool adds = costs.compute[id] > 0 || costs.lane[id] > 0;
    if (inside.size() == 1 && !adds)
      universe.shareRow(id, inside.front());
    else
      universe.unite(id, inside);
    if (evaluate && problem.succs[id].size() > 1 && (longest == kNone || !universe.equal(id, longest)))
      result.tail[id] = tail = allLevels(universe, id, tail);
    // What follows a start on its lane follows its end there.
    Ns laneTail = 0;
    if (evaluate && node.kind == NodeKind::Start)
      laneTail = levelOf(universe, id, node.lane, /*second=*/false, 0);
    if (node.kind == NodeKind::Hybrid)
      laneTail = tail;
    if (costs.compute[id] > 0)
      universe.addCompute(id);
    if (communicates(id) && costs.lane[id] > 0)
      universe.addLane(id, id);
    if (!evaluate)
      return;
    settle(id, laneTail);
    universe.setComputeKey(id, tailOfWork(id));
    if (communicates(id))
      universe.setLaneKey(id, node.lane, result.laneTail[id]);
  }

  /// From the end of the node's work on the compute lane.
  Ns tailOfWork(NodeId id) const { return std::max(result.tail[id], result.entryTail[id] - costs.compute[id]); }

  void nextMilestone(Universe &universe, NodeId first, NodeId last, NodeId from) {
    NodeId best = first;
    auto rank = [&](NodeId id) { return std::make_pair(result.head[id] + result.entryTail[id], result.entryTail[id]); };
    for (NodeId id = first; id < last; ++id)
      if (rank(id) > rank(best))
        best = id;
    summarise(universe, best);
    for (NodeId id = best - 1; id >= from; --id)
      reach(id, problem.succs[id]);
  }
};

} // namespace

Ns HeadsAndTails::throughAny(const BoundCosts &costs) const {
  Ns longest = 0;
  for (size_t id = 0; id < head.size(); ++id)
    longest = std::max({longest, exit[id] + tail[id], head[id] + entryTail[id]});
  for (size_t id = 0; id < head.size(); ++id)
    if (costs.lane[id] > 0)
      longest = std::max(longest, begin[id] + costs.lane[id] + laneTail[id]);
  return longest;
}

HeadsAndTails commsched::headsAndTails(const Problem &problem, const BoundCosts &costs, const BoundOptions &options) {
  HeadsAndTails result;
  for (std::vector<Ns> *list :
       {&result.head, &result.exit, &result.begin, &result.tail, &result.entryTail, &result.laneTail, &result.endTail})
    list->assign(problem.size(), 0);
  ForwardPass(problem, costs, result).paths();
  BackwardPass(problem, costs, result).paths();
  result.longestPath = result.throughAny(costs);
  ForwardPass(problem, costs, result).levels(options);
  BackwardPass(problem, costs, result).levels(options);
  return result;
}
