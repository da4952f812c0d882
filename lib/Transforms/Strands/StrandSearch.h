//===- StrandSearch.h - Search for the fastest split of a block -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Tries splits of copies of a function and schedules each as comm-schedule does. The first answers of the solver choose
// two candidates, and searches with the whole effort decide between these and the block as it is. Private to the
// passes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDSEARCH_H
#define COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDSEARCH_H

#include "CommSched/Transforms/SchedulingOptions.h"
#include "StrandWriter.h"

namespace commsched {

/// One way to split a block.
struct StrandCandidate {
  int32_t dimension = 0;
  /// The stagger may be kPhases.
  int64_t parts = 1, stagger = kPhases;
  /// See PlanExtent.
  int64_t window = -1;
  /// The class of regions that stays whole, or -1.
  int32_t droppedClass = -1;
  /// See PlanExtent.
  bool sums = true;
};

/// A candidate with its schedule.
struct StrandTrial {
  StrandCandidate candidate;
  StrandPlan plan;
  Schedule schedule;
  /// See WrittenStrands.
  int64_t slices = 0, copies = 0, joins = 0, inPlace = 0, sums = 0;
  /// Computation beyond that of the block as it is: smaller kernels, and copies, ns.
  Ns addedWork = 0;

  bool isWithinLimit() const { return schedule.isWithinLimit(); }
};

/// What the search found for one block.
struct StrandOutcome {
  /// The block as it is, with the whole effort.
  Schedule unsplit;
  /// No split of the block along any of its dimensions is faster, ns (Bounds.md, Lemma 19), and why.
  Ns lowerBound = 0;
  std::string lowerBoundBy;
  /// The best candidates, by first answers; those with the whole effort come first, the fastest of them at the front.
  std::vector<StrandTrial> trials;
  /// Candidates for which the solver gave an answer.
  int64_t tried = 0;
  /// By how much all parts of computations may be slower than the model says until the front trial, in its order, is as
  /// slow as the block as it is, in thousandths; at most kLargestInefficiency.
  int64_t breakEvenPermille = 0;

  /// Returns true if the front trial is faster than the block as it is.
  bool splits() const;
  /// Returns true if the bound says that no split gains enough to try one.
  bool isHopeless() const;
};

/// The largest inefficiency of parts that the search looks for, in thousandths: kernels four times as slow.
inline constexpr int64_t kLargestInefficiency = 3000;

/// Options of the search.
struct StrandSearchOptions {
  int64_t maxStrands = 4;
  /// Only this stagger if it is not negative.
  int64_t stagger = -1;
  /// Only this window if it is positive, everything if it is 0.
  int64_t window = -1;
  SolverOptions solver;
};

/// Splits the entry block of `function`, a function of one block. `function` is not changed; copies of it are put into
/// its module for the time of the search. Calls schedule() without effort for kMostCandidates candidates at most, and
/// three times with effort. With effort, all of this takes at most kMostTimes times the steps of the block as it is, or
/// of kLeastSearchPercent of the default effort, whichever is more.
StrandOutcome searchStrands(mlir::Operation *function, const SplitSpace &space, const CostModel &model,
                            const StrandSearchOptions &options);

/// Limit on the candidates of one block: first answers take a fraction of a whole search.
inline constexpr int64_t kMostCandidates = 24;
/// Limit on the steps of the search, as a multiple of those of the block as it is. Steps of first answers are cheap:
/// the time is then less than eight times that of the block as it is (measured).
inline constexpr int64_t kMostTimes = 8;
/// Share of the default effort, in percent, that counts as the steps of a block whose own search ended earlier.
inline constexpr int64_t kLeastSearchPercent = 25;

/// Writes the strands of `plan` into `block` and arranges them with `stagger`.
WrittenStrands writeAndArrange(mlir::Block &block, const StrandPlan &plan, int64_t stagger, const CostModel &model,
                               const LoadOptions &load);

} // namespace commsched

#endif // COMMSCHED_LIB_TRANSFORMS_STRANDS_STRANDSEARCH_H
