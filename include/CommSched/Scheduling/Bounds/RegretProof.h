//===- RegretProof.h - Proof of a regret ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The regret of an answer is how much longer it takes than any answer could, if collectives take other times than
// planned (CostScale.h). Its proof is an argument for a lower bound at each of a few scales; what happens between two
// of them follows from both ends (Bounds.md, Lemma 24). All times are in picoseconds, so none is rounded.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_BOUNDS_REGRETPROOF_H
#define COMMSCHED_SCHEDULING_BOUNDS_REGRETPROOF_H

#include "CommSched/Scheduling/Answer/CostScale.h"
#include "CommSched/Scheduling/Bounds/BoundWitness.h"

namespace commsched {

/// An answer at one scale.
struct ScaleProof {
  CostScale scale = kScaleOne;
  /// Of the answer, ps.
  int64_t makespanPs = 0;
  /// A lower bound for any answer. Its times are in ps.
  BoundWitness witness;
};

/// A regret from the first to the last of some scales, and why it holds.
struct RegretProof {
  /// In millionths, rounded up.
  int64_t regretPpm = 0;
  /// Ascending, without kScaleOne: the bound at that scale is known.
  std::vector<ScaleProof> scales;
};

/// An answer whose regret is to be proven.
struct RegretQuestion {
  /// The problem that bounds are about: with the least cost of each node, if there is a choice.
  const Problem &problem;
  /// The problem whose nodes the answer's order names (Schedule::carriedOut).
  const Problem &carriedOut;
  llvm::ArrayRef<NodeId> order;
  /// A lower bound at kScaleOne, ns.
  Ns boundAsPlanned = 0;
  /// As for proveBound().
  BoundOptions bound;
  bool bucketing = false;
};

/// Proves the regret between the first and the last of `scales`, which ascend and contain kScaleOne. None if a bound is
/// 0, if activities share resources, or if times are too large to be counted in picoseconds. O(scales) times
/// proveBound().
std::optional<RegretProof> proveRegret(const RegretQuestion &question, llvm::ArrayRef<CostScale> scales);

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_BOUNDS_REGRETPROOF_H
