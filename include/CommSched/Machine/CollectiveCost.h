//===- CollectiveCost.h - Cost of a collective as a function of its bytes ---------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The cost of one kind of collective on one group shape is a curve over bytes. The curve is measured if the machine
// profile has a table. It is NCCL's own tuning model if the profile has NCCL's parameters and NCCL has a model of the
// kind. Otherwise it is alpha-beta. Each curve is made once per (kind, group shape, element type) and evaluated in
// integers: equal input gives equal nanoseconds on every rank, and more bytes never cost less. MachineModel.md has
// the formulas.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_COLLECTIVECOST_H
#define COMMSCHED_MACHINE_COLLECTIVECOST_H

#include "CommSched/Machine/MachineModel.h"
#include <array>

namespace commsched {

/// Largest answer of any model, ns (116 days). It keeps sums of answers from overflowing.
inline constexpr Ns kMaxNs = 10'000'000'000'000'000;

/// The placement of the ranks of a group.
struct GroupShape {
  int64_t ranks = 1;
  /// Number of nodes that the group occupies.
  int64_t nodes = 1;
  /// Largest number of its ranks on one node.
  int64_t ranksPerNode = 1;
  /// Number of units that the group occupies of each level outside of nodes. Indexed as MachineModel::levels.
  std::array<int64_t, kMostOuterLevels> units = {1, 1};

  bool operator==(const GroupShape &other) const {
    return ranks == other.ranks && nodes == other.nodes && ranksPerNode == other.ranksPerNode && units == other.units;
  }
  bool operator<(const GroupShape &other) const {
    return std::tie(ranks, nodes, ranksPerNode, units) <
           std::tie(other.ranks, other.nodes, other.ranksPerNode, other.units);
  }
  /// Whether the group leaves a unit of a level outside of nodes.
  bool leavesUnits() const {
    for (int64_t spanned : units)
      if (spanned > 1)
        return true;
    return false;
  }
};

/// The shape of a group of ranks on nodes of `ranksPerNode` ranks. Ranks are node-major: rank r is on node r /
/// ranksPerNode. O(ranks x log ranks).
GroupShape shapeOfRanks(llvm::ArrayRef<int64_t> ranks, int64_t ranksPerNode);
/// The same with the levels of a machine outside of nodes. O(levels x ranks x log ranks).
GroupShape shapeOfRanks(llvm::ArrayRef<int64_t> ranks, const MachineModel &machine);

/// The source of a curve. `Scaled`: nothing was measured for this group shape and element type, but another one of the
/// same kind and on the same links was.
enum class CostSource : uint8_t { Measured, Scaled, Nccl, AlphaBeta };

/// How a cost is known, as reports count it.
enum class CostOrigin : uint8_t {
  /// A time in `comm.cost`, or the embedder's estimate.
  Given,
  /// A measurement, or interpolation between two.
  Measured,
  /// A measurement at another size, on another group shape or of another element type, times a model's ratio.
  Scaled,
  /// A model: NCCL's, alpha-beta, or a roofline over known work.
  Analytic,
  /// A default: sizes, trip counts or the operation itself are unknown.
  Guessed,
};
inline constexpr unsigned kNumCostOrigins = static_cast<unsigned>(CostOrigin::Guessed) + 1;

/// The name of an origin in reports ("measured").
llvm::StringRef stringify(CostOrigin origin);

/// A cost and what is known of its error, ns: lo <= ns <= hi; equal if there is no error bar.
struct CostEstimate {
  Ns ns = 0, lo = 0, hi = 0;
  CostOrigin origin = CostOrigin::Guessed;
  /// Samples of the measurement; of an interpolation, those of the neighbour with fewer. 0 if unknown.
  int64_t samples = 0;
  /// The flags of the measured table (CollectiveTable::flags).
  std::vector<std::string> flags = {};
};

/// One way to perform a collective: a fixed latency and a bandwidth.
///
/// Several collectives in one group (the coalesced form, `ncclGroupStart` to `ncclGroupEnd`) are one launch and share
/// the bandwidth. They use the channels one after the other; those that share a channel run in turn, each with its own
/// latency (latencies()).
struct CostLine {
  /// NCCL's names of algorithm and protocol ("Ring/LL128"), or "alpha-beta".
  llvm::StringRef name;
  /// Fixed part, ns: at small sizes, and at `plateauBytes` and more.
  Ns latency = 0, plateauLatency = 0;
  Bytes plateauBytes = 0;
  /// Bytes per second, without correction.
  int64_t bytesPerSecond = 1;
  /// NCCL's correction of tree bandwidths by size, in tenths. Indexed by k: the entry for [64 x 2^k, 64 x 2^(k+1))
  /// bytes; the first entry starts at 0 bytes. Beyond the table the value is 10. Null: no correction.
  const std::array<uint8_t, 23> *correction = nullptr;
  /// Number of collectives of a group that run side by side, and number of those in turn that share one latency.
  int64_t channels = 1, batch = 1;

