//===- PeakReducer.cpp - Orders with a lower peak ---------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Two starting points: the given order, and the order that greedily runs the node with the least growth of live bytes.
//
//===------------------------------------------------------------------------------------------===//

#include "PeakReducer.h"
#include "CommSched/Scheduling/Memory/Memory.h"
#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cstdlib>

using namespace commsched;

namespace {

/// Number of touches that can be visited in the time of one step.
constexpr int64_t kTouchesPerStep = 16;
/// In each round the order is cut into pieces, about kPieces of at least kLeastPiece positions at first, and each of
/// them is lowered where it is highest. One look at all buffers serves all pieces.
constexpr int32_t kPieces = 512, kLeastPiece = 64;
/// What is above the peak less 1 / kPart of it is lowered first.
constexpr Bytes kPart = 32;
/// Limits on the number of nodes that move together, and on how far from the top the first of them stands.
constexpr size_t kMaxChain = 24;
constexpr int32_t kMaxChainDistance = 256;

/// Reduces the peak of one order.
class Reducer {
public:
  Reducer(const Problem &problem, Order order, int64_t &steps)
      : problem(problem), evaluator(problem, order), steps(steps) {}

  Order run(Bytes limit) {
    // What is far below the peak does not matter yet. The highest position of a piece may be stuck behind one that is
    // little lower: then shorter pieces are lowered.
    int32_t piece = std::max(problem.size() / kPieces, kLeastPiece);
    while (evaluator.peak() > limit && steps > 0 && piece > 0)
      if (!lowerTops(std::max(limit, evaluator.peak() - evaluator.peak() / kPart), piece))
        piece /= 4;
    return evaluator.order().vec();
  }

private:
  /// A node that may leave the side of a top on which it stands, with the bytes that the top may lose by that. The
  /// top's own node may leave in either direction.
  struct Candidate {
    Bytes bytes;
    NodeId node;
  };
  /// The highest position of a piece that is above the limit.
  struct Top {
    NodeId node;
    llvm::SmallVector<Candidate, 8> candidates;
  };

  /// Lowers every piece that is above the limit. Returns whether anything became lower.
  bool lowerTops(Bytes limit, int32_t piece) {
    steps -= problem.touches.numValues() / kTouchesPerStep;
    std::vector<Top> tops = findTops(limit, piece);
    findCandidates(tops);
    bool lowered = false;
    for (Top &top : tops) {
      llvm::stable_sort(top.candidates, [](const Candidate &a, const Candidate &b) { return a.bytes > b.bytes; });
      for (const Candidate &candidate : top.candidates) {
        if (steps <= 0 || evaluator.live().value(evaluator.position(top.node)) <= limit)
          break;
        lowered |= lower(top.node, candidate.node);
      }
    }
    return lowered;
  }

  /// By ascending position.
  std::vector<Top> findTops(Bytes limit, int32_t piece) const {
    std::vector<Bytes> live = evaluator.live().values();
    const auto size = static_cast<int32_t>(live.size());
    std::vector<Top> tops;
    for (int32_t first = 0; first < size; first += piece) {
      auto highest = std::max_element(live.begin() + first, live.begin() + std::min(first + piece, size));
      if (*highest > limit)
        tops.push_back({evaluator.order()[highest - live.begin()], {}});
    }
    return tops;
  }

  /// Finds for each top the nodes that allocate before it what is used behind it only, and those behind it that are the
  /// last to use something. O(touches + edges + candidates).
  void findCandidates(std::vector<Top> &tops) const {
    std::vector<int32_t> places;
    for (Top &top : tops) {
      places.push_back(evaluator.position(top.node));
      top.candidates.push_back({0, top.node});
    }
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      const Buffer &buffer = problem.buffers[id];
      if (buffer.bytes == 0 || problem.users[id].empty())
        continue;
      int32_t first = problem.size(), last = -1;
      for (NodeId user : problem.users[id]) {
        first = std::min(first, evaluator.position(user));
        last = std::max(last, evaluator.position(user));
      }
      if (buffer.def != kNone)
        addBetween(tops, places, first + 1, std::min(reach(first, 1), last), {buffer.bytes, evaluator.order()[first]});
      if (!buffer.liveOut)
        addBetween(tops, places, std::max(reach(last, -1), first), last - 1, {buffer.bytes, evaluator.order()[last]});
    }
  }

  /// The farthest position behind (`step` = 1) or in front of (-1) a node at which a top may stand that the node passes
  /// alone or with few others.
  int32_t reach(int32_t from, int32_t step) const {
    int32_t alone = step > 0 ? evaluator.latest(from, from + 1) : evaluator.earliest(from, from + 1);
    return step > 0 ? std::max(alone, from + kMaxChainDistance) : std::min(alone, from - kMaxChainDistance);
  }

  /// Adds a candidate to the tops at the positions from `first` to `last`.
  static void addBetween(std::vector<Top> &tops, llvm::ArrayRef<int32_t> places, int32_t first, int32_t last,
                         Candidate candidate) {
    for (size_t top = llvm::lower_bound(places, first) - places.begin(); top < places.size() && places[top] <= last;
         ++top)
      tops[top].candidates.push_back(candidate);
  }

