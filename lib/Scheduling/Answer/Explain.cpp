//===- Explain.cpp - Causes of exposed collectives --------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Plays both orders, finds for each collective the constraint that keeps it from starting earlier, or computation from
// coming in front of its wait, and names the node behind that constraint.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Answer/Explain.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Memory/MemoryTree.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <numeric>
#include <optional>
#include <utility>

using namespace commsched;

namespace {

/// How many nodes behind a wait are looked at for computation that would cover its collective.
constexpr int32_t kLookBehind = 256;
/// How many computations that take no time may move with a start.
constexpr size_t kMostMoved = 8;
/// How many nodes may be played again to explain one block, in all: a fraction of a second.
constexpr int64_t kMostReplayed = 200'000;

/// One order, played.
class PlayedOrder {
public:
  /// Keeps references to all arguments. O((N + touches) log N).
  PlayedOrder(const Problem &problem, llvm::ArrayRef<NodeId> order)
      : problem(problem), order(order), line(simulate(problem, order)), live(memoryProfile(problem, order).live),
        positions(problem.size()), exposed(exposedByCollective(problem, line)), previous(problem.size(), kNone) {
    std::vector<NodeId> lastOnLane(problem.numLanes(), kNone);
    Ns compute = 0;
    for (int32_t at = 0; at < static_cast<int32_t>(order.size()); ++at) {
      const Node &node = problem.nodes[order[at]];
      positions[order[at]] = at;
      arrival.push_back(compute);
      compute = node.kind == NodeKind::Start ? compute + node.issue : line.end[order[at]];
      if (node.lane != kComputeLane)
        previous[order[at]] = std::exchange(lastOnLane[node.lane], order[at]);
    }
  }

  int32_t position(NodeId node) const { return positions[node]; }
  Ns exposedOf(NodeId start) const { return exposed[start]; }

  /// Why compute waits for `start`. `first` is what has to be issued earlier if the start is: its pack, or the start
  /// itself. `wait` is the first node that waits for it, or kNone. An obstacle is one without which the order would be
  /// shorter, as long as fewer than kMostReplayed nodes have been played. O(degree + kLookBehind + log N), and O(N) for
  /// each of a few other orders.
  Explanation explain(NodeId start, NodeId first, NodeId wait, Bytes limit) {
    if (exposed[start] == 0)
      return {LimitingFactor::AlreadyHidden};
    Issue issue = issueOf(start, first);
    Explanation early = explainStart(start, issue, limit);
    if (problem.hasStreams() || early.factor == LimitingFactor::StartsAtOnce)
      return early;
    auto helps = [&](const std::optional<Replay> &other) { return isShorter(other) && other->peak <= limit; };
    if (early.factor == LimitingFactor::LaneBusy && helps(replayApart(issue, start)))
      return early;
    std::optional<Replay> sooner;
    if (early.factor == LimitingFactor::PeakMemory || early.factor == LimitingFactor::Preference)
      sooner = replay(issue, start);
    std::optional<Replay> covered = wait == kNone ? std::nullopt : replayBefore(wait, /*needsWait=*/false);
    // An order that passes the limit can be had for memory; one that does not was there to be taken.
    for (const std::optional<Replay> &other : {sooner, covered})
      if (isShorter(other))
        return other->peak > limit ? Explanation{LimitingFactor::PeakMemory, kNone, other->peak, limit}
                                   : Explanation{LimitingFactor::Preference};
    if (issue.last != kNone && helps(replay(issueOf(start, first, issue.last), start)))
      return {LimitingFactor::DataDependence, issue.last};
    if (std::optional<Replay> read = wait == kNone ? std::nullopt : replayBefore(wait, /*needsWait=*/true); helps(read))
      return {LimitingFactor::DataDependence, read->blocker};
    if (!sooner) {
      early.reached = early.factor != LimitingFactor::PeakMemory ? kNotAlone : early.reached;
      return early;
    }
    if (sooner->blocker != kNone)
      return {LimitingFactor::LaneBusy, sooner->blocker, kNotAlone};
    return {LimitingFactor::Makespan, kNone, sooner->makespan, line.makespan};
  }

private:
  /// What became of another order.
  struct Replay {
    Ns makespan = 0;
    Bytes peak = 0;
    /// Of an earlier start: the collective that occupies its lane until it begins, or kNone. Of a computation in front
    /// of a wait: that computation.
    NodeId blocker = kNone;
  };

