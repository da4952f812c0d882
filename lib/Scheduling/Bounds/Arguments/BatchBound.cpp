//===- BatchBound.cpp - Bound by the number of buckets ----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 17 of Bounds.md. A bucket takes at least a latency and a time in proportion to its bytes. Within a
// makespan T, members are ready one after the other, so a lane needs some number of buckets for them; the bound is the
// smallest T at which their latencies, and all other work of the lane, fit.
//
//===------------------------------------------------------------------------------------------===//

#include "BatchBound.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <numeric>

using namespace commsched;

/// Number of cells of sizes in which a cost function is evaluated: enough to lose little of a latency.
static constexpr int64_t kBatchCells = 4096;
/// Members of less than this share of the largest member do not count; or the smallest ones, which have together less
/// than this share of all bytes.
static constexpr Bytes kSmallShare = 16, kTinyShare = 1024;
/// Limit on the nodes of problems for which both rules are tried.
static constexpr NodeId kBothRules = 50000;

KeyBatches::KeyBatches(const Problem &problem, const MergeKey &key, llvm::ArrayRef<NodeId> members) : cap(key.cap) {
  Bytes total = 0;
  for (NodeId id : members) {
    total += problem.nodes[id].bytes;
    // A member may stay alone, with its own cost.
    points.push_back({problem.nodes[id].bytes, problem.nodes[id].cost});
  }
  sample(key, total);
  for (int64_t share = 0; share <= kLatencies; ++share)
    lines.push_back(through(mulDiv(largestLatency, share, kLatencies)));
}

/// All sums of the members' bytes are multiples of what the members have in common. If these are too many, cells are
/// evaluated, narrow ones for small sizes: of the sizes in a cell, the largest one has at least the smallest one's
/// cost.
void KeyBatches::sample(const MergeKey &key, Bytes total) {
  auto isSmaller = [](const CostSample &a, const CostSample &b) { return a.bytes < b.bytes; };
  Bytes first = llvm::min_element(points, isSmaller)->bytes, common = 0;
  for (const CostSample &point : points)
    common = std::gcd(common, point.bytes);
  const Bytes last = std::max(first, cap > 0 ? std::min(total, cap) : total), step = std::max<Bytes>(common, 1);
  auto add = [&](Bytes smallest, Bytes largest) { points.push_back({largest, std::max<Ns>(key.cost(smallest), 0)}); };
  auto border = [&](int64_t cell) {
    return first + mulDiv(mulDiv(last - first, cell, kBatchCells), cell, kBatchCells);
  };
  if ((last - first) / step < kBatchCells)
    for (Bytes bytes = first; bytes <= last; bytes += step)
      add(bytes, bytes);
  else
    for (int64_t cell = 0; cell < kBatchCells; ++cell)
      add(border(cell), border(cell + 1));
  // Where the line through the smallest and the largest size begins.
  auto [small, large] = std::minmax_element(points.begin(), points.end(), isSmaller);
  largestLatency = small->cost;
  if (small->bytes < large->bytes && small->cost < large->cost)
    largestLatency -= mulDiv(large->cost - small->cost, small->bytes, large->bytes - small->bytes);
  for (const CostSample &point : points)
    largestLatency = std::min(largestLatency, point.cost);
  largestLatency = std::max<Ns>(largestLatency, 0);
}

/// The steepest line of a latency below all points.
KeyBatches::Line KeyBatches::through(Ns latency) const {
  Line result = {latency, INT64_MAX, 1};
  for (const CostSample &point : points)
    if (Ns cost = point.cost - latency; compareProducts(cost, result.bytes, result.cost, point.bytes) < 0) {
      result.cost = cost;
      result.bytes = point.bytes;
    }
  return result;
}

