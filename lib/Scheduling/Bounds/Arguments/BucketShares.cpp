//===- BucketShares.cpp - Charges that no bucket undercuts ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Lemma 7 of Bounds.md. The smallest rate f(S)/S over all sizes S >= x is bounded from below for all x at once:
// the sizes are split into cells, the largest first, and a cell is halved while its bound is far below a rate that
// occurs.
//
//===------------------------------------------------------------------------------------------===//

#include "BucketShares.h"
#include "CommSched/Scheduling/Buckets/Bucketing.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

namespace {

/// The exact quotient of `cost` (ns) and `bytes`.
struct Rate {
  Ns cost = 0;
  Bytes bytes = 1;
  bool operator<(const Rate &other) const { return compareProducts(cost, other.bytes, other.cost, bytes) < 0; }
  /// The cost of `part` bytes at this rate, rounded down.
  Ns of(Bytes part) const { return mulDiv(cost, part, bytes); }
  /// Whether this is less than `other` by more than the tolerance.
  bool farBelow(const Rate &other) const {
    Wide mine = static_cast<Wide>(cost) * other.bytes, theirs = static_cast<Wide>(other.cost) * bytes;
    return theirs - mine > theirs / kShareTolerance;
  }
};

/// Lower bounds on the smallest rate over [x, largest], for all x from `smallest` on.
class RateFloor {
public:
  RateFloor(const std::function<Ns(Bytes)> &cost, Bytes smallest, Bytes largest) : cost(cost) {
    Ns atLargest = sample(largest);
    lowest = {atLargest, largest};
    cells.push_back({largest, lowest});
    samples.push_back({largest, atLargest});
    if (smallest < largest)
      split(smallest, sample(smallest), largest, atLargest);
  }

