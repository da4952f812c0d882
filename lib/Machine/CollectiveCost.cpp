//===- CollectiveCost.cpp - Cost of a collective as a function of its bytes -------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Curves over bytes: measured points with monotone log-log interpolation, and the lower envelope of the lines of
// analytic models. All computation that depends on bytes uses integers. Logarithms are fixed-point, because the C
// library's differ between hosts in the last bit, and one bit makes two ranks schedule differently.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Machine/CollectiveCost.h"
#include "CommSched/Machine/Rounding.h"
#include "NcclModel.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>

using namespace commsched;
using namespace commsched::detail;

GroupShape commsched::shapeOfRanks(llvm::ArrayRef<int64_t> ranks, int64_t ranksPerNode) {
  std::vector<int64_t> nodes;
  nodes.reserve(ranks.size());
  for (int64_t rank : ranks)
    nodes.push_back(rank / ranksPerNode);
  llvm::sort(nodes);
  GroupShape shape{static_cast<int64_t>(ranks.size()), 0, 0};
  for (size_t first = 0, last = 0; first < nodes.size(); first = last) {
    while (last < nodes.size() && nodes[last] == nodes[first])
      ++last;
    ++shape.nodes;
    shape.ranksPerNode = std::max<int64_t>(shape.ranksPerNode, last - first);
  }
  shape.nodes = std::max<int64_t>(shape.nodes, 1);
  shape.ranksPerNode = std::max<int64_t>(shape.ranksPerNode, 1);
  return shape;
}

//===-----------------------------------------------------------------------------------------===//
// Fixed-point logarithms
//===-----------------------------------------------------------------------------------------===//

namespace {

/// Fraction bits of a fixed-point logarithm.
constexpr unsigned kLogBits = 32;
/// Fraction bits of the numbers in [1, 2) on which the logarithm and its inverse operate.
constexpr unsigned kMantissaBits = 62;

/// log2 of a positive integer, rounded down to kLogBits fraction bits. Monotone, because every step (square, halve,
/// truncate) is monotone.
int64_t log2Fixed(uint64_t value) {
  unsigned exponent = llvm::Log2_64(value);
  uint64_t mantissa =
      exponent <= kMantissaBits ? value << (kMantissaBits - exponent) : value >> (exponent - kMantissaBits);
  int64_t result = exponent;
  for (unsigned bit = 0; bit < kLogBits; ++bit) {
    // One more bit of the logarithm: whether the square is 2 or more.
    UnsignedWide square = static_cast<UnsignedWide>(mantissa) * mantissa >> kMantissaBits;
    bool carry = square >> (kMantissaBits + 1);
    mantissa = static_cast<uint64_t>(carry ? square >> 1 : square);
    result = result * 2 + carry;
  }
  return result;
}

/// 2^(2^-i) for i = 1..32, as fixed-point numbers. They are repeated square roots of 2.
struct RootsOfTwo {
  std::array<uint64_t, kLogBits> roots;
  constexpr RootsOfTwo() : roots() {
    UnsignedWide square = static_cast<UnsignedWide>(2) << kMantissaBits;
    for (unsigned i = 0; i < kLogBits; ++i) {
      // The largest root with root^2 <= square, bit by bit.
      uint64_t root = 0;
      for (int bit = kMantissaBits; bit >= 0; --bit) {
        uint64_t candidate = root | (uint64_t(1) << bit);
        if (static_cast<UnsignedWide>(candidate) * candidate <= square << kMantissaBits)
          root = candidate;
      }
      roots[i] = root;
      square = root;
    }
  }
};
constexpr RootsOfTwo kRootsOfTwo;

/// 2^(log / 2^kLogBits), rounded to the nearest. `log` is non-negative and below 61 x 2^kLogBits.
int64_t exp2Fixed(int64_t log) {
  unsigned exponent = static_cast<unsigned>(log >> kLogBits);
  uint64_t mantissa = uint64_t(1) << kMantissaBits;
  for (unsigned i = 0; i < kLogBits; ++i)
    if (log >> (kLogBits - 1 - i) & 1)
      mantissa = static_cast<uint64_t>(static_cast<UnsignedWide>(mantissa) * kRootsOfTwo.roots[i] >> kMantissaBits);
  unsigned shift = kMantissaBits - exponent;
  return static_cast<int64_t>((mantissa + (uint64_t(1) << (shift - 1))) >> shift);
}

} // namespace

