//===- GreedyPlacement.cpp - Buffers placed one after the other -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The inner loop of the planner: it walks what is placed by ascending offset.
//
//===------------------------------------------------------------------------------------------===//

#include "GreedyPlacement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <tuple>

using namespace commsched;

/// Limit on the number of buffers that are kept in one list.
static constexpr size_t kMaxListed = 1 << 14;
/// A visit of a node of the tree, with its share of sorting what is found and walking over it, takes as long as about
/// this number of steps over the list.
static constexpr int64_t kTreeStep = 64;

PlacedTree::PlacedTree(const PlanInput &input)
    : input(input), leaves(static_cast<int32_t>(llvm::PowerOf2Ceil(std::max<size_t>(input.ids.size(), 1)))),
      lastEnd(2 * static_cast<size_t>(leaves), -1), rank(input.intervals.size(), -1) {
  for (int32_t index = 0; index < static_cast<int32_t>(input.ids.size()); ++index)
    rank[input.ids[index]] = index;
}

void PlacedTree::clear() { std::fill(lastEnd.begin(), lastEnd.end(), -1); }

void PlacedTree::add(int32_t id) {
  for (int32_t node = leaves + rank[id]; node >= 1; node /= 2)
    lastEnd[node] = std::max(lastEnd[node], input.intervals[id].end);
}

void PlacedTree::collect(int32_t id, llvm::SmallVectorImpl<int32_t> &overlaps, int64_t &stepsLeft) const {
  const LiveInterval &own = input.intervals[id];
  auto beyond = std::partition_point(input.ids.begin(), input.ids.end(),
                                     [&](int32_t other) { return input.intervals[other].begin <= own.end; });
  descend(1, 0, leaves, static_cast<int32_t>(beyond - input.ids.begin()), own.begin, overlaps, stepsLeft);
}

/// Visits leaves [begin, end) of `node` before `limit` whose life reaches `position`.
void PlacedTree::descend(int32_t node, int32_t begin, int32_t end, int32_t limit, int32_t position,
                         llvm::SmallVectorImpl<int32_t> &overlaps, int64_t &stepsLeft) const {
  if (begin >= limit || lastEnd[node] < position || stepsLeft < 0)
    return;
  stepsLeft -= kTreeStep;
  if (node >= leaves)
    return overlaps.push_back(input.ids[begin]);
  int32_t middle = begin + (end - begin) / 2;
  descend(2 * node, begin, middle, limit, position, overlaps, stepsLeft);
  descend(2 * node + 1, middle, end, limit, position, overlaps, stepsLeft);
}

GreedyPlacement::GreedyPlacement(const PlanInput &input, int64_t steps)
    : input(input), usesTree(input.ids.size() > kMaxListed), tree(input), stepsLeft(steps) {}

GreedyPlacement::Outcome GreedyPlacement::run(llvm::ArrayRef<int32_t> order, GapRule rule, Bytes cap,
                                              std::vector<Bytes> &offsets) {
  listed.clear();
  if (usesTree)
    tree.clear();
  Outcome outcome;
  for (auto [index, id] : llvm::enumerate(order)) {
    collect(id, offsets);
    if (isExhausted())
      return outcome;
    offsets[id] = findGap(id, rule, offsets);
    if (Bytes end = offsets[id] + input.sizes[id]; end > outcome.total) {
      outcome.total = end;
      outcome.highest = index;
      if (end > cap)
        return outcome;
    }
    add(id, offsets);
  }
  outcome.isComplete = true;
  return outcome;
}

/// Lists what lives together with a buffer, by offset.
void GreedyPlacement::collect(int32_t id, llvm::ArrayRef<Bytes> offsets) {
  if (usesTree) {
    overlaps.clear();
    tree.collect(id, overlaps, stepsLeft);
    llvm::sort(overlaps, [&](int32_t a, int32_t b) { return std::tie(offsets[a], a) < std::tie(offsets[b], b); });
    return;
  }
  // Without branches on what is unpredictable: every entry is written, and only some are kept.
  stepsLeft -= static_cast<int64_t>(listed.size());
  overlaps.resize_for_overwrite(listed.size());
  const LiveInterval &own = input.intervals[id];
  size_t count = 0;
  for (const Listed &other : listed) {
    overlaps[count] = other.id;
    count += static_cast<size_t>(other.begin <= own.end) & static_cast<size_t>(other.end >= own.begin);
  }
  overlaps.truncate(count);
}

Bytes GreedyPlacement::findGap(int32_t id, GapRule rule, llvm::ArrayRef<Bytes> offsets) const {
  Bytes size = input.sizes[id], cursor = 0, best = -1, tightest = std::numeric_limits<Bytes>::max();
  for (int32_t other : overlaps) {
    Bytes gap = offsets[other] - cursor;
    if (gap >= size && gap < tightest) {
      if (rule == GapRule::Lowest)
        return cursor;
      best = cursor;
      tightest = gap;
    }
    cursor = std::max(cursor, offsets[other] + input.sizes[other]);
  }
  return best >= 0 ? best : cursor;
}

void GreedyPlacement::add(int32_t id, llvm::ArrayRef<Bytes> offsets) {
  if (usesTree)
    return tree.add(id);
  auto place = llvm::partition_point(listed, [&](const Listed &other) { return offsets[other.id] <= offsets[id]; });
  listed.insert(place, {input.intervals[id].begin, input.intervals[id].end, id});
}
