//===- Search.h - A search for short schedules ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Runs the phases of SearchPhases.h one after the other on one state (SearchState.h): decodes of policies, moves of
// single nodes, and the exact search of small problems. Effort is counted in steps, and random generators have fixed
// seeds, so equal input gives equal output.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H

#include "SearchState.h"

namespace commsched {

/// Searches for short schedules under one memory limit. Keeps references to the facts and to the options.
class Search {
public:
  /// As the constructor of SearchState.
  Search(const ScheduleFacts &facts, const ScheduleOptions &options, Reference given, Bytes limit,
         std::optional<Reference> roomy = std::nullopt)
      : state(facts, options, std::move(given), limit, std::move(roomy)) {}

  /// Searches until `effort` steps are spent, with those of calls before, or until the makespan is at most `bound`, ns.
  void run(int64_t effort, Ns bound);
  /// Takes the answer of another search of the same problem under the same limit, which has run, if it is shorter. The
  /// other one is not to be used afterwards.
  void adopt(Search &&other) { state.adopt(std::move(other.state)); }
  /// Begins from an answer for a problem with the same nodes, if it is within the limit and shorter.
  void beginFrom(const Schedule &known) { state.beginFrom(known); }

  const DecodedSchedule &best() const { return state.best(); }
  /// Of a search that has run.
  const ExpandedProblem &expanded() const { return state.carriedOut(); }
  const Order &order() const { return state.order(); }
  Ns makespan() const { return state.makespan(); }
  Bytes peak() const { return state.best().peak; }
  int64_t steps() const { return state.spent(); }
  int32_t incumbents() const { return state.incumbents(); }
  const std::string &defect() const { return state.defect(); }
  /// The least makespan of all orders within the limit without buckets, if all of them were enumerated, ns. Contention
  /// is left out, so it is a bound with it.
  std::optional<Ns> leastOfAllOrders() const { return state.leastOfAllOrders(); }
  std::optional<Ns> leastOfAllSchedules() const { return state.leastOfAllSchedules(); }

private:
  /// Lets tests offer wrong schedules, which no decode produces.
  friend struct SearchTestAccess;

  SearchState state;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H