  bool isShorter(const std::optional<Replay> &other) const { return other && other->makespan < line.makespan; }

  /// What has to move for an earlier start, in the order in which it runs.
  struct Issue {
    std::vector<NodeId> moved;
    /// The last node that these depend on, or kNone.
    NodeId last = kNone;
    /// The position behind it.
    int32_t earliest = 0;
  };

  /// What keeps the start from being earlier.
  Explanation explainStart(NodeId start, const Issue &issue, Bytes limit) const {
    NodeId before = previous[start];
    int32_t first = positions[issue.moved.front()];
    // A lane that becomes free when compute arrives is in the way of every earlier issue, too.
    if (before != kNone && line.end[before] == line.start[start] &&
        (problem.hasStreams() || arrival[issue.earliest] < line.start[start]))
      return {LimitingFactor::LaneBusy, before};
    // With several streams a start begins when its stream comes to it, wherever it is in the program.
    if (problem.hasStreams() || arrival[issue.earliest] >= arrival[first])
      return {issue.last == kNone ? LimitingFactor::StartsAtOnce : LimitingFactor::DataDependence, issue.last};
    Bytes reached = live.max(issue.earliest, first);
    for (NodeId node : issue.moved)
      reached += allocatedBy(node);
    if (reached > limit)
      return {LimitingFactor::PeakMemory, kNone, reached, limit};
    return {LimitingFactor::Preference};
  }

  /// `first` and the start behind it, with the computations in front of them that take no time. A dependence on `but`
  /// is left out.
  Issue issueOf(NodeId start, NodeId first, NodeId but = kNone) const {
    Issue issue;
    issue.moved = {start};
    if (first != start)
      issue.moved.push_back(first);
    while (true) {
      issue.last = kNone;
      for (NodeId node : issue.moved)
        for (NodeId pred : problem.preds[node])
          if (pred != but && !llvm::is_contained(issue.moved, pred) &&
              (issue.last == kNone || positions[pred] > positions[issue.last]))
            issue.last = pred;
      if (issue.last == kNone || problem.nodes[issue.last].kind != NodeKind::Compute ||
          problem.nodes[issue.last].cost > 0 || issue.moved.size() > kMostMoved)
        break;
      issue.moved.push_back(issue.last);
    }
    llvm::sort(issue.moved, [&](NodeId a, NodeId b) { return positions[a] < positions[b]; });
    issue.earliest = issue.last == kNone ? 0 : positions[issue.last] + 1;
    return issue;
  }

  bool mayMove(NodeId node) const { return !problem.nodes[node].pinned && problem.nodes[node].unit == kNone; }

  /// Plays the order with the start as early as `issue` says.
  std::optional<Replay> replay(const Issue &issue, NodeId start) {
    Order other = moveTo(issue.moved, issue.earliest);
    std::optional<Timeline> played = play(problem, other);
    if (!played || !llvm::all_of(issue.moved, [&](NodeId node) { return mayMove(node); }))
      return std::nullopt;
    Replay result = {played->makespan, memoryProfile(problem, other).peak, kNone};
    // The lane serves in the order of issue.
    NodeId before = kNone;
    for (NodeId node : llvm::make_range(other.begin(), llvm::find(other, start)))
      if (problem.nodes[node].kind == NodeKind::Start && problem.nodes[node].lane == problem.nodes[start].lane)
        before = node;
    if (before != kNone && played->end[before] == played->start[start])
      result.blocker = before;
    return result;
  }