/// The last bucket takes as many bytes as it can, then the one before it.
std::optional<int64_t> KeyBatches::batches(llvm::ArrayRef<Release> releases, Ns time) const {
  Bytes total = 0;
  for (const Release &release : releases)
    total += release.bytes;
  int64_t number = 0;
  // releases[0, last) have `before` bytes.
  size_t last = releases.size();
  Bytes left = total, before = total;
  while (left > 0) {
    ++number;
    for (; before >= left && last > 0; before -= releases[last].bytes)
      --last;
    // The last byte that is left is released here. What is left of this release may be asked for again.
    Wide room = Wide(time) - releases[last].time - Wide(number) * line.latency;
    before += releases[last++].bytes;
    if (room < 0)
      return std::nullopt;
    Wide covered = line.cost == 0 ? Wide(total) : std::min<Wide>(total, room * line.bytes / line.cost + 1);
    if (covered <= total - left)
      return std::nullopt;
    left = total - static_cast<Bytes>(covered);
  }
  return cap > 0 ? std::max<int64_t>(number, (total + cap - 1) / cap) : number;
}

llvm::ArrayRef<SmallMembers> commsched::rulesForSmallMembers(const Problem &problem) {
  static constexpr SmallMembers rules[] = {SmallMembers::BesideLargest, SmallMembers::BesideAll};
  return llvm::ArrayRef<SmallMembers>(rules).take_front(problem.size() <= kBothRules ? 2 : 1);
}

/// The bytes that a member needs to count.
static Bytes leastBytes(const Problem &problem, llvm::ArrayRef<NodeId> members, SmallMembers rule) {
  std::vector<Bytes> sizes;
  for (NodeId id : members)
    sizes.push_back(problem.nodes[id].bytes);
  llvm::sort(sizes);
  if (sizes.empty())
    return 0;
  if (rule == SmallMembers::BesideLargest)
    return sizes.back() / kSmallShare;
  Bytes left = std::accumulate(sizes.begin(), sizes.end(), Bytes(0)) / kTinyShare;
  auto least = llvm::find_if(sizes, [&](Bytes bytes) { return (left -= bytes) < 0; });
  return *least;
}

std::vector<std::vector<NodeId>> commsched::membersInNoOrder(const Problem &problem, const BucketShares &shares) {
  std::vector<std::vector<NodeId>> members(problem.mergeKeys.size());
  std::vector<char> isOrdered(problem.mergeKeys.size(), 0);
  for (NodeId id = 0; id < problem.size(); ++id) {
    const Node &node = problem.nodes[id];
    if (node.mergeKey != kNone)
      isOrdered[node.mergeKey] |= llvm::any_of(problem.preds[id], [&](NodeId pred) {
        return problem.nodes[pred].kind == NodeKind::Start && problem.nodes[pred].mergeKey == node.mergeKey;
      });
    if (shares.lane[id] != kNone && node.bytes > 0)
      members[node.mergeKey].push_back(id);
  }
  for (auto [list, ordered] : llvm::zip_equal(members, isOrdered))
    if (ordered)
      list.clear();
  return members;
}

std::vector<std::vector<NodeId>> commsched::membersToBatch(const Problem &problem, const BucketShares &shares,
                                                           LaneId lane, SmallMembers rule,
                                                           llvm::function_ref<bool(NodeId)> isWanted) {
  std::vector<std::vector<NodeId>> members = membersInNoOrder(problem, shares);
  for (std::vector<NodeId> &list : members) {
    llvm::erase_if(list, [&](NodeId id) { return problem.nodes[id].lane != lane || !isWanted(id); });
    const Bytes least = leastBytes(problem, list, rule);
    llvm::erase_if(list, [&](NodeId id) { return problem.nodes[id].bytes < least; });
  }
  return members;
}