//===-----------------------------------------------------------------------------------------===//
// Measured curves
//===-----------------------------------------------------------------------------------------===//

void commsched::makeMonotone(std::vector<MeasuredPoint> &points) {
  struct Pool {
    Wide sum;
    int64_t count;
    Ns mean() const { return static_cast<Ns>((sum + count / 2) / count); }
  };
  std::vector<Pool> pools;
  for (const MeasuredPoint &point : points) {
    pools.push_back({point.ns, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() >= pools.back().mean()) {
      Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().count += last.count;
    }
  }
  size_t index = 0;
  for (const Pool &pool : pools)
    for (int64_t i = 0; i < pool.count; ++i)
      points[index++].ns = pool.mean();
}

void CollectiveCurve::setPoints(llvm::ArrayRef<MeasuredPoint> measured) {
  origin = CostSource::Measured;
  points = measured.vec();
  for (MeasuredPoint &point : points)
    point.ns = std::clamp<Ns>(point.ns, 1, kMaxNs);
  makeMonotone(points);
}

Ns CollectiveCurve::measuredCost(Bytes bytes) const {
  const MeasuredPoint &first = points.front(), &last = points.back();
  if (bytes <= first.bytes)
    return first.ns;
  if (bytes >= last.bytes) {
    // Beyond the range, use the bandwidth between the last two different times. If all times are equal, extrapolate
    // proportionally.
    const MeasuredPoint *before = nullptr;
    for (const MeasuredPoint &point : points)
      if (point.ns < last.ns)
        before = &point;
    if (before)
      return saturate(last.ns +
                      static_cast<Wide>(bytes - last.bytes) * (last.ns - before->ns) / (last.bytes - before->bytes));
    return saturate(static_cast<Wide>(last.ns) * bytes / std::max<Bytes>(1, last.bytes));
  }
  const auto *right = std::upper_bound(points.data(), points.data() + points.size(), bytes,
                                       [](Bytes value, const MeasuredPoint &point) { return value < point.bytes; });
  const MeasuredPoint &a = right[-1], &b = right[0];
  if (bytes == a.bytes || a.ns == b.ns)
    return a.ns;
  // Zero bytes count as one byte, which has a logarithm.
  int64_t x0 = log2Fixed(std::max<Bytes>(1, a.bytes)), x1 = log2Fixed(b.bytes), x = log2Fixed(bytes);
  int64_t y0 = log2Fixed(a.ns), y1 = log2Fixed(b.ns);
  if (x1 <= x0)
    return a.ns;
  int64_t y = y0 + static_cast<int64_t>(static_cast<Wide>(y1 - y0) * (x - x0) / (x1 - x0));
  return std::clamp(exp2Fixed(y), a.ns, b.ns);
}

//===-----------------------------------------------------------------------------------------===//
// Analytic curves
//===-----------------------------------------------------------------------------------------===//

/// Lower end of interval k of a correction table: 64 x 2^k bytes.
static Bytes intervalBegin(unsigned k) { return Bytes(64) << k; }

/// The interval that contains `bytes`. 23 stands for all sizes beyond the tables.
static unsigned intervalOf(Bytes bytes) {
  return bytes < 64 ? 0 : std::min<unsigned>(llvm::Log2_64(static_cast<uint64_t>(bytes) >> 6), 23);
}

int64_t CostLine::latencies(int64_t parts) const {
  if (parts <= 1)
    return 1;
  int64_t inTurn = std::min<int64_t>(parts, llvm::divideCeil(parts, channels) + 1);
  return llvm::divideCeil(inTurn, batch);
}

Ns CostLine::operator()(Bytes bytes, int64_t parts) const {
  unsigned interval = intervalOf(bytes);
  int64_t tenths = correction && interval < correction->size() ? (*correction)[interval] : 10;
  Ns fixed = plateauBytes && bytes >= plateauBytes ? plateauLatency : latency;
  fixed = saturate(static_cast<Wide>(fixed) * latencies(parts));
  return addNs(fixed, timeAtRate(static_cast<Wide>(bytes) * 10, static_cast<Wide>(bytesPerSecond) * tenths));
}

/// The cheapest line and its cost. Of equal lines the first one counts; the order of the candidates is fixed.
static std::pair<const CostLine *, Ns> cheapest(llvm::ArrayRef<CostLine> lines, Bytes bytes, int64_t parts = 1) {
  std::pair<const CostLine *, Ns> best(&lines.front(), lines.front()(bytes, parts));
  for (const CostLine &line : lines.drop_front()) {
    // A line that starts above the best cost so far needs no division.
    if (line.latency >= best.second)
      continue;
    if (Ns cost = line(bytes, parts); cost < best.second)
      best = {&line, cost};
  }
  return best;
}

void CollectiveCurve::setLines(std::vector<CostLine> candidates) {
  lines = std::move(candidates);
  // Within an interval every line grows. Where a correction jumps up, the minimum may fall, but costs must not. An
  // interval therefore starts at the largest minimum of all smaller ones.
  floorOf[0] = 0;
  for (unsigned k = 1; k < floorOf.size(); ++k)
    floorOf[k] = std::max(floorOf[k - 1], cheapest(lines, intervalBegin(k) - 1).second);
}

/// The largest minimum over all intervals before `interval`, for a group of `parts`.
Ns CollectiveCurve::floorFor(unsigned interval, int64_t parts) const {
  bool monotone = llvm::none_of(lines, [](const CostLine &line) { return line.correction; });
  if (parts <= 1 || monotone)
    return floorOf[interval];
  Ns floor = 0;
  for (unsigned k = 1; k <= interval; ++k)
    floor = std::max(floor, cheapest(lines, intervalBegin(k) - 1, parts).second);
  return floor;
}

/// Alpha-beta, for kinds without a model in NCCL and for machines without NCCL.
static CostLine alphaBeta(const MachineModel &machine, CollectiveKind kind, GroupShape shape) {
  bool across = shape.nodes > 1;
  const LinkClass &slowest = across ? machine.inter : machine.intra;
  // Trees of hops: first inside the nodes, then between them.
  Ns tree = llvm::Log2_64_Ceil(shape.ranksPerNode) * machine.intra.latency +
            llvm::Log2_64_Ceil(shape.nodes) * machine.inter.latency;
  CostLine line;
  line.name = "alpha-beta";
  // Seconds per byte, as a fraction: share / bandwidth.
  int64_t numerator = 1, denominator = 1;
  int64_t bandwidth = slowest.bytesPerSecond;
  switch (kind) {
  case CollectiveKind::AllReduce:
    line.latency = 2 * tree;
    numerator = 2 * (shape.ranks - 1);
    denominator = shape.ranks;
    break;
  case CollectiveKind::AllGather:
  case CollectiveKind::ReduceScatter:
  case CollectiveKind::Gather:
  case CollectiveKind::Scatter:
    line.latency = tree;
    numerator = shape.ranks - 1;
    denominator = shape.ranks;
    break;
  case CollectiveKind::AllToAll: {
    // Direct messages. Those inside the node and those that leave it use different links at the same time.
    int64_t inside = shape.ranksPerNode - 1, outside = std::max<int64_t>(0, shape.ranks - shape.ranksPerNode);
    line.latency = slowest.latency + inside * machine.intra.message + outside * machine.inter.message;
    denominator = shape.ranks;
    numerator = across ? outside : inside;
    if (across && static_cast<Wide>(inside) * machine.inter.bytesPerSecond >
                      static_cast<Wide>(outside) * machine.intra.bytesPerSecond) {
      numerator = inside;
      bandwidth = machine.intra.bytesPerSecond;
    }
    break;
  }
  case CollectiveKind::Broadcast:
  case CollectiveKind::Reduce:
    line.latency = tree;
    break;
  case CollectiveKind::Permute:
  case CollectiveKind::Send:
  case CollectiveKind::Recv:
    line.latency = slowest.latency;
    break;
  case CollectiveKind::Barrier:
    line.latency = 2 * tree;
    break;
  }
  line.latency = addNs(line.latency, machine.collectiveBase);
  line.plateauLatency = line.latency;
  line.bytesPerSecond = static_cast<int64_t>(std::clamp<Wide>(
      static_cast<Wide>(bandwidth) * denominator / std::max<int64_t>(1, numerator), 1, INT64_MAX / 16));
  return line;
}

//===-----------------------------------------------------------------------------------------===//
// Choice of the curve
//===-----------------------------------------------------------------------------------------===//

/// The best matching measured table. A group's name has priority over its shape, and an element type over "any".
static const CollectiveTable *findTable(const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                                        ElementType element, llvm::StringRef group) {
  const CollectiveTable *best = nullptr;
  int bestScore = -1;
  for (const CollectiveTable &table : machine.collectives) {
    bool named = !table.group.empty();
    if (table.kind != kind || (table.element && *table.element != element) ||
        (named ? table.group != group : table.ranks != shape.ranks || table.nodes != shape.nodes))
      continue;
    int score = (named ? 2 : 0) + (table.element ? 1 : 0);
    if (score > bestScore) {
      best = &table;
      bestScore = score;
    }
  }
  return best;
}

CollectiveCurve CollectiveCurve::get(const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                                     ElementType element, llvm::StringRef group) {
  CollectiveCurve curve;
  shape.ranks = std::max<int64_t>(1, shape.ranks);
  shape.nodes = std::clamp<int64_t>(shape.nodes, 1, shape.ranks);
  shape.ranksPerNode = std::clamp<int64_t>(shape.ranksPerNode, 1, shape.ranks);
  if (shape.ranks == 1) {
    curve.singleRank = true;
    return curve;
  }
  int64_t channels = machine.nccl ? ncclChannels(*machine.nccl, shape) : 1;
  if (const CollectiveTable *table = findTable(machine, kind, shape, element, group)) {
    curve.setPoints(table->points);
    curve.measuredLatency.channels = channels;
    return curve;
  }
  // NCCL has no barrier. The model uses an all-reduce of one element.
  CollectiveKind modelled = kind == CollectiveKind::Barrier ? CollectiveKind::AllReduce : kind;
  if (machine.nccl) {
    std::vector<CostLine> candidates = ncclCandidates(*machine.nccl, modelled, shape, element);
    if (!candidates.empty()) {
      curve.origin = CostSource::Nccl;
      curve.setLines(std::move(candidates));
      return curve;
    }
  }
  CostLine line = alphaBeta(machine, kind, shape);
  line.channels = channels;
  curve.setLines({line});
  return curve;
}

Ns CollectiveCurve::operator()(Bytes bytes, int64_t parts) const {
  if (singleRank)
    return 0;
  bytes = std::max<Bytes>(0, bytes);
  if (!points.empty()) {
    int64_t further = measuredLatency.latencies(parts) - 1;
    return addNs(measuredCost(bytes), saturate(static_cast<Wide>(points.front().ns) * further));
  }
  return std::max(cheapest(lines, bytes, parts).second, floorFor(intervalOf(bytes), parts));
}

llvm::StringRef CollectiveCurve::nameAt(Bytes bytes) const {
  if (singleRank)
    return "one rank";
  if (!points.empty())
    return "measured";
  return cheapest(lines, std::max<Bytes>(0, bytes)).first->name;
}
