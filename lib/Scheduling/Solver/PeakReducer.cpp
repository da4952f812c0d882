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
#include "CommSched/Scheduling/Model/Memory.h"
#include "CommSched/Scheduling/Model/MoveEvaluator.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// Number of touches that can be visited in the time of one step.
constexpr int64_t kTouchesPerStep = 16;

/// Reduces the peak of one order.
class Reducer {
public:
  Reducer(const Problem &problem, Order order, int64_t &steps)
      : problem(problem), evaluator(problem, order), steps(steps) {}

  Order run(Bytes limit) {
    while (evaluator.peak() > limit && steps > 0 && lowerPeak()) {
    }
    return evaluator.order().vec();
  }

private:
  struct Move {
    int32_t from, to;
  };

  /// Lowers what is live at the first position that holds the peak. Returns whether a move was found.
  bool lowerPeak() {
    int32_t top = evaluator.live().argmax();
    steps -= problem.touches.numValues() / kTouchesPerStep;
    std::vector<Move> moves = movesAway(top);
    Bytes peak = evaluator.peak();
    for (const Move &move : moves) {
      if (steps-- <= 0)
        return false;
      if (evaluator.windowPeakIfMoved(move.from, move.from + 1, move.to) >= peak)
        continue;
      // Everything between has to stay below too: else the peak would only wander.
      if (evaluator.peakIfMoved(move.from, move.from + 1, move.to) > peak)
        continue;
      Bytes before = evaluator.live().value(top);
      evaluator.move(move.from, move.from + 1, move.to);
      if (evaluator.live().value(top) < before || evaluator.peak() < peak)
        return true;
      evaluator.move(move.to, move.to + 1, move.from);
    }
    return false;
  }

  /// Moves that may take bytes away from a position, the largest buffers first.
  std::vector<Move> movesAway(int32_t top) const {
    std::vector<std::pair<Bytes, Move>> candidates;
    auto add = [&](Bytes bytes, int32_t from, int32_t to) {
      if (from != to)
        candidates.push_back({bytes, {from, to}});
    };
    for (BufferId id = 0; id < static_cast<BufferId>(problem.buffers.size()); ++id) {
      const Buffer &buffer = problem.buffers[id];
      if (buffer.bytes == 0 || problem.users[id].empty())
        continue;
      int32_t first = problem.size(), last = -1;
      for (NodeId user : problem.users[id]) {
        first = std::min(first, evaluator.position(user));
        last = std::max(last, evaluator.position(user));
      }
      // Allocated before the top: later. Used for the last time behind it: earlier.
      if (buffer.def != kNone && first < top && top <= last)
        add(buffer.bytes, first, std::min(evaluator.latest(first, first + 1), top));
      if (!buffer.liveOut && first <= top && top < last)
        add(buffer.bytes, last, std::max(evaluator.earliest(last, last + 1), top));
    }
    // The node at the top itself: elsewhere, less may be live.
    add(0, top, evaluator.latest(top, top + 1));
    add(0, top, evaluator.earliest(top, top + 1));
    llvm::stable_sort(candidates, [](const auto &a, const auto &b) { return a.first > b.first; });
    std::vector<Move> moves;
    for (const auto &candidate : candidates)
      moves.push_back(candidate.second);
    return moves;
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
  Order lean = Reducer(problem, leanOrder(problem), steps).run(limit);
  return peakOf(problem, lean) < peakOf(problem, best) ? lean : best;
}
