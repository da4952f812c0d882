//===- CostScale.h - The same block with other times of its collectives -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Costs are estimates, and those of collectives err most. A scale multiplies the time of every collective and leaves
// everything else as it is. The problem at a scale has the nodes, edges and buffers of the given one, so an order or a
// bucketing of the one is an order or a bucketing of the other. Models.md says what a scale changes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_COSTSCALE_H
#define COMMSCHED_SCHEDULING_ANSWER_COSTSCALE_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <optional>

namespace commsched {

/// By what the times of collectives are multiplied, in thousandths.
using CostScale = int32_t;
inline constexpr CostScale kScaleOne = static_cast<CostScale>(kPermille);
/// The scales at which answers are played, ascending.
inline constexpr CostScale kPlayedScales[] = {750, 1000, 1250, 1500, 2000};
/// By how much an answer may be slower than what it replaces at any of the scales, in thousandths.
inline constexpr int64_t kLossPermille = 10;

/// `time` at a scale, ns, rounded down.
inline Ns scaleTime(Ns time, CostScale scale) { return mulDiv(time, scale, kPermille); }

/// The part of each time that somebody else's costs have in a mix, in thousandths. The model has the rest.
using PeerShare = int32_t;
inline constexpr PeerShare kByModel = 0, kByBoth = kPermille / 2, kByPeer = kPermille;

/// A time of the model and one of somebody else, mixed, ns.
inline Ns mixTimes(Ns model, Ns peer, PeerShare share) {
  return mulDiv(model, kPermille - share, kPermille) + mulDiv(peer, share, kPermille);
}

/// The problem at a scale: starts, alone or merged and in every variant, and collectives that came in and are still in
/// flight, take `scale` thousandths of their time. Computations, issue costs, fused operations (hybrids) and
/// operations with collectives inside keep theirs. The functions of the merge keys call those of `problem`. O(N + E).
Problem scaleCollectives(const Problem &problem, CostScale scale);

/// The same with all times in picoseconds, so that none is rounded: those of collectives are multiplied by `scale`, all
/// others by kPermille. Every makespan and bound of it is in picoseconds. Times saturate. O(N + E).
Problem scaleExactly(const Problem &problem, CostScale scale);

/// The makespans of one order at several scales, ns: those of scaleCollectives(problem, scale). O(N + E) and
/// makespanOf() per scale.
std::vector<Ns> playAtScales(const Problem &problem, llvm::ArrayRef<NodeId> order, llvm::ArrayRef<CostScale> scales);

/// The makespans of one answer and of the given order at a scale, and a lower bound for any answer at that scale, 0 if
/// none is known, ns (or all three in another unit of time).
struct ScaledTimes {
  CostScale scale = kScaleOne;
  Ns makespan = 0, given = 0, bound = 0;
};

/// The largest distance from a bound at any scale from the first to the last of `times`, also between two of them, in
/// millionths, rounded up: the answer takes at most this much longer than any answer could. `times` ascend by scale. An
/// upper bound if the answer is played without contention; up to the rounding of scaled times to nanoseconds, unless
/// they are those of scaleExactly(). None if a bound is not known. O(size).
std::optional<int64_t> regretPpm(llvm::ArrayRef<ScaledTimes> times);

/// Adds at most `most` scales to `times`, each in the middle of the interval in which regretPpm() is largest, with what
/// `measure` says of it: until that is next to nothing above the regret at a scale itself, or the interval is short.
void addScales(std::vector<ScaledTimes> &times, size_t most, llvm::function_ref<ScaledTimes(CostScale)> measure);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_COSTSCALE_H