/// The smallest makespan of at least `floor` in which everything fits, ns; `floor` if none is found.
static Ns smallestMakespan(Ns floor, llvm::function_ref<bool(Ns)> fits) {
  Ns low = floor - 1, high = floor;
  for (Ns step = 1; !fits(high); step *= 2) {
    if (step >= kLargestAmount / 4)
      return floor;
    low = high;
    high = floor + step;
  }
  while (high - low > 1) {
    Ns middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

Ns BatchArgument::raise(Ns floor) {
  for (KeyBatches &key : keys)
    key.setLatency(0);
  for (KeyBatches &key : keys) {
    int64_t best = 0;
    for (int64_t share = 0; share <= KeyBatches::kLatencies; ++share) {
      key.setLatency(share);
      linesChanged();
      if (Ns makespan = smallestMakespan(floor, [&](Ns makespan) { return fits(makespan); }); makespan > floor) {
        floor = makespan;
        best = share;
      }
    }
    key.setLatency(best);
  }
  return floor;
}

bool BatchArgument::fitsWith(Wide work, llvm::ArrayRef<int64_t> numbers, Ns makespan) const {
  Wide room = makespan - work;
  for (auto [key, number] : llvm::zip_equal(keys, numbers))
    room -= Wide(number) * key.latency();
  return room >= 0;
}

namespace {

/// The members of one key in a span.
struct SpanMembers {
  std::vector<Release> atHead, atTail;
  Bytes total = 0;
};

/// The bound of one span.
class SpanBound final : public BatchArgument {
public:
  SpanBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times, const BucketShares &shares,
            const LaneSpan &span, SmallMembers rule)
      : BatchArgument(problem), span(span) {
    auto isInside = [&](NodeId id) {
      Ns tail = problem.nodes[id].lane == span.lane ? times.laneTail[id] : times.tail[id];
      return costs.lane[id] > 0 && times.begin[id] >= span.head && tail >= span.tail;
    };
    std::vector<std::vector<NodeId>> wanted = membersToBatch(problem, shares, span.lane, rule, isInside);
    for (auto [index, key] : llvm::enumerate(problem.mergeKeys))
      if (!wanted[index].empty())
        add(key, wanted[index], times);
    for (NodeId id = 0; id < problem.size(); ++id) {
      const Node &node = problem.nodes[id];
      bool isOnLane = node.lane == span.lane ||
                      (node.region != kNone && llvm::is_contained(problem.regions[node.region].lanes, span.lane));
      // Of a key with large members, the small ones do not count.
      bool isApart = shares.lane[id] == kNone || wanted[node.mergeKey].empty();
      if (isOnLane && isApart && isInside(id))
        others += costs.lane[id];
    }
  }

private:
  void add(const MergeKey &key, llvm::ArrayRef<NodeId> list, const HeadsAndTails &times) {
    keys.emplace_back(problem, key, list);
    SpanMembers &inside = inSpan.emplace_back();
    for (NodeId id : list) {
      inside.atHead.push_back({times.begin[id], problem.nodes[id].bytes});
      inside.atTail.push_back({times.laneTail[id], problem.nodes[id].bytes});
      inside.total += problem.nodes[id].bytes;
    }
    for (std::vector<Release> *releases : {&inside.atHead, &inside.atTail})
      llvm::stable_sort(*releases, [](const Release &a, const Release &b) { return a.time < b.time; });
  }

  bool fits(Ns makespan) const override {
    Wide work = Wide(span.head) + others + span.tail;
    llvm::SmallVector<int64_t, 4> numbers;
    for (auto [key, inside] : llvm::zip_equal(keys, inSpan)) {
      std::optional<int64_t> fromHeads = key.batches(inside.atHead, makespan - span.tail);
      std::optional<int64_t> fromTails = key.batches(inside.atTail, makespan - span.head);
      if (!fromHeads || !fromTails)
        return false;
      numbers.push_back(std::max(*fromHeads, *fromTails));
      work += Wide(key.costOf(inside.total));
    }
    return fitsWith(work, numbers, makespan);
  }

  const LaneSpan &span;
  /// What cannot be merged, ns.
  Ns others = 0;
  std::vector<SpanMembers> inSpan;
};

} // namespace

BatchBound commsched::batchBound(const Problem &problem, const BoundCosts &costs, const HeadsAndTails &times,
                                 const BucketShares &shares, llvm::ArrayRef<LaneSpan> spans, Ns floor) {
  BatchBound bound = {floor, kNone};
  for (const LaneSpan &span : spans)
    for (SmallMembers rule : rulesForSmallMembers(problem))
      if (Ns makespan = SpanBound(problem, costs, times, shares, span, rule).raise(bound.makespan);
          makespan > bound.makespan)
        bound = {makespan, span.lane};
  return bound;
}
