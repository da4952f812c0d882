//===- LoopPipelining.h - Collectives that could run an iteration apart -----------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A gather that depends on nothing but the number of the iteration may run one iteration ahead of its users, and a
// reduction whose result nobody in the loop reads may run one iteration behind its producer: XLA's collective pipeliner
// does that before it schedules. A loop whose body is doubled needs no copies from one iteration to the next. In the
// body, the edges between the collective and the kernels then lead to another
// iteration, so that what is left is a block like any other. Its time says what pipelining is worth.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_LOOPPIPELINING_H
#define COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_LOOPPIPELINING_H

#include "Hlo/Graph/HloGraph.h"

namespace commsched::hlo {

/// What XLA could do with a body, as nodes of its graph, ascending.
struct Pipelining {
  /// The starts of gathers that could run one iteration ahead.
  std::vector<NodeId> ahead;
  /// The starts of reductions that could run one iteration behind.
  std::vector<NodeId> behind;
  /// Copies from one iteration to the next.
  std::vector<NodeId> copies;
  /// The starts of gathers that could run ahead but for a barrier between their operands and others, such as the one
  /// that jax.checkpoint writes (opt-barrier).
  std::vector<NodeId> barred;

  bool empty() const { return ahead.empty() && behind.empty() && copies.empty(); }
};

/// Finds it. `problem` has the nodes of `graph`, which is the body of a loop. O(instructions + operands) for each
/// start.
Pipelining findPipelining(const HloGraph &graph, const Problem &problem);

/// One iteration of the steady state, with the collectives an iteration apart and without the copies. Results and
/// operands that cross iterations are live from the beginning, and to the end once they are there. Adds their bytes to
/// `carried`. O(nodes + edges).
Problem pipelinedBody(const Problem &problem, const Pipelining &pipelining, Bytes &carried);

/// How often the program runs a computation, and how often it enters the loop whose body the computation is (as often
/// as it runs if it is none). Loops of unknown length count as one iteration.
struct RunCount {
  int64_t runs = 0, entries = 0;
};

/// Indexed by computation. O(instructions).
std::vector<RunCount> countRuns(const HloModule &module);

} // namespace commsched::hlo

#endif // COMMSCHED_LIB_FRONTENDS_HLO_SCHEDULE_LOOPPIPELINING_H
