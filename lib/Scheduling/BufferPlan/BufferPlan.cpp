//===- BufferPlan.cpp - Offsets of buffers in one arena ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Offline dynamic storage allocation. Several rules are tried and the smallest arena wins. Sweeps in time are cheap and
// always done. Then chains of greedy placements: a chain begins with an order of the buffers, and after each placement
// the buffer that ended highest is moved forward in it, as squeaky wheel optimization does (Joslin and Clements,
// JAIR 10, 1999). The orders: by first position; by contention, the most bytes that are live during the buffer's life,
// as TelaMalloc has it (Maas et al., ASPLOS 2023); by size, as TensorFlow Lite's planner has it (Pisarchyk and Lee,
// 2020); and by area. Of equals, the longest life comes first: what lives long is then at the bottom, and what
// dies early leaves one hole and not many.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "CommSched/Scheduling/Memory/MemoryTree.h"
#include "GreedyPlacement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <functional>
#include <tuple>

using namespace commsched;

/// Limits on the number of placements of a chain: the traced training graphs still gain after 50, programs of 20
/// buffers do not after 12. In between a quarter of the number of buffers.
static constexpr int32_t kMinRounds = 12, kMaxRounds = 80;
/// The chains that seldom win, and those without a smaller arena in this number of turns, have a turn only when the
/// round is a multiple of this.
static constexpr int32_t kSeldom = 16;
/// An arena that is larger than its lower bound by less than this part of it is not improved any more.
static constexpr Bytes kCloseEnough = 8192;

std::vector<LiveInterval> commsched::liveIntervals(const Problem &problem, llvm::ArrayRef<NodeId> order) {
  std::vector<LiveInterval> intervals(problem.buffers.size());
  for (auto [interval, buffer] : llvm::zip_equal(intervals, problem.buffers))
    interval = {0, -1, buffer.bytes};
  int32_t last = static_cast<int32_t>(order.size()) - 1;
  for (int32_t position = 0; position <= last; ++position)
    for (BufferId id : problem.touches[order[position]]) {
      if (intervals[id].end < 0)
        intervals[id].begin = problem.buffers[id].def == kNone ? 0 : position;
      intervals[id].end = problem.buffers[id].liveOut ? last : position;
    }
  return intervals;
}

static bool isEmpty(const LiveInterval &interval) { return interval.end < interval.begin || interval.bytes <= 0; }

Bytes commsched::maximumLiveBytes(llvm::ArrayRef<LiveInterval> intervals) {
  // (position, bytes); what ends at a position is freed after it.
  std::vector<std::pair<int64_t, Bytes>> changes;
  changes.reserve(2 * intervals.size());
  for (const LiveInterval &interval : intervals)
    if (!isEmpty(interval)) {
      changes.emplace_back(interval.begin, interval.bytes);
      changes.emplace_back(static_cast<int64_t>(interval.end) + 1, -interval.bytes);
    }
  std::sort(changes.begin(), changes.end());
  Bytes live = 0, most = 0;
  for (auto [position, bytes] : changes)
    most = std::max(most, live += bytes);
  return most;
}

PlanInput::PlanInput(llvm::ArrayRef<LiveInterval> intervals, Bytes alignment)
    : intervals(intervals), sizes(intervals.size()), contention(intervals.size()) {
  for (int32_t id = 0; id < static_cast<int32_t>(intervals.size()); ++id)
    if (!isEmpty(intervals[id])) {
      sizes[id] = static_cast<Bytes>(llvm::alignTo(intervals[id].bytes, alignment));
      ids.push_back(id);
    }
  llvm::stable_sort(ids, [&](int32_t a, int32_t b) {
    return std::make_tuple(intervals[a].begin, -sizes[a]) < std::make_tuple(intervals[b].begin, -sizes[b]);
  });
  // Live bytes are the most where something begins.
  std::vector<int32_t> begins;
  for (int32_t id : ids)
    if (begins.empty() || begins.back() != intervals[id].begin)
      begins.push_back(intervals[id].begin);
  auto rankOf = [&](int64_t position) {
    return static_cast<int32_t>(llvm::partition_point(begins, [&](int32_t begin) { return begin < position; }) -
                                begins.begin());
  };
  MemoryTree live(static_cast<int32_t>(begins.size()));
  auto last = [&](int32_t id) { return rankOf(static_cast<int64_t>(intervals[id].end) + 1); };
  for (int32_t id : ids)
    live.add(rankOf(intervals[id].begin), last(id), sizes[id]);
  for (int32_t id : ids)
    contention[id] = live.max(rankOf(intervals[id].begin), last(id));
  floor = ids.empty() ? 0 : live.max();
}

