//===- HeadsAndTails.cpp - Lower bounds on the time before and after each node ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two sweeps over the nodes in topological order, forward for heads and backward for tails. Each keeps, for a range of
// nodes, the set of work that precedes (follows) each node as a row of bits, with one section of bits for each lane:
//
//   row of node v   | compute lane      | lane 1            | lane 2            |
//                   | head: 90 70 70 10 | head: 80 40 40 00 | ...               |   bit set: ancestor of v
//                     <- falling heads: a level is a prefix of the set bits
//
// If heads have grown since the bits were sorted, a level becomes weaker but stays valid (Bounds.md, Lemma 3).
//
// Up to BoundOptions::exactNodes the range holds all nodes. Larger problems use overlapping windows. The work before a
// window enters as one block for each lane: the best level at one summary node, for the nodes that descend from it
// (Lemma 6).
//
//===------------------------------------------------------------------------------------------===//

#include "HeadsAndTails.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <limits>

using namespace commsched;

namespace {

/// Number of communication lanes whose sets are tracked in a range: those with the most work. A node's row has bits for
/// each of them, and each is looked at for each node. A lane that is not tracked only makes the bound weaker: its
/// collectives count on paths, but no level is made of their sums.
constexpr size_t kTrackedLanes = 64;

/// The work of one level: it begins at `head` or later and keeps its lane busy for `load`, ns.
struct Level {
  Ns head = std::numeric_limits<Ns>::max();
  Ns load = 0;
  Ns value() const { return load == 0 ? 0 : head + load; }
};

/// The ancestor (descendant) sets of a range of nodes, one row of bits for each node; nodes may share a row.
class AncestorSets {
public:
  /// The bits of the compute lane are sorted by `computeKey`, those of other lanes by `laneKey`. With `twoSets` a row
  /// has a second set for each communication lane. `pool` holds the rows, and has to outlive the sets.
  AncestorSets(const Problem &problem, const BoundCosts &costs, NodeId first, NodeId last,
               const std::vector<Ns> &computeKey, const std::vector<Ns> &laneKey, bool twoSets,
               std::vector<uint64_t> &pool)
      : first(first), last(last), sections(problem.numLanes()), computeBit(last - first, kNone),
        laneBit(last - first, kNone), rows(last - first, kNone), pool(pool) {
    int32_t word = 0;
    chooseLanes(problem, costs);
    using Keyed = std::pair<Ns, NodeId>;
    std::vector<std::vector<Keyed>> byLane(problem.numLanes());
    for (NodeId id = first; id < last; ++id) {
      if (costs.compute[id] > 0)
        byLane[kComputeLane].push_back({computeKey[id], id});
      if (LaneId lane = problem.nodes[id].lane; costs.lane[id] > 0 && sections[lane].isTracked)
        byLane[lane].push_back({laneKey[id], id});
    }
    for (LaneId lane : tracked) {
      bool isCompute = lane == kComputeLane;
      std::vector<Keyed> &nodes = byLane[lane];
      llvm::sort(nodes, [&](const Keyed &a, const Keyed &b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
      });
      Section &section = sections[lane];
      section.firstWord = word;
      section.words = static_cast<int32_t>(llvm::divideCeil(nodes.size(), 64));
      word += section.words;
      section.key.resize(section.words * 64, 0);
      section.load.resize(section.words * 64, 0);
      section.rest.resize(section.words + 1, 0);
      section.full.resize(section.words);
      for (auto [index, keyed] : llvm::enumerate(nodes)) {
        const auto [key, id] = keyed;
        (isCompute ? computeBit : laneBit)[id - first] = section.firstWord * 64 + static_cast<int32_t>(index);
        section.key[index] = key;
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

  /// The lanes whose work has bits, ascending: the compute lane, and the busiest others.
  llvm::ArrayRef<LaneId> lanes() const { return tracked; }
  bool contains(NodeId id) const { return id >= first && id < last; }

  uint64_t *row(NodeId id) { return pool.data() + static_cast<size_t>(rows[id - first]) * words; }
  int32_t rowIndex(NodeId id) const { return rows[id - first]; }
  void shareRow(NodeId id, NodeId other) { rows[id - first] = rows[other - first]; }
  /// Unites the rows of `others` into a new row for `id`.
  void unite(NodeId id, llvm::ArrayRef<NodeId> others) {
    newRow(id);
    uint64_t *into = row(id);
    if (others.empty())
      std::fill_n(into, words, 0);
    else
      std::copy_n(row(others.front()), words, into);
    for (NodeId other : others.drop_front(others.empty() ? 0 : 1)) {
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

  /// Sets the key that levels are computed with; the order of the bits stays.
  void setComputeKey(NodeId id, Ns key) {
    if (computeBit[id - first] != kNone)
      sections[kComputeLane].setKey(computeBit[id - first], key);
  }
  void setLaneKey(NodeId id, LaneId lane, Ns key) {
    if (laneBit[id - first] != kNone)
      sections[lane].setKey(laneBit[id - first] - 64 * sections[lane].firstWord, key);
  }

  /// The largest level in the set of `id` on `lane`, with `block` as its last piece of work. Levels of at most `floor`
  /// are ignored. O(bits of the set in words that are not full, and in those that hold better levels; words).
  Level bestLevel(NodeId id, LaneId lane, bool second, const Level &block, Ns floor) {
    Section &section = sections[lane];
    const uint64_t *bits = row(id) + section.firstWord + (second ? secondSet : 0);
    Level best, now;
    Ns bestValue = floor;
    for (int32_t word = 0; word < section.words; ++word) {
      uint64_t left = bits[word];
      if (left == 0)
        continue;
      // The remaining work cannot lift a level above the best one.
      if (now.load > 0 && now.head + now.load + section.rest[word] + block.load <= bestValue)
        return best;
      if (left == ~uint64_t(0)) {
        const FullWord &full = section.fullWord(word);
        if (now.load + full.best <= bestValue) {
          now.head = std::min(now.head, full.head);
          now.load += full.load;
          continue;
        }
      }
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
  void chooseLanes(const Problem &problem, const BoundCosts &costs) {
    std::vector<Ns> load(problem.numLanes(), 0);
    for (NodeId id = first; id < last; ++id)
      load[problem.nodes[id].lane] += costs.lane[id];
    for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
      if (load[lane] > 0)
        tracked.push_back(lane);
    if (tracked.size() > kTrackedLanes) {
      llvm::stable_sort(tracked, [&](LaneId a, LaneId b) { return load[a] > load[b]; });
      tracked.resize(kTrackedLanes);
      llvm::sort(tracked);
    }
    tracked.insert(tracked.begin(), kComputeLane);
    for (LaneId lane : tracked)
      sections[lane].isTracked = true;
  }

  /// What all work of one word makes together: no level that ends in it has a value above `best` and the load before.
  struct FullWord {
    Ns head = 0, load = 0, best = 0;
    bool isKnown = false;
  };
  struct Section {
    bool isTracked = false;
    int32_t firstWord = 0, words = 0;
    /// Indexed by bit: key and load. Indexed by word: the load from that word on.
    std::vector<Ns> key, load, rest;
    /// Indexed by word.
    std::vector<FullWord> full;

    void setKey(int32_t bit, Ns value) {
      if (key[bit] == value)
        return;
      key[bit] = value;
      full[bit / 64].isKnown = false;
    }
    const FullWord &fullWord(int32_t word) {
      FullWord &result = full[word];
      if (result.isKnown)
        return result;
      result = {std::numeric_limits<Ns>::max(), 0, 0, true};
      for (int32_t bit = word * 64; bit < word * 64 + 64; ++bit) {
        result.head = std::min(result.head, key[bit]);
        result.load += load[bit];
        result.best = std::max(result.best, result.head + result.load);
      }
      return result;
    }
  };
  /// Rows come from the pool as an earlier range has left them.
  void newRow(NodeId id) {
    rows[id - first] = used++;
    const size_t least = static_cast<size_t>(used) * words, most = static_cast<size_t>(last - first) * words;
    if (least > pool.size())
      pool.resize(std::max(least, std::min(pool.size() * 2, most)));
  }
  static void set(uint64_t *bits, int32_t bit) {
    if (bit != kNone)
      bits[bit / 64] |= uint64_t(1) << (bit % 64);
  }

  /// Indexed by lane; empty if the lane is not tracked.
  std::vector<Section> sections;
  std::vector<LaneId> tracked;
  std::vector<int32_t> computeBit, laneBit, rows;
  std::vector<uint64_t> &pool;
  int32_t words = 0, commWord = 0, secondSet = 0, used = 0;
};

/// State and rules that both sweeps share.
class Sweep {
public:
  Sweep(const Problem &problem, const BoundCosts &costs, HeadsAndTails &result, std::vector<LevelReason> *reasons)
      : problem(problem), costs(costs), result(result), reasons(reasons), blocks(problem.numLanes()),
        reachedBy(problem.size(), kNone) {}

protected:
  bool communicates(NodeId id) const {
    return problem.nodes[id].kind == NodeKind::Start || problem.nodes[id].kind == NodeKind::Hybrid;
  }
  /// The block that represents the work outside the range, for a node that the summary node reaches.
  const Level &block(NodeId id, LaneId lane) const {
    static const Level nothing;
    return isReached(id) ? blocks[lane] : nothing;
  }
  /// The larger one of `floor` and the best level, which bounds the time `of` at the node.
  Ns levelOf(AncestorSets &sets, NodeId id, LaneId lane, bool second, Ns floor, LevelReason::Time of) const {
    Level level = sets.bestLevel(id, lane, second, block(id, lane), floor);
    if (level.value() <= floor)
      return floor;
    if (reasons) {
      // A stronger level of the same time takes the weaker one's place.
      Ns base = floor;
      if (!reasons->empty() && reasons->back().node == id && reasons->back().of == of) {
        base = reasons->back().base;
        reasons->pop_back();
      }
      reasons->push_back({of, id, lane, level.head, level.value(), base});
    }
    return level.value();
  }
  Ns allLevels(AncestorSets &sets, NodeId id, Ns value, LevelReason::Time of) const {
    for (LaneId lane : sets.lanes())
      value = levelOf(sets, id, lane, /*second=*/false, value, of);
    // Of the other lanes, only the work outside the range is known.
    return levelOf(sets, id, largestBlock, /*second=*/false, value, of);
  }
  /// Makes `next` the summary node: its best levels represent the work outside the next range. All marks of the
  /// previous summary node become invalid, those of nodes outside the next range included.
  void summarize(AncestorSets &sets, NodeId next) {
    std::vector<Level> levels;
    for (LaneId lane = 0; lane < problem.numLanes(); ++lane)
      levels.push_back(sets.bestLevel(next, lane, /*second=*/false, block(next, lane), 0));
    blocks = std::move(levels);
    largestBlock = kComputeLane;
    for (LaneId lane = 1; lane < problem.numLanes(); ++lane)
      if (blocks[lane].value() > blocks[largestBlock].value())
        largestBlock = lane;
    summaryNode = next;
    reachedBy[next] = next;
  }
  /// Whether a node descends from (precedes) the summary node.
  bool isReached(NodeId id) const { return summaryNode != kNone && reachedBy[id] == summaryNode; }
  /// Marks a node if one of its neighbours towards the summary node is marked.
  void reach(NodeId id, llvm::ArrayRef<NodeId> neighbours) {
    if (llvm::any_of(neighbours, [&](NodeId other) { return isReached(other); }))
      reachedBy[id] = summaryNode;
  }

  const Problem &problem;
  const BoundCosts &costs;
  HeadsAndTails &result;
  /// Null if nobody asks for reasons.
  std::vector<LevelReason> *reasons;
  /// The rows of the range.
  std::vector<uint64_t> pool;
  std::vector<Level> blocks;
  /// The lane whose block has the largest value.
  LaneId largestBlock = kComputeLane;
  /// The node whose best levels `blocks` holds; kNone before the first one.
  NodeId summaryNode = kNone;
  /// Indexed by node: the last summary node that reached it, or kNone.
  std::vector<NodeId> reachedBy;
};

/// Computes heads (Lemma 4, items 1 to 3). A row holds the work that is known to have ended when the clock leaves the
/// node (first set), and for communication lanes also the work that precedes the node in the order, ended or not
/// (second set): a lane serves in order, so work on that lane begins after the second set.
class ForwardSweep : Sweep {
public:
  using Sweep::Sweep;

  /// Computes longest paths alone, by which the bits of the first range are sorted.
  void paths() {
    for (NodeId id = 0; id < problem.size(); ++id)
      leave(id, enter(id), result.head[id]);
  }

  void levels(const BoundOptions &options) {
    NodeId size = problem.size(), step = size <= options.exactNodes ? size : std::max(1, options.window);
    for (NodeId first = 0; first < size; first += step) {
      NodeId from = std::max(0, first - step), last = std::min(size, first + step);
      AncestorSets sets(problem, costs, from, last, result.head, result.begin, /*twoSets=*/true, pool);
      for (NodeId id = from; id < last; ++id)
        visit(sets, id, /*evaluate=*/id >= first);
      if (last < size && first > 0)
        chooseSummaryNode(sets, from, first, std::min(size, last + step));
    }
  }

private:
  Ns enter(NodeId id) const {
    Ns head = result.head[id];
    for (NodeId pred : problem.preds[id])
      head = std::max(head, result.exit[pred]);
    return result.head[id] = head;
  }

  /// Sets begin and exit of a node. `begin` bounds the beginning of its work on its communication lane.
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

  void visit(AncestorSets &sets, NodeId id, bool evaluate) const {
    const Node &node = problem.nodes[id];
    Ns head = evaluate ? enter(id) : result.head[id];
    llvm::SmallVector<NodeId, 8> inside;
    NodeId latest = kNone;
    for (NodeId pred : problem.preds[id])
      if (sets.contains(pred)) {
        if (inside.empty() || sets.rowIndex(inside.back()) != sets.rowIndex(pred))
          inside.push_back(pred);
        if (latest == kNone || result.exit[pred] > result.exit[latest])
          latest = pred;
      }
    // These change their row below, even if they cost nothing. A row that is shared must stay that of the predecessor.
    bool changes = node.kind == NodeKind::Wait || node.kind == NodeKind::Hybrid || node.region != kNone;
    bool adds = costs.compute[id] > 0 || costs.lane[id] > 0 || changes;
    if (inside.size() == 1 && !adds)
      sets.shareRow(id, inside.front());
    else
      sets.unite(id, inside);
    // The exit of a single predecessor already accounts for the levels of its set.
    if (evaluate && problem.preds[id].size() > 1 && (latest == kNone || !sets.equal(id, latest)))
      result.head[id] = head = allLevels(sets, id, head, LevelReason::Head);

    Ns begin = head;
    if (evaluate && communicates(id))
      begin = levelOf(sets, id, node.lane, /*second=*/true, begin, LevelReason::Begin);
    if (node.region != kNone)
      begin = enterRegion(sets, id, evaluate, begin);
    if (node.kind == NodeKind::Wait && node.start != kNone && sets.contains(node.start)) {
      sets.addLane(id, node.start);
      sets.completeLane(id, node.start, problem.nodes[node.start].lane);
    }
    if (node.kind == NodeKind::Hybrid) {
      sets.addLane(id, id);
      sets.completeLane(id, id, node.lane);
    }
    if (communicates(id) && costs.lane[id] > 0)
      sets.addLaneSecond(id, id);
    if (costs.compute[id] > 0)
      sets.addCompute(id);
    if (!evaluate)
      return;
    leave(id, head, begin);
    if (node.kind == NodeKind::Wait && node.start != kNone)
      result.exit[id] =
          levelOf(sets, id, problem.nodes[node.start].lane, /*second=*/false, result.exit[id], LevelReason::Exit);
    bool beginsLater = node.kind == NodeKind::Hybrid || node.region != kNone;
    sets.setComputeKey(id, beginsLater ? result.begin[id] : head);
    if (communicates(id))
      sets.setLaneKey(id, node.lane, result.begin[id]);
  }

  /// A node with regions begins when all collectives that it waits for have ended and all its lanes are free. Returns
  /// its beginning.
  Ns enterRegion(AncestorSets &sets, NodeId id, bool evaluate, Ns begin) const {
    const RegionWork &work = problem.regions[problem.nodes[id].region];
    for (LaneId lane : work.lanes)
      begin = evaluate ? levelOf(sets, id, lane, /*second=*/true, begin, LevelReason::Begin) : begin;
    for (NodeId start : work.starts)
      if (sets.contains(start)) {
        sets.addLane(id, start);
        sets.completeLane(id, start, problem.nodes[start].lane);
      }
    for (NodeId start : work.starts)
      begin =
          evaluate ? levelOf(sets, id, problem.nodes[start].lane, /*second=*/false, begin, LevelReason::Begin) : begin;
    return begin;
  }

  /// Makes the most critical of the nodes [from, first) the summary node.
  void chooseSummaryNode(AncestorSets &sets, NodeId from, NodeId first, NodeId last) {
    NodeId best = from;
    auto rank = [&](NodeId id) { return std::make_pair(result.exit[id] + result.tail[id], result.exit[id]); };
    for (NodeId id = from; id < first; ++id)
      if (rank(id) >= rank(best))
        best = id;
    summarize(sets, best);
    for (NodeId id = best + 1; id < last; ++id)
      reach(id, problem.preds[id]);
  }
};

/// Computes tails (Lemma 4, items 4 and 5). A row holds the node's own work and that of its descendants: on every lane
/// it begins after the clock has come to the node.
class BackwardSweep : Sweep {
public:
  using Sweep::Sweep;

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
      AncestorSets sets(problem, costs, first, to, result.tail, result.laneTail, /*twoSets=*/false, pool);
      for (NodeId id = to - 1; id >= first; --id)
        visit(sets, id, /*evaluate=*/id < last);
      if (first > 0 && last < size)
        chooseSummaryNode(sets, last, to, std::max(0, first - step));
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

  /// Sets the other tails of a node, which follow from its tail.
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

  void visit(AncestorSets &sets, NodeId id, bool evaluate) const {
    const Node &node = problem.nodes[id];
    Ns tail = evaluate ? enter(id) : result.tail[id];
    llvm::SmallVector<NodeId, 8> inside;
    NodeId longest = kNone;
    for (NodeId succ : problem.succs[id])
      if (sets.contains(succ)) {
        if (inside.empty() || sets.rowIndex(inside.back()) != sets.rowIndex(succ))
          inside.push_back(succ);
        if (longest == kNone || result.entryTail[succ] > result.entryTail[longest])
          longest = succ;
      }
    bool adds = costs.compute[id] > 0 || costs.lane[id] > 0;
    if (inside.size() == 1 && !adds)
      sets.shareRow(id, inside.front());
    else
      sets.unite(id, inside);
    if (evaluate && problem.succs[id].size() > 1 && (longest == kNone || !sets.equal(id, longest)))
      result.tail[id] = tail = allLevels(sets, id, tail, LevelReason::Tail);
    // Work that follows a start on its lane begins after the end of its collective.
    Ns laneTail = 0;
    if (evaluate && node.kind == NodeKind::Start)
      laneTail = levelOf(sets, id, node.lane, /*second=*/false, 0, LevelReason::LaneTail);
    if (node.kind == NodeKind::Hybrid)
      laneTail = tail;
    if (costs.compute[id] > 0)
      sets.addCompute(id);
    if (communicates(id) && costs.lane[id] > 0)
      sets.addLane(id, id);
    if (!evaluate)
      return;
    settle(id, laneTail);
    sets.setComputeKey(id, tailOfWork(id));
    if (communicates(id))
      sets.setLaneKey(id, node.lane, result.laneTail[id]);
  }

  /// The time from the end of the node's work on the compute lane to the end.
  Ns tailOfWork(NodeId id) const { return std::max(result.tail[id], result.entryTail[id] - costs.compute[id]); }

  void chooseSummaryNode(AncestorSets &sets, NodeId first, NodeId last, NodeId from) {
    NodeId best = first;
    auto rank = [&](NodeId id) { return std::make_pair(result.head[id] + result.entryTail[id], result.entryTail[id]); };
    for (NodeId id = first; id < last; ++id)
      if (rank(id) > rank(best))
        best = id;
    summarize(sets, best);
    for (NodeId id = best - 1; id >= from; --id)
      reach(id, problem.succs[id]);
  }
};

} // namespace

std::pair<Ns, NodeId> HeadsAndTails::throughAny(const BoundCosts &costs) const {
  std::pair<Ns, NodeId> longest = {0, kNone};
  for (NodeId id = 0; id < static_cast<NodeId>(head.size()); ++id) {
    Ns through = std::max(exit[id] + tail[id], head[id] + entryTail[id]);
    if (costs.lane[id] > 0)
      through = std::max(through, begin[id] + costs.lane[id] + laneTail[id]);
    if (through > longest.first)
      longest = {through, id};
  }
  return longest;
}

HeadsAndTails commsched::headsAndTails(const Problem &problem, const BoundCosts &costs, const BoundOptions &options,
                                       std::vector<LevelReason> *reasons) {
  HeadsAndTails result;
  for (std::vector<Ns> *list :
       {&result.head, &result.exit, &result.begin, &result.tail, &result.entryTail, &result.laneTail, &result.endTail})
    list->assign(problem.size(), 0);
  ForwardSweep(problem, costs, result, reasons).paths();
  BackwardSweep(problem, costs, result, reasons).paths();
  result.longestPath = result.throughAny(costs).first;
  ForwardSweep(problem, costs, result, reasons).levels(options);
  BackwardSweep(problem, costs, result, reasons).levels(options);
  return result;
}

void commsched::propagateHeads(const Problem &problem, const BoundCosts &costs, HeadsAndTails &times) {
  ForwardSweep(problem, costs, times, /*reasons=*/nullptr).paths();
}