  /// Moves `node` to the other side of `top`, or the top itself in either direction, to the first of the places at
  /// distances of powers of two at which everything between then holds less than the top does now. Returns whether it
  /// moved.
  bool lower(NodeId top, NodeId node) {
    int32_t at = evaluator.position(top), from = evaluator.position(node);
    int32_t earliest = evaluator.earliest(from, from + 1), latest = evaluator.latest(from, from + 1);
    if (from <= at)
      for (int64_t beyond = node == top; at + beyond <= latest; beyond = std::max<int64_t>(2 * beyond, 1))
        if (tryMove(at, from, static_cast<int32_t>(at + beyond)))
          return true;
    if (from >= at)
      for (int64_t beyond = node == top; at - beyond >= earliest; beyond = std::max<int64_t>(2 * beyond, 1))
        if (tryMove(at, from, static_cast<int32_t>(at - beyond)))
          return true;
    bool isStuck = from < at ? latest < at : from > at && earliest > at;
    return isStuck && std::abs(at - from) <= kMaxChainDistance && moveAlong(at, from);
  }

  /// Moves the node at `from` to the other side of the top at position `top` together with everything between that
  /// depends on it, or on which it depends. Returns whether that lowered the top.
  bool moveAlong(int32_t top, int32_t from) {
    const bool right = from < top;
    const int32_t step = right ? 1 : -1;
    Bytes before = evaluator.live().value(top);
    llvm::SmallVector<int32_t, 16> chain = {from};
    llvm::SmallDenseSet<NodeId, 16> members = {evaluator.order()[from]};
    // Nodes join in the order in which they stand, so that their own dependences have joined before.
    for (int32_t at = from + step; at != top + step; at += step) {
      NodeId node = evaluator.order()[at];
      const IndexLists &others = right ? problem.preds : problem.succs;
      if (llvm::none_of(others[node], [&](NodeId other) { return members.contains(other); }))
        continue;
      if (at == top || chain.size() == kMaxChain)
        return false;
      chain.push_back(at);
      members.insert(node);
    }
    steps -= static_cast<int64_t>(chain.size());
    // The one next to the top goes first, and each goes to where the top stands then.
    llvm::SmallVector<std::pair<int32_t, int32_t>, 16> made;
    int32_t to = top;
    for (int32_t at : llvm::reverse(chain)) {
      evaluator.move(at, at + 1, to);
      made.push_back({at, to});
      to -= step;
    }
    if (evaluator.live().max(std::min(from, top), std::max(from, top) + 1) < before)
      return true;
    for (auto [at, place] : llvm::reverse(made))
      evaluator.move(place, place + 1, at);
    return false;
  }

  bool tryMove(int32_t top, int32_t from, int32_t to) {
    --steps;
    if (evaluator.windowPeakIfMoved(from, from + 1, to) >= evaluator.live().value(top))
      return false;
    evaluator.move(from, from + 1, to);
    return true;
  }

  const Problem &problem;
  MoveEvaluator evaluator;
  int64_t &steps;
};

/// The order that always runs the ready node with the least growth of live bytes; ties by given order.
/// O((N + touches) log N).
Order leanOrder(const Problem &problem) {
  std::vector<int32_t> pending(problem.size()), toCome(problem.buffers.size());
  std::vector<char> live(problem.buffers.size(), 0);
  for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
    toCome[id] = static_cast<int32_t>(problem.users[id].size());
    live[id] = problem.buffers[id].def == kNone;
  }
  auto growth = [&](NodeId node) {
    Bytes bytes = 0;
    for (BufferId id : problem.touches[node]) {
      bytes += live[id] ? 0 : problem.buffers[id].bytes;
      bytes -= toCome[id] == 1 && !problem.buffers[id].liveOut ? problem.buffers[id].bytes : 0;
    }
    return bytes;
  };
  // Growths only fall while a node is ready: an entry that has become too large is replaced when it comes up.
  std::vector<std::pair<Bytes, NodeId>> heap;
  auto push = [&](NodeId node) {
    heap.push_back({growth(node), node});
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  Order order;
  std::vector<char> done(problem.size(), 0);
  for (NodeId node = 0; node < problem.size(); ++node)
    if ((pending[node] = static_cast<int32_t>(problem.preds[node].size())) == 0)
      push(node);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    NodeId node = heap.back().second;
    heap.pop_back();
    if (done[node])
      continue;
    done[node] = 1;
    order.push_back(node);
    for (BufferId id : problem.touches[node]) {
      live[id] = 1;
      if (--toCome[id] != 1)
        continue;
      // The last node to touch it now frees it; it may be ready already.
      for (NodeId user : problem.users[id])
        if (!done[user] && pending[user] == 0)
          push(user);
    }
    for (NodeId user : problem.succs[node])
      if (--pending[user] == 0)
        push(user);
  }
  return order;
}

} // namespace

Order commsched::reducePeak(const Problem &problem, Order order, Bytes limit, int64_t &steps) {
  Order best = Reducer(problem, order, steps).run(limit);
  if (peakOf(problem, best) <= limit)
    return best;
  Order lean = leanOrder(problem);
  if (peakOf(problem, lean) > 2 * peakOf(problem, best))
    return best;
  lean = Reducer(problem, std::move(lean), steps).run(limit);
  return peakOf(problem, lean) < peakOf(problem, best) ? lean : best;
}
