//===- BufferPlan.cpp - Where in one arena every buffer lies ----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Offline dynamic storage allocation. Several cheap rules are tried and the smallest arena wins: a simulated best-fit
// heap, as XLA's heap simulator has it, and greedy placement in a fixed order, as TensorFlow Lite's planner has it by
// size. The best greedy placement is improved by placing what sits on top earlier.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/BufferPlan/BufferPlan.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

using namespace commsched;

/// Steps of all greedy placements together, at least and per buffer: a few tenths of a second.
static constexpr int64_t kPlanSteps = 40 << 20;
static constexpr int64_t kPlanStepsPerBuffer = 64;
/// How often the best greedy placement is repeated with the topmost buffer placed first.
static constexpr int32_t kPlanRounds = 12;

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

namespace {

/// What all rules share: the buffers that need a place, with their sizes rounded up.
struct PlanInput {
  PlanInput(llvm::ArrayRef<LiveInterval> intervals, Bytes alignment) : intervals(intervals), sizes(intervals.size()) {
    for (int32_t id = 0; id < static_cast<int32_t>(intervals.size()); ++id)
      if (!isEmpty(intervals[id])) {
        sizes[id] = static_cast<Bytes>(llvm::alignTo(intervals[id].bytes, alignment));
        ids.push_back(id);
      }
    llvm::stable_sort(ids, [&](int32_t a, int32_t b) {
      return std::make_tuple(intervals[a].begin, -sizes[a]) < std::make_tuple(intervals[b].begin, -sizes[b]);
    });
  }
  int64_t length(int32_t id) const { return static_cast<int64_t>(intervals[id].end) - intervals[id].begin + 1; }

  llvm::ArrayRef<LiveInterval> intervals;
  std::vector<Bytes> sizes;
  /// By first position, larger ones first.
  std::vector<int32_t> ids;
};

/// A heap played in time: each buffer takes the tightest hole, or grows the arena.
class HeapSweep {
public:
  explicit HeapSweep(const PlanInput &input) : input(input) {}

  Bytes run(std::vector<Bytes> &offsets) {
    std::vector<int32_t> byEnd(input.ids);
    llvm::stable_sort(byEnd, [&](int32_t a, int32_t b) { return input.intervals[a].end < input.intervals[b].end; });
    size_t nextEnd = 0;
    for (int32_t id : input.ids) {
      for (; input.intervals[byEnd[nextEnd]].end < input.intervals[id].begin; ++nextEnd)
        release(offsets[byEnd[nextEnd]], input.sizes[byEnd[nextEnd]]);
      offsets[id] = take(input.sizes[id]);
    }
    return top;
  }

private:
  Bytes take(Bytes size) {
    auto hole = bySize.lower_bound({size, 0});
    if (hole == bySize.end()) {
      // Grow, from the hole at the end where there is one.
      Bytes offset = top;
      if (!holes.empty() && holes.rbegin()->first + holes.rbegin()->second == top) {
        offset = holes.rbegin()->first;
        eraseHole(std::prev(holes.end()));
      }
      top = offset + size;
      return offset;
    }
    auto [length, offset] = *hole;
    eraseHole(holes.find(offset));
    if (length > size)
      addHole(offset + size, length - size);
    return offset;
  }

  void release(Bytes offset, Bytes size) {
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && next->first == offset + size) {
      size += next->second;
      next = eraseHole(next);
    }
    if (next != holes.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        eraseHole(before);
      }
    }
    addHole(offset, size);
  }

  void addHole(Bytes offset, Bytes size) {
    holes.emplace(offset, size);
    bySize.emplace(size, offset);
  }

  std::map<Bytes, Bytes>::iterator eraseHole(std::map<Bytes, Bytes>::iterator hole) {
    bySize.erase({hole->second, hole->first});
    return holes.erase(hole);
  }

  const PlanInput &input;
  std::map<Bytes, Bytes> holes;
  std::set<std::pair<Bytes, Bytes>> bySize;
  Bytes top = 0;
};

/// The buffers that are placed already, by time: a tree over them, sorted by first position, of their last positions.
class PlacedBuffers {
public:
  explicit PlacedBuffers(const PlanInput &input)
      : input(input), leaves(static_cast<int32_t>(llvm::PowerOf2Ceil(std::max<size_t>(input.ids.size(), 1)))),
        lastEnd(2 * static_cast<size_t>(leaves), -1), rank(input.intervals.size(), -1) {
    for (int32_t index = 0; index < static_cast<int32_t>(input.ids.size()); ++index)
      rank[input.ids[index]] = index;
  }

  void clear() { std::fill(lastEnd.begin(), lastEnd.end(), -1); }

  void add(int32_t id) {
    for (int32_t node = leaves + rank[id]; node >= 1; node /= 2)
      lastEnd[node] = std::max(lastEnd[node], input.intervals[id].end);
  }