namespace {

/// An order of the buffers, with how it is placed and improved.
struct Chain {
  std::vector<int32_t> order;
  GapRule rule;
  /// A buffer that ended too high at place p of the order is moved to place p * share / 2.
  int32_t share;
  /// The chain has a turn in each round that this divides.
  int32_t period;
  /// The smallest arena of the chain so far, bytes, and the number of turns since it was found.
  Bytes best = std::numeric_limits<Bytes>::max();
  int32_t stalled = 0;
};

/// Keeps the smallest arena.
class Planner {
public:
  Planner(const PlanInput &input, const PlanEffort &effort, BufferPlan &plan)
      : input(input), plan(plan), enough(std::max(effort.enough, input.floor + input.floor / kCloseEnough)),
        greedy(input, effort.steps + effort.stepsPerBuffer * static_cast<int64_t>(input.ids.size())),
        offsets(input.intervals.size(), 0) {
    plan.offsets = offsets;
    plan.total = std::numeric_limits<Bytes>::max();
  }

  void run() {
    std::vector<int32_t> byTime =
        sortedBy([&](int32_t id) { return -static_cast<int64_t>(input.intervals[id].begin); });
    keep(sweepHeap(input, input.ids, offsets));
    keep(sweepHeap(input, byTime, offsets));
    if (isCloseEnough())
      return;
    std::vector<int32_t> byContention = sortedBy([&](int32_t id) { return input.contention[id]; });
    auto area = [&](int32_t id) {
      return static_cast<int64_t>(
          std::min<uint64_t>(llvm::SaturatingMultiply<uint64_t>(input.sizes[id], input.length(id)), INT64_MAX));
    };
    Chain chains[] = {
        {std::move(byTime), GapRule::Tightest, 0, 1},
        {byContention, GapRule::Tightest, 1, 1},
        {std::move(byContention), GapRule::Lowest, 1, 1},
        {sortedBy([&](int32_t id) { return input.sizes[id]; }), GapRule::Tightest, 1, kSeldom},
        {sortedBy(area), GapRule::Tightest, 1, kSeldom},
    };
    int32_t rounds = std::clamp(static_cast<int32_t>(input.ids.size() / 4), kMinRounds, kMaxRounds);
    for (int32_t round = 0; round < rounds; ++round)
      for (Chain &chain : chains) {
        if (round % (chain.stalled < kSeldom ? chain.period : kSeldom) == 0)
          advance(chain);
        if (isCloseEnough() || greedy.isExhausted())
          return;
      }
  }

private:
  bool isCloseEnough() const { return plan.total <= enough; }

  void keep(Bytes total) {
    if (total >= plan.total)
      return;
    plan.total = total;
    plan.offsets = offsets;
  }

  /// The buffers by falling key, those that live longer first, then larger ones.
  std::vector<int32_t> sortedBy(const std::function<int64_t(int32_t)> &key) const {
    std::vector<int32_t> order(input.ids);
    llvm::stable_sort(order, [&](int32_t a, int32_t b) {
      return std::make_tuple(key(a), input.length(a), input.sizes[a]) >
             std::make_tuple(key(b), input.length(b), input.sizes[b]);
    });
    return order;
  }

  /// Places in the order of the chain, until it is known to give no smaller arena, and moves the highest buffer
  /// forward.
  void advance(Chain &chain) {
    GreedyPlacement::Outcome outcome = greedy.run(chain.order, chain.rule, chain.best - 1, offsets);
    if (greedy.isExhausted())
      return;
    ++chain.stalled;
    if (outcome.isComplete) {
      chain.stalled = 0;
      chain.best = outcome.total;
      keep(outcome.total);
    }
    auto highest = chain.order.begin() + static_cast<ptrdiff_t>(outcome.highest);
    auto target = chain.order.begin() + static_cast<ptrdiff_t>(outcome.highest * chain.share / 2);
    std::rotate(target, highest, std::next(highest));
  }

  const PlanInput &input;
  BufferPlan &plan;
  Bytes enough;
  GreedyPlacement greedy;
  std::vector<Bytes> offsets;
};

} // namespace

BufferPlan commsched::planBuffers(llvm::ArrayRef<LiveInterval> intervals, Bytes alignment, const PlanEffort &effort) {
  BufferPlan plan;
  plan.bound = maximumLiveBytes(intervals);
  PlanInput input(intervals, alignment);
  Planner(input, effort, plan).run();
  return plan;
}