  /// The same with the start on a lane of its own.
  std::optional<Replay> replayApart(const Issue &issue, NodeId start) {
    Problem apart = problem;
    apart.laneNames.emplace_back();
    if (!apart.busyUntil.empty())
      apart.busyUntil.resize(apart.laneNames.size());
    apart.nodes[start].lane = apart.numLanes() - 1;
    Order other = moveTo(issue.moved, issue.earliest);
    std::optional<Timeline> played = play(apart, other);
    return played ? std::optional<Replay>({played->makespan, memoryProfile(problem, other).peak, kNone}) : std::nullopt;
  }

  /// Plays the order with the first computation behind `wait` in front of it, together with what that computation
  /// needs: the first one that does not need the wait, or, as if it did not, the first one that does.
  std::optional<Replay> replayBefore(NodeId wait, bool needsWait) {
    const int32_t begin = positions[wait];
    const int32_t end = std::min<int32_t>(begin + kLookBehind, static_cast<int32_t>(order.size()));
    // Indexed by distance from the wait: whether the node needs it, and whether it stays behind it for any reason.
    std::vector<bool> needs(end - begin, true), stays(end - begin, true);
    for (int32_t at = begin + 1; at < end; ++at) {
      NodeId id = order[at];
      const Node &node = problem.nodes[id];
      auto isBehind = [&](const std::vector<bool> &flags) {
        return llvm::any_of(problem.preds[id],
                            [&](NodeId pred) { return positions[pred] >= begin && flags[positions[pred] - begin]; });
      };
      bool computes = node.kind == NodeKind::Compute && mayMove(id);
      needs[at - begin] = isBehind(needs);
      stays[at - begin] = !computes || isBehind(stays);
      if (!computes || node.cost == 0 || (needsWait ? !needs[at - begin] : stays[at - begin]))
        continue;
      std::vector<NodeId> moved = {id};
      for (size_t next = 0; next < moved.size() && !needsWait; ++next)
        for (NodeId pred : problem.preds[moved[next]])
          if (positions[pred] > begin && !llvm::is_contained(moved, pred))
            moved.push_back(pred);
      llvm::sort(moved, [&](NodeId a, NodeId b) { return positions[a] < positions[b]; });
      Order other = moveTo(moved, begin);
      std::optional<Timeline> played = play(problem, other);
      if (!played)
        return std::nullopt;
      return Replay{played->makespan, memoryProfile(problem, other).peak, id};
    }
    return std::nullopt;
  }

  /// The order with `moved` at position `to`.
  Order moveTo(llvm::ArrayRef<NodeId> moved, int32_t to) const {
    Order other;
    for (int32_t at = 0; at < static_cast<int32_t>(order.size()); ++at) {
      if (at == to)
        llvm::append_range(other, moved);
      if (!llvm::is_contained(moved, order[at]))
        other.push_back(order[at]);
    }
    return other;
  }

  /// Plays another order. None if too much has been played already.
  std::optional<Timeline> play(const Problem &of, llvm::ArrayRef<NodeId> other) {
    replayed += problem.size();
    return replayed > kMostReplayed ? std::nullopt : std::optional<Timeline>(simulate(of, other));
  }

  Bytes allocatedBy(NodeId node) const {
    Bytes bytes = 0;
    for (BufferId buffer : problem.touches[node])
      bytes += problem.buffers[buffer].def == node ? problem.buffers[buffer].bytes : 0;
    return bytes;
  }

