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
#include "OuterLevels.h"
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

GroupShape commsched::shapeOfRanks(llvm::ArrayRef<int64_t> ranks, const MachineModel &machine) {
  GroupShape shape = shapeOfRanks(ranks, machine.ranksPerNode);
  for (auto [index, level] : llvm::enumerate(machine.levels))
    shape.units[index] = shapeOfRanks(ranks, level.ranks).nodes;
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

/// Makes one of the times of all points monotone.
static void makeMonotone(std::vector<MeasuredPoint> &points, Ns MeasuredPoint::*time) {
  struct Pool {
    Wide sum;
    int64_t count;
    Ns mean() const { return static_cast<Ns>((sum + count / 2) / count); }
  };
  std::vector<Pool> pools;
  for (const MeasuredPoint &point : points) {
    pools.push_back({point.*time, 1});
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
      points[index++].*time = pool.mean();
}

void commsched::makeMonotone(std::vector<MeasuredPoint> &points) {
  for (Ns MeasuredPoint::*time : {&MeasuredPoint::ns, &MeasuredPoint::lo, &MeasuredPoint::hi})
    ::makeMonotone(points, time);
  for (MeasuredPoint &point : points) {
    point.lo = std::min(point.lo, point.ns);
    point.hi = std::max(point.hi, point.ns);
  }
}

void CollectiveCurve::setPoints(llvm::ArrayRef<MeasuredPoint> measured) {
  origin = CostSource::Measured;
  points = measured.vec();
  for (MeasuredPoint &point : points) {
    point.ns = std::clamp<Ns>(point.ns, 1, kMaxNs);
    // Without an error bar both ends are the value.
    point.lo = point.hasErrorBar() ? std::clamp<Ns>(point.lo, 1, point.ns) : point.ns;
    point.hi = std::clamp<Ns>(point.hi, point.ns, kMaxNs);
  }
  makeMonotone(points);
}

static Ns timeAt(BarEnd end, const MeasuredPoint &point) { return atEnd(end, point.ns, point.lo, point.hi); }

/// Beyond the last point, a measured curve grows at the bandwidth between the last two different times. If all times
/// are equal, it grows in proportion. The ends of the error bars follow the flattest and the steepest line through the
/// two bars. A scaled curve follows its model outside of its points.
Ns CollectiveCurve::extrapolate(Bytes bytes, BarEnd end) const {
  const MeasuredPoint &first = points.front(), &last = points.back();
  if (origin == CostSource::Scaled) {
    const MeasuredPoint &nearest = bytes < first.bytes ? first : last;
    Ns modelled = std::max<Ns>(1, analyticCost(nearest.bytes, 1));
    Ns scaled = saturate(static_cast<Wide>(analyticCost(bytes, 1)) * timeAt(end, nearest) / modelled);
    return std::max<Ns>(1, scaled);
  }
  if (bytes < first.bytes)
    return timeAt(end, first);
  const MeasuredPoint *before = nullptr;
  for (const MeasuredPoint &point : points)
    if (point.ns < last.ns)
      before = &point;
  if (!before)
    return saturate(static_cast<Wide>(timeAt(end, last)) * bytes / std::max<Bytes>(1, last.bytes));
  Ns rise = end == BarEnd::Low    ? std::max<Ns>(0, last.lo - before->hi)
            : end == BarEnd::High ? last.hi - before->lo
                                  : last.ns - before->ns;
  return saturate(timeAt(end, last) + static_cast<Wide>(bytes - last.bytes) * rise / (last.bytes - before->bytes));
}

Ns CollectiveCurve::measuredCost(Bytes bytes, BarEnd end) const {
  if (bytes <= points.front().bytes || bytes >= points.back().bytes) {
    if (bytes == points.front().bytes)
      return timeAt(end, points.front());
    return extrapolate(bytes, end);
  }
  const auto *right = std::upper_bound(points.data(), points.data() + points.size(), bytes,
                                       [](Bytes value, const MeasuredPoint &point) { return value < point.bytes; });
  const MeasuredPoint &a = right[-1], &b = right[0];
  Ns timeA = timeAt(end, a), timeB = timeAt(end, b);
  if (bytes == a.bytes || timeA == timeB)
    return timeA;
  // Zero bytes count as one byte, which has a logarithm.
  int64_t x0 = log2Fixed(std::max<Bytes>(1, a.bytes)), x1 = log2Fixed(b.bytes), x = log2Fixed(bytes);
  int64_t y0 = log2Fixed(timeA), y1 = log2Fixed(timeB);
  if (x1 <= x0)
    return timeA;
  int64_t y = y0 + static_cast<int64_t>(static_cast<Wide>(y1 - y0) * (x - x0) / (x1 - x0));
  return std::clamp(exp2Fixed(y), timeA, timeB);
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
    // Tables by shape are of groups within the units of outer levels.
    bool isOfShape = table.ranks == shape.ranks && table.nodes == shape.nodes && !shape.leavesUnits();
    if (table.kind != kind || (table.element && *table.element != element) ||
        (named ? table.group != group : !isOfShape))
      continue;
    int score = (named ? 2 : 0) + (table.element ? 1 : 0);
    if (score > bestScore) {
      best = &table;
      bestScore = score;
    }
  }
  return best;
}

/// How far the ratio of two positive numbers is from 1, in fixed-point logarithms.
static int64_t ratioDistance(int64_t a, int64_t b) { return std::abs(log2Fixed(a) - log2Fixed(b)); }

/// The measured table from which `shape` is scaled: of the same kind, and of the same group or of one on the same class
/// of links (within a node, across nodes). The nearest number of ranks counts first, then that of nodes, then the
/// element type; of equal tables the first. Null if there is none. `measured` becomes the shape of its group.
static const CollectiveTable *findNearestTable(const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                                               ElementType element, llvm::StringRef group, GroupShape &measured) {
  const CollectiveTable *best = nullptr;
  std::tuple<int64_t, int64_t, int> nearest;
  for (const CollectiveTable &table : machine.collectives) {
    bool named = !table.group.empty();
    if (table.kind != kind || (named ? table.group != group : (table.nodes > 1) != (shape.nodes > 1)))
      continue;
    GroupShape own =
        named ? shape
              : GroupShape{table.ranks, table.nodes, static_cast<int64_t>(llvm::divideCeil(table.ranks, table.nodes))};
    if (!named && own.ranks == shape.ranks && own.nodes == shape.nodes)
      own.ranksPerNode = shape.ranksPerNode;
    std::tuple distance(ratioDistance(own.ranks, shape.ranks), ratioDistance(own.nodes, shape.nodes),
                        !table.element              ? 1
                        : *table.element == element ? 0
                                                    : 2);
    if (best && distance >= nearest)
      continue;
    best = &table;
    nearest = distance;
    measured = own;
  }
  return best;
}

/// Puts points of another group or element type in the place of this analytic curve, each times the ratio of the
/// models. Returns false if there are none.
bool CollectiveCurve::setScaled(const MachineModel &machine, CollectiveKind kind, GroupShape shape, ElementType element,
                                llvm::StringRef group) {
  GroupShape measuredShape;
  const CollectiveTable *table = findNearestTable(machine, kind, shape, element, group, measuredShape);
  if (!table)
    return false;
  CollectiveCurve model;
  model.setModel(machine, kind, measuredShape, table->element.value_or(element));
  std::vector<MeasuredPoint> scaled;
  for (MeasuredPoint point : table->points) {
    Ns theirs = model.analyticCost(point.bytes, 1), ours = analyticCost(point.bytes, 1);
    if (theirs <= 0 || ours <= 0)
      continue;
    auto scale = [&](Ns time) { return saturate((static_cast<Wide>(time) * ours + theirs / 2) / theirs); };
    point.ns = std::max<Ns>(1, scale(point.ns));
    if (point.hasErrorBar()) {
      point.lo = scale(point.lo);
      point.hi = std::max<Ns>(1, scale(point.hi));
    }
    scaled.push_back(point);
  }
  if (scaled.empty())
    return false;
  setPoints(scaled);
  origin = CostSource::Scaled;
  flags = table->flags;
  return true;
}

/// Makes this the curve of a model: NCCL's if it has one, or else alpha-beta.
void CollectiveCurve::setModel(const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                               ElementType element) {
  // NCCL has no barrier. The model uses an all-reduce of one element.
  CollectiveKind modelled = kind == CollectiveKind::Barrier ? CollectiveKind::AllReduce : kind;
  if (machine.nccl) {
    std::vector<CostLine> candidates = ncclCandidates(*machine.nccl, modelled, shape, element);
    if (!candidates.empty()) {
      origin = CostSource::Nccl;
      leaveUnits(machine, modelled, shape, candidates);
      return setLines(std::move(candidates));
    }
  }
  std::vector<CostLine> line = {alphaBeta(machine, kind, shape)};
  line.front().channels = machine.nccl ? ncclChannels(*machine.nccl, shape) : 1;
  leaveUnits(machine, kind, shape, line);
  setLines(std::move(line));
}

CollectiveCurve CollectiveCurve::get(const MachineModel &machine, CollectiveKind kind, GroupShape shape,
                                     ElementType element, llvm::StringRef group, BarEnd end) {
  CollectiveCurve curve;
  curve.barEnd = end;
  shape.ranks = std::max<int64_t>(1, shape.ranks);
  shape.nodes = std::clamp<int64_t>(shape.nodes, 1, shape.ranks);
  shape.ranksPerNode = std::clamp<int64_t>(shape.ranksPerNode, 1, shape.ranks);
  if (shape.ranks == 1) {
    curve.singleRank = true;
    return curve;
  }
  curve.measuredLatency.channels = machine.nccl ? ncclChannels(*machine.nccl, shape) : 1;
  if (const CollectiveTable *table = findTable(machine, kind, shape, element, group)) {
    curve.setPoints(table->points);
    curve.flags = table->flags;
    return curve;
  }
  curve.setModel(machine, kind, shape, element);
  curve.setScaled(machine, kind, shape, element, group);
  return curve;
}

Ns CollectiveCurve::analyticCost(Bytes bytes, int64_t parts) const {
  return std::max(cheapest(lines, bytes, parts).second, floorFor(intervalOf(bytes), parts));
}

Ns CollectiveCurve::costAt(Bytes bytes, int64_t parts, BarEnd end) const {
  if (singleRank)
    return 0;
  bytes = std::max<Bytes>(0, bytes);
  if (points.empty())
    return analyticCost(bytes, parts);
  int64_t further = measuredLatency.latencies(parts) - 1;
  Ns cost = measuredCost(bytes, end);
  return further == 0 ? cost : addNs(cost, saturate(static_cast<Wide>(measuredCost(0, end)) * further));
}

Ns CollectiveCurve::operator()(Bytes bytes, int64_t parts) const { return costAt(bytes, parts, barEnd); }

CostEstimate CollectiveCurve::estimate(Bytes bytes, int64_t parts) const {
  CostEstimate result;
  result.ns = costAt(bytes, parts, BarEnd::Value);
  result.lo = std::min(result.ns, costAt(bytes, parts, BarEnd::Low));
  result.hi = std::max(result.ns, costAt(bytes, parts, BarEnd::High));
  result.origin = CostOrigin::Analytic;
  if (points.empty())
    return result;
  bool inside = bytes >= points.front().bytes && bytes <= points.back().bytes;
  result.origin = origin == CostSource::Measured && inside ? CostOrigin::Measured : CostOrigin::Scaled;
  result.flags = flags;
  // The points on both sides; at a point, that point.
  const auto *right = std::lower_bound(points.data(), points.data() + points.size(), bytes,
                                       [](const MeasuredPoint &point, Bytes value) { return point.bytes < value; });
  const MeasuredPoint &above = right == points.data() + points.size() ? points.back() : *right;
  const MeasuredPoint &below = right == points.data() || above.bytes == bytes ? above : right[-1];
  result.samples = std::min(above.n, below.n);
  return result;
}

llvm::StringRef commsched::stringify(CostOrigin origin) {
  static constexpr llvm::StringLiteral kNames[kNumCostOrigins] = {"given", "measured", "scaled", "analytic", "guessed"};
  return kNames[static_cast<unsigned>(origin)];
}

llvm::StringRef CollectiveCurve::nameAt(Bytes bytes) const {
  if (singleRank)
    return "one rank";
  if (!points.empty())
    return origin == CostSource::Scaled ? "scaled" : "measured";
  return cheapest(lines, std::max<Bytes>(0, bytes)).first->name;
}
