//===- NoiseMoves.h - Moves of single nodes under noise ---------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// LocalMoves looks at one set of durations. Here one order has a timeline per scenario, and a move is kept if the
// objective over all of them does not get worse. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_NOISEMOVES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_NOISEMOVES_H

#include "CommSched/Scheduling/Model/MoveEvaluator.h"
#include "CommSched/Scheduling/Model/Scenarios.h"
#include "CommSched/Support/Objective.h"
#include "IncrementalTimeline.h"
#include "MoveChoice.h"

namespace commsched {

/// Moves the nodes of one order within a peak limit. Slow-downs are not seen, and units are not kept together.
class NoiseMoves {
public:
  /// Starts from the order of `schedule`. `carried` is its problem with its buckets carried out; a reference to it is
  /// kept. O(scenarios x (N + E + lanes)).
  NoiseMoves(const Problem &carried, const Schedule &schedule, const ScenarioSampler &sampler, Objective objective,
             Bytes limit);

  /// Tries moves until `steps` are spent, which are counted down. Equal arguments give equal orders on every machine.
  void run(int64_t &steps);

  llvm::ArrayRef<NodeId> order() const { return lines.front().order(); }

private:
  /// What is minimized: the objective, then the sum over all scenarios.
  using Value = std::pair<Ns, Wide>;
  Value valueOf(llvm::ArrayRef<Ns> makespans) const;

  bool chooseMove(int32_t &from, int32_t &to);
  void tryMove(int32_t from, int32_t to, int64_t &steps);
  void replaceAll(int32_t first, llvm::ArrayRef<NodeId> window);

  const Problem &problem;
  Objective objective;
  Bytes limit;
  MoveEvaluator memory;
  /// Indexed by scenario.
  std::vector<IncrementalTimeline> lines;
  std::vector<Ns> makespans;
  Value value;
  SplitMix64 random;
  /// The nodes on which the makespan of one scenario depends.
  std::vector<NodeId> critical;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_NOISEMOVES_H
