//===- CollectiveCost.h - What a collective costs as a function of its bytes ------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// For one kind of collective on one group shape, the cost is a curve over bytes: measured where the machine profile has
// a table, NCCL's own tuning model where the profile has NCCL's parameters and NCCL a model of the kind, alpha-beta
// otherwise. Curves are made once per (kind, group shape, element type) and evaluated in integers: equal input gives
// equal nanoseconds on every rank, and more bytes never cost less. docs/MachineModel.md has the formulas.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_MACHINE_COLLECTIVECOST_H
#define COMMSCHED_MACHINE_COLLECTIVECOST_H

#include "CommSched/Machine/MachineModel.h"
#include <array>

namespace commsched {

/// No model answers more than this, ns (116 days), so that sums of answers do not overflow.
inline constexpr Ns kMaxNs = 10'000'000'000'000'000;

/// Where the ranks of a group are.
struct GroupShape {
  int64_t ranks = 1;
  /// Nodes that the group touches.
  int64_t nodes = 1;
  /// The most ranks of the group on one node.
  int64_t ranksPerNode = 1;

  bool operator==(const GroupShape &other) const {
    return ranks == other.ranks && nodes == other.nodes && ranksPerNode == other.ranksPerNode;
  }
  bool operator<(const GroupShape &other) const {
    return std::tie(ranks, nodes, ranksPerNode) < std::tie(other.ranks, other.nodes, other.ranksPerNode);
  }
};

/// The shape of a group of ranks on nodes of `ranksPerNode` ranks (node-major: rank r sits on node r / ranksPerNode).
/// O(ranks x log ranks).
GroupShape shapeOfRanks(llvm::ArrayRef<int64_t> ranks, int64_t ranksPerNode);

/// Where a cost comes from.
enum class CostSource : uint8_t { Measured, Nccl, AlphaBeta };

/// One way to do a collective: a fixed latency and a bandwidth.
///
/// Several collectives in one group (the coalesced form, `ncclGroupStart` to `ncclGroupEnd`) are one launch, and share
/// the bandwidth; but they lie over the channels one behind the other, and what shares a channel runs in turn, each
/// with its own latency (latencies()).
struct CostLine {
  /// NCCL's names of algorithm and protocol ("Ring/LL128"), or "alpha-beta".
  llvm::StringRef name;
  /// Fixed part, ns, and what it becomes at `plateauBytes` and more.
  Ns latency = 0, plateauLatency = 0;
  Bytes plateauBytes = 0;
  /// Bytes per second at no correction.
  int64_t bytesPerSecond = 1;
  /// NCCL's correction of tree bandwidths by size, in tenths: entry k holds for [64 x 2^k, 64 x 2^(k+1)) bytes (the
  /// first from 0 on); 10 beyond the table. Null: none.
  const std::array<uint8_t, 23> *correction = nullptr;
  /// Collectives of a group that run side by side; and how many that run in turn share one latency.
  int64_t channels = 1, batch = 1;

  /// How many latencies a group of `parts` collectives takes. NCCL counts ceil(parts / channels), in batches for all
  /// but rings (ncclPrepareTasks, ncclTopoGetAlgoTime); one is added for the channels on which one collective ends and
  /// the next begins. Never more than `parts`.
  int64_t latencies(int64_t parts) const;
  /// Cost of a group of `parts` collectives of `bytes` together, ns. Not monotone where the correction grows.
  Ns operator()(Bytes bytes, int64_t parts = 1) const;
};

/// Cost over bytes; monotone, deterministic, never negative, at most kMaxNs.
class CollectiveCurve {
public:
  /// The curve of a kind of collective on a group. `group` is the group's symbol name, by which a measured table can be
  /// found first; may be empty. O(tables) plus a small constant.
  static CollectiveCurve get(const MachineModel &machine, CollectiveKind kind, GroupShape shape, ElementType element,
                             llvm::StringRef group = "");

  /// Cost of `bytes` in total, ns: gathered bytes of an all-gather or gather, received bytes of a recv, and what the
  /// rank holds before the collective for every other kind. One rank: 0. Of a group of `parts` collectives that are
  /// launched together, `bytes` is the sum; never less than one collective of as many bytes. O(lines), or O(log points)
  /// where measured.
  Ns operator()(Bytes bytes, int64_t parts = 1) const;

  CostSource source() const { return origin; }
  /// The line that gives the cost at `bytes` ("Ring/Simple", "measured", "alpha-beta").
  llvm::StringRef nameAt(Bytes bytes) const;
  /// The candidates of an analytic curve.
  llvm::ArrayRef<CostLine> candidates() const { return lines; }

private:
  void setPoints(llvm::ArrayRef<MeasuredPoint> measured);
  void setLines(std::vector<CostLine> candidates);
  Ns measuredCost(Bytes bytes) const;
  Ns floorFor(unsigned interval, int64_t parts) const;

  CostSource origin = CostSource::AlphaBeta;
  bool singleRank = false;
  /// Measured: points with times made monotone.
  std::vector<MeasuredPoint> points;
  /// Measured: the latency, which is the time of the smallest size, and how groups share it.
  CostLine measuredLatency;
  /// Analytic: candidates, and for each interval of the correction the largest minimum over all smaller intervals.
  std::vector<CostLine> lines;
  std::array<Ns, 24> floorOf{};
};

/// Isotonic regression: the monotone times closest to the given ones (least squares, pool adjacent violators, integer
/// means). O(points).
void makeMonotone(std::vector<MeasuredPoint> &points);

} // namespace commsched

#endif // COMMSCHED_MACHINE_COLLECTIVECOST_H