  /// Appends the placed buffers that live together with `id`; stops early where there are no steps left.
  void collect(int32_t id, std::vector<int32_t> &overlaps, int64_t &stepsLeft) const {
    const LiveInterval &own = input.intervals[id];
    auto beyond = std::partition_point(input.ids.begin(), input.ids.end(),
                                       [&](int32_t other) { return input.intervals[other].begin <= own.end; });
    descend(1, 0, leaves, static_cast<int32_t>(beyond - input.ids.begin()), own.begin, overlaps, stepsLeft);
  }

private:
  /// Leaves [begin, end) of `node` before `limit` whose life reaches `position`.
  void descend(int32_t node, int32_t begin, int32_t end, int32_t limit, int32_t position,
               std::vector<int32_t> &overlaps, int64_t &stepsLeft) const {
    if (begin >= limit || lastEnd[node] < position || --stepsLeft < 0)
      return;
    if (node >= leaves)
      return overlaps.push_back(input.ids[begin]);
    int32_t middle = begin + (end - begin) / 2;
    descend(2 * node, begin, middle, limit, position, overlaps, stepsLeft);
    descend(2 * node + 1, middle, end, limit, position, overlaps, stepsLeft);
  }

  const PlanInput &input;
  int32_t leaves;
  std::vector<int32_t> lastEnd;
  std::vector<int32_t> rank;
};

/// Places buffers one after the other into the tightest gap between those placed before that live together with them.
class GreedyPlacement {
public:
  explicit GreedyPlacement(const PlanInput &input)
      : input(input), placed(input),
        stepsLeft(kPlanSteps + kPlanStepsPerBuffer * static_cast<int64_t>(input.ids.size())) {}

  /// The arena's size, or nothing where the steps do not suffice.
  std::optional<Bytes> run(llvm::ArrayRef<int32_t> order, std::vector<Bytes> &offsets) {
    placed.clear();
    Bytes top = 0;
    for (int32_t id : order) {
      overlaps.clear();
      placed.collect(id, overlaps, stepsLeft);
      if (stepsLeft < 0)
        return std::nullopt;
      std::sort(overlaps.begin(), overlaps.end(),
                [&](int32_t a, int32_t b) { return std::tie(offsets[a], a) < std::tie(offsets[b], b); });
      offsets[id] = findGap(input.sizes[id], offsets);
      placed.add(id);
      top = std::max(top, offsets[id] + input.sizes[id]);
    }
    return top;
  }

private:
  Bytes findGap(Bytes size, llvm::ArrayRef<Bytes> offsets) const {
    Bytes cursor = 0, best = -1, tightest = std::numeric_limits<Bytes>::max();
    for (int32_t other : overlaps) {
      Bytes gap = offsets[other] - cursor;
      if (gap >= size && gap < tightest) {
        best = cursor;
        tightest = gap;
      }
      cursor = std::max(cursor, offsets[other] + input.sizes[other]);
    }
    return best >= 0 ? best : cursor;
  }

  const PlanInput &input;
  PlacedBuffers placed;
  int64_t stepsLeft;
  std::vector<int32_t> overlaps;
};

/// Keeps the smallest arena.
class Planner {
public:
  Planner(const PlanInput &input, BufferPlan &plan)
      : input(input), plan(plan), greedy(input), offsets(input.intervals.size(), 0) {
    plan.offsets.assign(input.intervals.size(), 0);
    plan.total = HeapSweep(input).run(plan.offsets);
  }

  void run() {
    using Key = std::pair<int64_t, int64_t>;
    auto area = [&](int32_t id) { return llvm::SaturatingMultiply<uint64_t>(input.sizes[id], input.length(id)); };
    const std::function<Key(int32_t)> keys[] = {
        [&](int32_t id) { return Key(-static_cast<int64_t>(input.intervals[id].begin), input.sizes[id]); },
        [&](int32_t id) { return Key(input.sizes[id], input.length(id)); },
        [&](int32_t id) { return Key(std::min<uint64_t>(area(id), INT64_MAX), input.sizes[id]); },
    };
    std::vector<int32_t> bestOrder;
    Bytes best = std::numeric_limits<Bytes>::max();
    for (const auto &key : keys) {
      std::vector<int32_t> order(input.ids);
      llvm::stable_sort(order, [&](int32_t a, int32_t b) { return key(a) > key(b); });
      if (Bytes total = place(order); total < best) {
        best = total;
        bestOrder = std::move(order);
      }
    }
    for (int32_t round = 0; round < kPlanRounds && !bestOrder.empty(); ++round)
      place(bestOrder);
  }

private:
  /// Places in `order`, and moves what ends at the top to the front of it. Returns the arena's size.
  Bytes place(std::vector<int32_t> &order) {
    std::optional<Bytes> total;
    if (plan.total > plan.bound)
      total = greedy.run(order, offsets);
    if (!total || order.empty())
      return std::numeric_limits<Bytes>::max();
    if (*total < plan.total) {
      plan.total = *total;
      plan.offsets = offsets;
    }
    auto top = llvm::find_if(order, [&](int32_t id) { return offsets[id] + input.sizes[id] == *total; });
    std::rotate(order.begin(), top, std::next(top));
    return *total;
  }

  const PlanInput &input;
  BufferPlan &plan;
  GreedyPlacement greedy;
  std::vector<Bytes> offsets;
};

} // namespace

BufferPlan commsched::planBuffers(llvm::ArrayRef<LiveInterval> intervals, Bytes alignment) {
  BufferPlan plan;
  plan.bound = maximumLiveBytes(intervals);
  PlanInput input(intervals, alignment);
  Planner(input, plan).run();
  return plan;
}
