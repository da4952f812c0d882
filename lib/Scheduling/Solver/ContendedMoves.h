//===- ContendedMoves.h - Moves of single nodes, timed with contention ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A local search over one order of activities that share resources. It moves one node at a time and plays the order
// from a stop in front of the move to the end, to the next stop at which everything is as it was but for a shift of
// time, or to a point at which the order is known to be longer. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_CONTENDEDMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_CONTENDEDMOVES_H

#include "CommSched/Scheduling/Model/MoveEvaluator.h"
#include "CommSched/Support/SplitMix64.h"
#include "Model/ContentionPlayer.h"

namespace commsched {

/// Moves nodes of an order within a peak limit. Units are not kept together.
class ContendedMoves {
public:
  /// `order` is a legal order of `problem`, which has contention, with a peak of at most `limit`, bytes. Keeps a
  /// reference to `problem`. O((N + touches) log N + N x activities in flight).
  ContendedMoves(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit);

  /// Tries moves until `steps` are spent, which are counted down, or the makespan is at most `target`, ns. Equal
  /// arguments give equal orders on every machine.
  void run(int64_t &steps, Ns target);

  llvm::ArrayRef<NodeId> order() const { return moves.order(); }
  Ns makespan() const { return best; }

private:
  /// A node's way from a position to another one.
  struct Move {
    int32_t from, to;
  };

  bool choose(Move &move);
  Ns play(const Move &move, Ns cutoff, int64_t &played);
  void placeStops(int32_t first);
  NodeId nodeAt(int32_t position, const Move &move) const;

  const Problem &problem;
  Bytes limit;
  MoveEvaluator moves;
  ContentionPlayer player;
  SplitMix64 random;
  /// The starts and the waits, which are moved more often than other nodes.
  std::vector<NodeId> communicating;
  /// In front of every spacing-th position: the state of the order as it is.
  std::vector<ContentionPlayer::Stop> stops;
  int32_t spacing;
  /// Indexed by position: what the compute lane needs from there on at least, ns.
  std::vector<Ns> left;
  Ns best = 0;
  /// Whether a shift of time shifts all that follows: nothing arrives at a fixed time.
  bool shifts = true;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_CONTENDEDMOVES_H
