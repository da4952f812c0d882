//===- Robust.h - Answers that do not lose when costs are wrong -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A loop around the solver: solve for several scales of the collectives' times, settle every answer, play each of them
// at every scale, keep one by a stated rule, and move its nodes and change its buckets, at the scale where it is
// furthest from its bound, without a loss at the others.
//
// Let T(k) be an answer's makespan at scale k and B(k) a lower bound at that scale for any order and bucketing within
// the limit. The regret of an answer is the largest T(k) / B(k) - 1.
//
// Unless the regret of the answer as planned is next to nothing, the problem is also solved for slower collectives with
// a part of the effort, the best answer by the rule below is improved by moves (GuardedMoves.h), and of all answers
//   Objective::Robust takes those that as planned are no slower than the given order and within kTolerancePermille of
//   the fastest one, and of these the one with the least regret;
//   Objective::Regret takes the one with the least regret.
// If the given order is within the limit, an answer that is slower than it by more than kLossPermille at any of
// kPlayedScales is not taken. If that leaves none, the given order, merged as the first answer is, settled, and as it
// is, joins the answers, and the fastest one as planned is taken.
//
// Every answer is verified, and within the limit if the first one is. If a bound would take too long for the effort,
// the shortest makespan found at that scale takes its place in the rule. Schedule::scales has each of kPlayedScales,
// and scales between them where they tell more of the regret.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_LENSES_ROBUST_H
#define COMMSCHED_SCHEDULING_LENSES_ROBUST_H

#include "CommSched/Scheduling/Answer/CostScale.h"

namespace commsched {

/// By how much an answer may be slower as planned than the fastest one that was found, in thousandths, if that lowers
/// its regret.
inline constexpr int64_t kTolerancePermille = 1;

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_LENSES_ROBUST_H
