//===- MoveChoice.h - Choice of a node and its new place -------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What the searches that move single nodes have in common: how far a node may move, and how the distance is drawn.
// Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_MOVECHOICE_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_MOVECHOICE_H

#include "CommSched/Support/SplitMix64.h"
#include <algorithm>
#include <cstdint>

namespace commsched {

/// Limit on the distance of a move. Its cost is linear in the distance.
inline constexpr int32_t kMaxDistance = 4096;
/// Limit on the exponents of distances that are spread over the powers of two.
inline constexpr int64_t kMaxShift = 11;

/// A node's way from a position to another one.
struct NodeMove {
  int32_t from, to;
};

/// A distance of at least 1, spread over the powers of two.
inline int32_t drawDistance(SplitMix64 &random) {
  return static_cast<int32_t>(1 + random.below(int64_t(1) << random.below(kMaxShift)));
}

/// Another place for the node at `from`, from `earliest` to `latest` as far as the limit on distances allows: an end of
/// that range, or a drawn distance away. It is `from` if the node cannot move there.
inline int32_t drawPlace(SplitMix64 &random, int32_t from, int32_t earliest, int32_t latest) {
  earliest = std::max(earliest, from - kMaxDistance);
  latest = std::min(latest, from + kMaxDistance);
  switch (random.below(8)) {
  case 0:
    return earliest;
  case 1:
    return latest;
  default:
    int32_t distance = drawDistance(random);
    return std::clamp(from + (random.below(2) == 0 ? -distance : distance), earliest, latest);
  }
}

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_MOVECHOICE_H
