//===- ContendedMoves.h - Moves of single nodes, timed with contention ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A local search over one order of activities that share resources. It moves one node at a time and keeps the moves
// that do not lengthen the order (ContendedOrder.h). Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_CONTENDEDMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_CONTENDEDMOVES_H

#include "CommSched/Scheduling/Memory/MoveEvaluator.h"
#include "ContendedOrder.h"
#include "MoveChoice.h"
#include <atomic>

namespace commsched {

/// Moves nodes of an order within a peak limit. Units are not kept together.
class ContendedMoves {
public:
  /// `order` is a legal order of `problem`, which has contention, with a peak of at most `limit`, bytes. Keeps a
  /// reference to `problem`. O((N + touches) log N + N x activities in flight).
  ContendedMoves(const Problem &problem, llvm::ArrayRef<NodeId> order, Bytes limit);

  /// Tries moves until `steps` are spent, which are counted down, or the makespan is at most `target`, ns. Equal
  /// arguments give equal orders on every machine. Ends early if `stop` is given and set.
  void run(int64_t &steps, Ns target, const std::atomic<bool> *stop = nullptr);

  llvm::ArrayRef<NodeId> order() const { return moves.order(); }
  Ns makespan() const { return played.makespan(); }

private:
  bool choose(NodeMove &move);
  NodeId nodeAt(int32_t position, const NodeMove &move) const;

  const Problem &problem;
  Bytes limit;
  MoveEvaluator moves;
  ContendedOrder played;
  SplitMix64 random;
  /// The starts and the waits, which are moved more often than other nodes.
  std::vector<NodeId> communicating;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_MOVES_CONTENDEDMOVES_H