  /// Number of latencies of a group of `parts` collectives, at most `parts`. NCCL counts ceil(parts / channels), in
  /// batches for all algorithms except rings (ncclPrepareTasks, ncclTopoGetAlgoTime). The model adds one for the
  /// channels on which one collective ends and the next begins.
  int64_t latencies(int64_t parts) const;
  /// Cost of a group of `parts` collectives of `bytes` in total, ns. Not monotone if the correction grows.
  Ns operator()(Bytes bytes, int64_t parts = 1) const;
};

/// Cost over bytes: monotone, deterministic, non-negative, at most kMaxNs.
class CollectiveCurve {
public:
  /// The curve of a kind of collective on a group. `group` is the group's symbol name, which selects a measured table
  /// first; it may be empty. O(tables) plus a small constant.
  static CollectiveCurve get(const MachineModel &machine, CollectiveKind kind, GroupShape shape, ElementType element,
                             llvm::StringRef group = "", BarEnd end = BarEnd::Value);

  /// Cost of `bytes` in total, ns: gathered bytes of an all-gather or gather, received bytes of a recv, and for all
  /// other kinds the bytes that the rank holds before the collective. 0 for one rank. For a group of `parts`
  /// collectives in one launch, `bytes` is the sum, and the cost is at least that of one collective of as many bytes.
  /// O(lines), or O(log points) if measured.
  Ns operator()(Bytes bytes, int64_t parts = 1) const;

  /// The same cost with its error bar, whatever end the curve answers with.
  CostEstimate estimate(Bytes bytes, int64_t parts = 1) const;

  CostSource source() const { return origin; }
  /// The line that determines the cost at `bytes` ("Ring/Simple", "measured", "alpha-beta").
  llvm::StringRef nameAt(Bytes bytes) const;
  /// The candidates of an analytic curve.
  llvm::ArrayRef<CostLine> candidates() const { return lines; }

private:
  void setPoints(llvm::ArrayRef<MeasuredPoint> measured);
  void setLines(std::vector<CostLine> candidates);
  void setModel(const MachineModel &machine, CollectiveKind kind, GroupShape shape, ElementType element);
  bool setScaled(const MachineModel &machine, CollectiveKind kind, GroupShape shape, ElementType element,
                 llvm::StringRef group);
  Ns measuredCost(Bytes bytes, BarEnd end) const;
  Ns extrapolate(Bytes bytes, BarEnd end) const;
  Ns costAt(Bytes bytes, int64_t parts, BarEnd end) const;
  Ns analyticCost(Bytes bytes, int64_t parts) const;
  Ns floorFor(unsigned interval, int64_t parts) const;

  CostSource origin = CostSource::AlphaBeta;
  BarEnd barEnd = BarEnd::Value;
  bool singleRank = false;
  /// Measured and scaled curves: points, with times made monotone and error bars everywhere.
  std::vector<MeasuredPoint> points;
  std::vector<std::string> flags;
  /// Measured and scaled curves: how groups share the latency, which is the time of no bytes.
  CostLine measuredLatency;
  /// Analytic and scaled curves: candidates, and for each interval of the correction the largest minimum over all
  /// smaller intervals.
  std::vector<CostLine> lines;
  std::array<Ns, 24> floorOf{};
};

/// Isotonic regression: the closest monotone times (least squares, pool adjacent violators, integer means), of the
/// values and of both ends of the error bars. The bars still contain the values. O(points).
void makeMonotone(std::vector<MeasuredPoint> &points);

} // namespace commsched

#endif // COMMSCHED_MACHINE_COLLECTIVECOST_H