  /// The evaluations that the floors rest on, the smallest sizes first. Neighbouring cells are joined where that lowers
  /// no floor.
  std::vector<CostSample> takeSamples() {
    std::vector<CostSample> kept;
    for (const CostSample &next : samples) {
      // Without the last one, the cell from `next` would end at the one before it and hold the sizes of both.
      while (kept.size() > 1) {
        Rate joined{next.cost, kept[kept.size() - 2].bytes};
        if (joined < from(kept.back().bytes))
          break;
        kept.pop_back();
      }
      kept.push_back(next);
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

  /// The floor for all sizes of at least `bytes`.
  Rate from(Bytes bytes) const {
    // Cells run from the largest sizes to the smallest.
    auto cell = std::partition_point(cells.begin(), cells.end(), [&](const Cell &c) { return c.first > bytes; });
    return cell == cells.end() ? cells.back().floor : cell->floor;
  }

private:
  /// The sizes from `first` to the next larger cell; `floor` holds for these and all larger sizes.
  struct Cell {
    Bytes first;
    Rate floor;
  };

  Ns sample(Bytes bytes) {
    ++evaluations;
    return std::max<Ns>(cost(bytes), 0);
  }

  /// Covers [x, y). The sizes from y on are covered already.
  void split(Bytes x, Ns costX, Bytes y, Ns costY) {
    lowest = std::min(lowest, Rate{costY, y});
    Rate floor{costX, y - 1 > x ? y : x};
    if (y - x <= 1 || evaluations >= kMaxShareSamples || !floor.farBelow(lowest)) {
      cells.push_back({x, std::min(cells.back().floor, floor)});
      samples.push_back({x, costX});
      lowest = std::min(lowest, Rate{costX, x});
      return;
    }
    Bytes middle = x + (y - x) / 2;
    Ns costMiddle = sample(middle);
    split(middle, costMiddle, y, costY);
    split(x, costX, middle, costMiddle);
  }

  const std::function<Ns(Bytes)> &cost;
  std::vector<Cell> cells;
  /// The smallest rate of all sizes that were sampled.
  Rate lowest;
  int32_t evaluations = 0;
  /// At the first size of each cell, the largest sizes first.
  std::vector<CostSample> samples;
};

/// Returns the smallest positive size and the sum of all sizes.
std::pair<Bytes, Bytes> smallestAndTotal(llvm::ArrayRef<Bytes> sizes) {
  Bytes smallest = 0, total = 0;
  for (Bytes size : sizes) {
    total += size;
    if (size > 0 && (smallest == 0 || size < smallest))
      smallest = size;
  }
  return {smallest, total};
}

/// Charges the starts of one merge key.
void shareLane(const Problem &problem, const MergeKey &key, llvm::ArrayRef<NodeId> members, std::vector<Ns> &shares,
               KeySamples &samples) {
  std::vector<Bytes> sizes;
  for (NodeId id : members)
    sizes.push_back(problem.nodes[id].bytes);
  auto [smallest, total] = smallestAndTotal(sizes);
  Bytes largest = key.cap < 0 ? total : std::min(total, key.cap);
  if (smallest == 0 || largest < smallest)
    smallest = largest = std::max<Bytes>(largest, 1);
  RateFloor floor(key.cost, smallest, largest);
  std::partial_sort(sizes.begin(), sizes.begin() + 2, sizes.end());
  for (NodeId id : members) {
    const Node &node = problem.nodes[id];
    // A collective that fits into no bucket with the smallest other one stays alone.
    Bytes partner = node.bytes == sizes[0] ? sizes[1] : sizes[0];
    if (key.cap < 0 || node.bytes + partner <= key.cap)
      shares[id] = node.bytes == 0 ? 0 : std::min(node.cost, floor.from(node.bytes).of(node.bytes));
  }
  samples.lane = floor.takeSamples();
}

/// Charges the casts that packs of one merge key can absorb.
void sharePacks(const Problem &problem, llvm::ArrayRef<NodeId> members, BucketShares &shares, KeySamples &samples) {
  std::vector<Bytes> written;
  // The smallest ratio of read to written bytes. A pack absorbs every cast that it can.
  Bytes read = 0, wrote = 0;
  bool any = false;
  for (NodeId id : members) {
    const MergeMember &member = problem.members[id];
    bool isFused = fusedCast(problem, id) != kNone;
    Bytes reads = isFused ? member.castInputBytes : member.inputBytes, writes = member.inputBytes;
    written.push_back(writes);
    any |= isFused;
    if (writes > 0 && (wrote == 0 || compareProducts(reads, wrote, read, writes) < 0))
      read = reads, wrote = writes;
  }
  if (!problem.copyCost)
    return;
  // Without a byte to write there is no rate: wrote stays 0, and every cast counts nothing.
  wrote = std::max<Bytes>(wrote, 1);
  auto [smallest, total] = smallestAndTotal(written);
  std::function<Ns(Bytes)> cost = [&, read = read, wrote = wrote](Bytes bytes) {
    return problem.copyCost(mulDiv(bytes, read, wrote), bytes);
  };
  RateFloor floor(cost, std::max<Bytes>(smallest, 1), std::max<Bytes>(total, 1));
  for (NodeId id : members) {
    const NodeId cast = fusedCast(problem, id);
    if (cast == kNone)
      continue;
    const Bytes bytes = problem.members[id].inputBytes;
    shares.cast[cast] = bytes == 0 ? 0 : std::min(problem.nodes[cast].cost, floor.from(bytes).of(bytes));
  }
  if (!any)
    return;
  samples.pack = floor.takeSamples();
  samples.read = read;
  samples.wrote = wrote;
}

/// Charges the unpacks of one merge key to the members whose casts a pack can absorb: a large output has an unpack of
/// its own, small ones share one.
void shareUnpacks(const Problem &problem, llvm::ArrayRef<NodeId> members, BucketShares &shares, KeySamples &samples) {
  if (!problem.copyCost || problem.nodes[members.front()].collective != CollectiveKind::AllGather)
    return;
  std::function<Ns(Bytes)> cost = [&](Bytes bytes) { return problem.copyCost(bytes, bytes); };
  auto isSmall = [&](NodeId id) { return problem.members[id].outputBytes <= kSmallUnpackBytes; };
  std::vector<Bytes> sizes;
  for (NodeId id : members)
    if (isSmall(id))
      sizes.push_back(problem.members[id].outputBytes);
  auto [smallest, total] = smallestAndTotal(sizes);
  RateFloor floor(cost, std::max<Bytes>(smallest, 1), std::max<Bytes>(total, 1));
  for (NodeId id : members) {
    if (fusedCast(problem, id) == kNone)
      continue;
    Bytes bytes = problem.members[id].outputBytes;
    Ns share = !isSmall(id) ? std::max<Ns>(cost(bytes), 0) : bytes == 0 ? 0 : floor.from(bytes).of(bytes);
    shares.unpack[id] = share;
    if (!isSmall(id))
      samples.largeUnpacks.push_back({bytes, share});
  }
  samples.smallUnpacks = floor.takeSamples();
  auto isLess = [](const CostSample &a, const CostSample &b) { return a.bytes < b.bytes; };
  llvm::sort(samples.largeUnpacks, isLess);
  auto isEqual = [](const CostSample &a, const CostSample &b) { return a.bytes == b.bytes; };
  samples.largeUnpacks.erase(llvm::unique(samples.largeUnpacks, isEqual), samples.largeUnpacks.end());
}

} // namespace

std::vector<Ns> commsched::leastCharges(const std::function<Ns(Bytes)> &cost, llvm::ArrayRef<Bytes> sizes,
                                        Bytes largest) {
  Bytes smallest = std::max<Bytes>(smallestAndTotal(sizes).first, 1);
  RateFloor floor(cost, smallest, std::max(largest, smallest));
  std::vector<Ns> charges;
  for (Bytes bytes : sizes)
    charges.push_back(bytes == 0 ? 0 : floor.from(bytes).of(bytes));
  return charges;
}

BucketShares commsched::bucketShares(const Problem &problem) {
  BucketShares shares;
  shares.lane.assign(problem.nodes.size(), kNone);
  shares.cast.assign(problem.nodes.size(), kNone);
  shares.unpack.assign(problem.nodes.size(), kNone);
  shares.samples.resize(problem.mergeKeys.size());
  std::vector<std::vector<NodeId>> members(problem.mergeKeys.size());
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].mergeKey != kNone && isMergeable(problem, id))
      members[problem.nodes[id].mergeKey].push_back(id);
  for (auto [index, key] : llvm::enumerate(problem.mergeKeys)) {
    if (members[index].size() < 2 || !key.cost)
      continue;
    shareLane(problem, key, members[index], shares.lane, shares.samples[index]);
    sharePacks(problem, members[index], shares, shares.samples[index]);
    shareUnpacks(problem, members[index], shares, shares.samples[index]);
  }
  return shares;
}
