//===- BothCosts.h - Answers played with the model's costs and with somebody else's -----------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Whoever made the order that an answer replaces planned it with costs of his own: XLA with those of its latency
// estimator, PyTorch with its analytical ones. Either costs may be wrong. So an answer is played with both, and one
// that is slower than what it replaces by either of them is searched again, with a mix of both. This is what front ends
// share. XLA's writes each answer back and plays the module (Hlo/Pjrt/SecondOpinion.h); that of PyTorch gives the
// solver a second problem (SecondOpinion).
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_ANSWER_BOTHCOSTS_H
#define COMMSCHED_SCHEDULING_ANSWER_BOTHCOSTS_H

#include "CommSched/Scheduling/Answer/CostScale.h"
#include <functional>
#include <vector>

namespace commsched {

struct Schedule;

/// With whose costs an answer that loses is searched again, in this order: what the mean of both finds is usually good
/// by either.
inline constexpr PeerShare kSearchedAgainBy[] = {kByBoth, kByPeer};

/// What one answer takes, ns. Both are indexed like kPlayedScales, by which the times of collectives are
/// multiplied.
struct BothCosts {
  std::vector<Ns> byModel, byPeer;

  /// The time by the other costs as they are.
  Ns asPeerPlanned() const;
  /// Returns true if this takes longer than `given` by more than kLossPermille by either costs at any scale.
  bool isSlowerThan(const BothCosts &given) const;
};

/// An order of somebody else that an answer replaces.
struct PeerAnswer {
  BothCosts times;
  Bytes peak = 0;
  /// His order, as far as it is known: nodes, each at most once. The starts that he merges stand where the bucket
  /// starts, and their waits where he waits for it. Empty if nothing is known.
  std::vector<NodeId> order = {};
  /// Of each bucket: the starts that he merges.
  std::vector<std::vector<NodeId>> buckets = {};
};

/// Somebody else's costs of a problem, and what he would do.
struct SecondOpinion {
  /// The problem with the other costs: equal in everything but the costs of nodes and merge keys. Without variants.
  Problem byPeer;
  /// Returns the orders that an answer replaces beside the given one. Asked at most once, and only if bounds do not
  /// show that no order can be faster by more than kLossPermille. May be empty.
  std::function<std::vector<PeerAnswer>()> others;
};

/// What became of an answer by a second opinion.
struct OpinionOutcome {
  /// What the answer takes, and the given order.
  BothCosts answer, given;
  /// The orders that the answer was compared with, the given one included. Those above the limit are left out.
  int32_t incumbents = 0;
  /// How much slower than an incumbent the answer is where it loses most, at most 0 if it is nowhere slower, and the
  /// same of the answer that would have been taken without a second opinion; millionths.
  int64_t lossPpm = 0, firstLossPpm = 0;
  /// Whether it is another answer than would have been taken.
  bool isReplaced = false;
};

/// The problem with a mix of both costs. O(N + E).
Problem mixCosts(const Problem &byModel, const Problem &byPeer, PeerShare share);

/// The answer that is most like somebody else's: his buckets, as far as the problem allows all of them, and of the
/// ready operations always the one that comes first in his order. What he does not name runs as late as it can. Not
/// measured. O((N + E) log N).
Schedule answerLike(const Problem &problem, const PeerAnswer &peer);

/// What an answer of `problem` takes by both costs. O(scales x (N + E)).
BothCosts playWithBothCosts(const Problem &problem, const Problem &byPeer, const Schedule &schedule);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_ANSWER_BOTHCOSTS_H
