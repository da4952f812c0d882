//===- DryLanes.h - Lanes that run out of work ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Before each compute, a decode serves the lanes that would run dry during it. There may be thousands of lanes, of
// which few are dry, so these are found in a tree of minima instead of being looked at one by one.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DRYLANES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DRYLANES_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include <limits>

namespace commsched {

/// For each lane the time at which it needs its next start.
class DryLanes {
public:
  /// The time of a lane that needs none.
  static constexpr Ns kNever = std::numeric_limits<Ns>::max();

  /// No lane needs anything. O(lanes).
  void reset(LaneId lanes) {
    leaves = 1;
    while (leaves < lanes)
      leaves *= 2;
    earliest.assign(2 * static_cast<size_t>(leaves), kNever);
  }

  /// Sets the time of a lane, ns. O(log lanes).
  void set(LaneId lane, Ns time) {
    size_t at = static_cast<size_t>(leaves) + lane;
    earliest[at] = time;
    for (at /= 2; at > 0; at /= 2)
      earliest[at] = std::min(earliest[2 * at], earliest[2 * at + 1]);
  }

  /// The first lane from `lane` on whose time is before `until`, or kNone. O(log lanes).
  LaneId next(LaneId lane, Ns until) const {
    if (lane >= leaves)
      return kNone;
    size_t at = static_cast<size_t>(leaves) + lane;
    while (earliest[at] >= until) {
      // On to the subtree that follows this one.
      while (at % 2 == 1)
        at /= 2;
      if (at == 0)
        return kNone;
      ++at;
    }
    while (at < static_cast<size_t>(leaves))
      at = 2 * at + (earliest[2 * at] >= until ? 1 : 0);
    return static_cast<LaneId>(at - leaves);
  }

  /// The lane with the earliest time, the first of several, or kNone if all are kNever. O(log lanes).
  LaneId earliestLane() const { return earliest[1] == kNever ? kNone : next(0, earliest[1] + 1); }

private:
  /// A power of two.
  LaneId leaves = 1;
  /// A heap-ordered tree: the children of `at` are 2 at and 2 at + 1, its root is 1, and the leaf of a lane is at
  /// `leaves` + lane. Each element is the minimum of its leaves.
  std::vector<Ns> earliest = {kNever, kNever};
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_DECODE_DRYLANES_H