  const Problem &problem;
  llvm::ArrayRef<NodeId> order;
  Timeline line;
  MemoryTree live;
  std::vector<int32_t> positions;
  /// Indexed by position: when the compute lane comes to it, ns.
  std::vector<Ns> arrival;
  /// Indexed by node: how long compute stands still for a collective, ns.
  std::vector<Ns> exposed;
  /// Indexed by node: the collective in front of it on its lane, or kNone.
  std::vector<NodeId> previous;
  /// How many nodes have been played again.
  int64_t replayed = 0;
};

/// Indexed by node: the wait for a start that comes first in the order, or kNone. Nodes with regions count as no waits,
/// since computation cannot come between the start and the part of them that waits.
std::vector<NodeId> firstWaits(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  std::vector<NodeId> waits(problem.size(), kNone);
  for (NodeId node : order)
    if (NodeId start = problem.nodes[node].start; start != kNone && waits[start] == kNone)
      waits[start] = node;
  return waits;
}

/// Indexed by expanded node: the original that names it. A bucket's nodes are named after the first member that they
/// serve, as the locations of the operations that are made of them.
std::vector<NodeId> namesOf(const Problem &problem, const Schedule &schedule) {
  std::vector<NodeId> names = schedule.expanded.origin;
  auto name = [&](NodeId node, NodeId original) {
    if (node != kNone && names[node] == kNone)
      names[node] = original;
  };
  for (auto [bucket, nodes] : llvm::zip_equal(schedule.buckets, schedule.expanded.buckets)) {
    NodeId first = bucket.members.front(), wait = problem.members[first].wait;
    name(nodes.pack, first);
    name(nodes.start, first);
    name(nodes.wait, wait);
    name(nodes.view, wait);
    for (auto [unpack, member] : llvm::zip(nodes.unpacks, bucket.members))
      name(unpack, problem.members[member].wait);
  }
  return names;
}

} // namespace

std::vector<StartOutcome> commsched::explain(const Problem &problem, const Schedule &schedule, Bytes limit,
                                             PackOf packOf) {
  const ExpandedProblem &expanded = schedule.expanded;
  std::vector<Ns> exposedBefore = exposedByCollective(problem, simulate(problem, identityOrder(problem)));
  PlayedOrder after(schedule.carriedOut(problem), schedule.order);
  std::vector<NodeId> names = namesOf(problem, schedule),
                      waits = firstWaits(schedule.carriedOut(problem), schedule.order);

  std::vector<StartOutcome> outcomes;
  // The images of starts, with their packs.
  std::vector<std::pair<NodeId, NodeId>> images;
  for (NodeId start = 0; start < problem.size(); ++start) {
    if (problem.nodes[start].kind != NodeKind::Start)
      continue;
    NodeId image = schedule.imageOf(start);
    StartOutcome outcome;
    outcome.start = start;
    outcome.bucket = schedule.isExpanded() ? expanded.bucketOf[image] : kNone;
    outcome.positionBefore = start;
    outcome.positionAfter = after.position(image);
    outcome.exposedBefore = exposedBefore[start];
    bool tells = outcome.bucket == kNone || schedule.buckets[outcome.bucket].members.front() == start;
    outcome.exposedAfter = tells ? after.exposedOf(image) : 0;
    NodeId pack = kNone;
    if (outcome.bucket != kNone)
      pack = expanded.buckets[outcome.bucket].pack;
    else if (NodeId own = packOf ? packOf(start) : kNone; own != kNone)
      pack = schedule.imageOf(own);
    images.push_back({image, pack == kNone ? image : pack});
    outcomes.push_back(outcome);
  }
  // The worst come first, as long as other orders are played for them; members of a bucket have one reason.
  std::vector<size_t> turns(images.size());
  std::iota(turns.begin(), turns.end(), 0);
  llvm::stable_sort(
      turns, [&](size_t a, size_t b) { return after.exposedOf(images[a].first) > after.exposedOf(images[b].first); });
  std::map<NodeId, Explanation> reasons;
  for (size_t turn : turns) {
    auto [image, first] = images[turn];
    auto [entry, isNew] = reasons.try_emplace(image);
    if (isNew)
      entry->second = after.explain(image, first, waits[image], limit);
    outcomes[turn].reason = entry->second;
    if (NodeId &blocker = outcomes[turn].reason.blocker; blocker != kNone && schedule.isExpanded())
      blocker = names[blocker];
  }
  return outcomes;
}
