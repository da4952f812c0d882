//===- SearchPhases.h - The phases of a search ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A phase is a function of the state that all of them share, with a name and a share of the effort. A new one is
// declared here, has a file of its own, and stands in the list of SearchPhases.cpp. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCHPHASES_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCHPHASES_H

#include "SearchState.h"

namespace commsched {

/// A part of a search, which looks for shorter answers in one way.
struct SearchPhase {
  /// As in logs, and in ScheduleOptions::without.
  llvm::StringLiteral name;
  /// The share of the whole effort that it may take, percent.
  int64_t percent;
  void (*run)(SearchState &state);
};

/// The phases in the order in which they run.
llvm::ArrayRef<SearchPhase> searchPhases();

/// Decodes a few policies, best guesses first, from the given order, and from a roomier one if there is one.
void decodePortfolio(SearchState &state);
/// With buckets, decodes with deadlines. Deadlines help only if they follow from a makespan that can be reached and is
/// shorter than the best one, so several estimates are tried.
void decodeDeadlines(SearchState &state);
/// Enumerates the orders of the answer's problem, buckets carried out, if it is small enough (ExactSearch.h).
void searchExactly(SearchState &state);
/// Enumerates all buckets of a few collectives, and the orders of each, if the problem is small enough.
void searchBuckets(SearchState &state);
/// Moves single nodes of the answer's order and changes its buckets (LocalMoves.h). With buckets, and in small
/// problems, this is simulated annealing (S. Kirkpatrick, C. D. Gelatt and M. P. Vecchi, "Optimization by simulated
/// annealing", Science 220, 1983): moves may lengthen the order, less and less. With contention, moves change no
/// buckets (ContendedMoves.h). Problems with units are left as they are.
void moveNodes(SearchState &state);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCHPHASES_H
