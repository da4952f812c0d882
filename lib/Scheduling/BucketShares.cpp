//===- BucketShares.cpp - What a collective costs its lane in any bucket ---------------------===//

#include "BucketShares.h"
#include <algorithm>

using namespace commsched;

namespace {

/// `cost` per `bytes`, exact.
struct Rate {
  Ns cost = 0;
  Bytes bytes = 1;
  bool operator<(const Rate &other) const {
    return static_cast<__int128>(cost) * other.bytes < static_cast<__int128>(other.cost) * bytes;
  }
  /// The cost of `part` bytes at this rate, rounded down.
  Ns of(Bytes part) const { return static_cast<Ns>(static_cast<__int128>(cost) * part / bytes); }
  /// Whether this is less than `other` by more than the tolerance.
  bool farBelow(const Rate &other) const {
    return static_cast<__int128>(cost) * other.bytes <
           static_cast<__int128>(other.cost) * bytes / kShareTolerance * (kShareTolerance - 1);
  }
};

/// Lower bounds on the smallest rate over [x, largest], for all x from `smallest` on.
class RateFloor {
public:
  RateFloor(const std::function<Ns(Bytes)> &cost, Bytes smallest, Bytes largest) : cost(cost) {
    Ns atLargest = sample(largest);
    lowest = {atLargest, largest};
    cells.push_back({largest, lowest});
    if (smallest < largest)
      split(smallest, sample(smallest), largest, atLargest);
  }

  /// The floor for sizes from `bytes` on: of the cell that holds it and of all above.
  Rate from(Bytes bytes) const {
    // Cells run from the largest sizes to the smallest.
    auto cell = std::partition_point(cells.begin(), cells.end(), [&](const Cell &c) { return c.first > bytes; });
    return cell == cells.end() ? cells.back().floor : cell->floor;
  }

private:
  /// Sizes from `first` to the next cell; `floor` is for them and all above.
  struct Cell {
    Bytes first;
    Rate floor;
  };

  Ns sample(Bytes bytes) {
    ++samples;
    return std::max<Ns>(cost(bytes), 0);
  }

  /// Covers [x, y); everything from y on is covered.
  void split(Bytes x, Ns costX, Bytes y, Ns costY) {
    lowest = std::min(lowest, Rate{costY, y});
    Rate floor{costX, y - 1 > x ? y : x};
    if (y - x <= 1 || samples >= kMaxShareSamples || !floor.farBelow(lowest)) {
      cells.push_back({x, std::min(cells.back().floor, floor)});
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
  /// The smallest rate that was met so far.
  Rate lowest;
  int32_t samples = 0;
};

} // namespace

std::vector<Ns> commsched::bucketShares(const Problem &problem) {
  std::vector<Ns> shares(problem.nodes.size(), kNone);
  std::vector<std::vector<NodeId>> starts(problem.mergeKeys.size());
  for (NodeId id = 0; id < problem.size(); ++id)
    if (problem.nodes[id].mergeKey != kNone)
      starts[problem.nodes[id].mergeKey].push_back(id);
  for (size_t index = 0; index < starts.size(); ++index) {
    const MergeKey &key = problem.mergeKeys[index];
    std::vector<NodeId> &members = starts[index];
    if (members.size() < 2 || !key.cost)
      continue;
    std::stable_sort(members.begin(), members.end(),
                     [&](NodeId a, NodeId b) { return problem.nodes[a].bytes < problem.nodes[b].bytes; });
    Bytes total = 0, smallest = 0;
    for (NodeId id : members) {
      total += problem.nodes[id].bytes;
      if (smallest == 0)
        smallest = problem.nodes[id].bytes;
    }
    Bytes largest = key.cap < 0 ? total : std::min(total, key.cap);
    if (smallest == 0 || largest < smallest)
      smallest = largest = std::max<Bytes>(largest, 1);
    RateFloor floor(key.cost, smallest, largest);
    for (size_t at = 0; at < members.size(); ++at) {
      const Node &node = problem.nodes[members[at]];
      // A collective that fits into no bucket with the smallest other one stays alone.
      Bytes partner = problem.nodes[members[at == 0 ? 1 : 0]].bytes;
      if (key.cap >= 0 && node.bytes + partner > key.cap)
        continue;
      shares[members[at]] = node.bytes == 0 ? 0 : std::min(node.cost, floor.from(node.bytes).of(node.bytes));
    }
  }
  return shares;
}
