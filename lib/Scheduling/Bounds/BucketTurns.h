//===- BucketTurns.h - How often the buckets of two keys take turns ---------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Computations need what one key gathers, and another key of the same lane reduces what they compute. If the lane may
// hardly idle, the computations between the two have to run beside other buckets of the lane, so few buckets are not
// enough (Bounds.md, Lemma 22). Internal to BatchBound.cpp and MemoryLimitedBound.cpp.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETTURNS_H
#define COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETTURNS_H

#include "HeadsAndTails.h"
#include <map>

namespace commsched {

/// Members of one merge key. A bucket over S bytes of them takes at least the latency of the lane and S * `cost` /
/// `bytes` ns.
struct TurnKey {
  std::vector<NodeId> members;
  Ns cost = 0;
  Bytes bytes = 1;
};

/// Counts the buckets that a lane needs between the moments `head` and makespan - `tail`.
class BucketTurns {
public:
  /// Of the `sources`, results are what counts: all but `before` bytes of them begin after `head`. Of the `sinks`, what
  /// has to be computed for them counts, and all of them begin after `head`. Either may have no members. Every bucket
  /// takes at least `latency`, ns.
  BucketTurns(const Problem &problem, const BoundCosts &costs, TurnKey sources, Bytes before, TurnKey sinks, Ns latency,
              Ns head, Ns tail)
      : problem(problem), costs(costs), sources(std::move(sources)), sinks(std::move(sinks)), before(before),
        latency(latency), head(head), tail(tail) {}

  /// The fewest buckets, those of both keys and their members that stay alone, with which all ends in time; at most
  /// kMaxTurns + 1, for more of them. O((N + E) members / 64) once, and then O(kMaxTurns kTurnCells^3) for at most
  /// kMaxTables grains of idle time that are asked for.
  int64_t fewest(Ns makespan);

  static constexpr int64_t kMaxTurns = 24;

private:
  /// Bytes of one key, in cells of the same size.
  struct Cells {
    int32_t count = 0;
    Bytes unit = 1;
    /// Whether all members fill whole cells.
    bool isExact = false;
    /// By number of cells: what their bytes take on the lane at least and at most, ns.
    std::vector<Ns> least, most;
    /// By number of cells. Of sources: the most that can have been computed once these have ended. Of sinks: the least
    /// that has been computed when the last of these begins, ns.
    std::vector<Ns> computed;
  };
  enum class Side : uint8_t { Sources, Sinks };

  void prepare();
  Cells cellsOf(const TurnKey &key, Side side) const;
  int64_t fewestWithin(Ns idle);
  int64_t fewestByTable(Ns idle) const;
  void step(int64_t number, Ns idle, const std::vector<Ns> &from, std::vector<Ns> &to) const;

  const Problem &problem;
  const BoundCosts &costs;
  const TurnKey sources, sinks;
  const Bytes before;
  const Ns latency, head, tail;

  bool isPrepared = false, isTooLarge = false;
  Cells in, out;
  /// All work of the compute lane, ns, and of the lane without latencies, ns.
  Ns allCompute = 0, work = 0;
  int32_t firstCell = 0;
  /// What has been found, by idle time, ns.
  std::map<Ns, int64_t> known;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_BOUNDS_BUCKETTURNS_H
