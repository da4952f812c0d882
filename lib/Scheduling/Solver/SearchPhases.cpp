//===- SearchPhases.cpp - The phases of a search ----------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The list of phases, and the short ones: decodes of policies, and the exact search.
//
//===------------------------------------------------------------------------------------------===//

#include "SearchPhases.h"
#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "Portfolio.h"
#include "Solver/Exact/ExactSearch.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>

using namespace commsched;

/// Estimates of the makespan from which deadlines follow, in permille of the shortest known makespan.
static constexpr int64_t kEstimates[] = {960, 920, 980, 990};
/// Limit on the number of rounds over kEstimates; a round that does not help is the last one.
static constexpr int32_t kDeadlineRounds = 3;

/// The exact searches come twice. Before any move, since small problems mostly need none then, and at the end: for the
/// order of the buckets that were found, and with all of the effort for all buckets.
static constexpr SearchPhase kPhases[] = {
    {"portfolio", 100, decodePortfolio}, {"deadlines", 20, decodeDeadlines}, {"exact", 30, searchExactly},
    {"buckets", 50, searchBuckets},      {"moves", 95, moveNodes},           {"exact", 100, searchExactly},
    {"buckets", 100, searchBuckets},
};

llvm::ArrayRef<SearchPhase> commsched::searchPhases() { return kPhases; }

std::vector<llvm::StringRef> commsched::phaseNames() {
  std::vector<llvm::StringRef> names;
  for (const SearchPhase &phase : kPhases)
    if (!llvm::is_contained(names, phase.name))
      names.push_back(phase.name);
  return names;
}

void commsched::decodePortfolio(SearchState &state) {
  const std::vector<Policy> policies = portfolio(state.facts);
  if (!state.hasRun())
    state.decodeAll(policies);
  if (!state.isFirstAnswer() || !state.facts.bucketing)
    state.compareReferences(policies);
}

void commsched::decodeDeadlines(SearchState &state) {
  if (!state.facts.bucketing)
    return;
  const Ns base = state.facts.horizonBase();
  for (Policy policy : {deadlinePolicy(), state.bestPolicy()})
    for (int32_t round = 0; round < kDeadlineRounds; ++round) {
      const Ns before = state.makespan();
      for (int64_t share : kEstimates) {
        policy.horizon = mulDiv(mulDiv(state.best().makespan, share, kPermille), kPermille, base);
        state.decodeAll(policy);
      }
      if (state.makespan() == before)
        break;
    }
}

/// Contention only lengthens, so an order that is not shorter without it than the answer is with it cannot be better.
void commsched::searchExactly(SearchState &state) {
  const ExpandedProblem &expanded = state.expanded();
  const Problem &problem = expanded.problem;
  if (problem.size() > ExactSearch::kMaxNodes || state.isDone())
    return;
  const int64_t spentBefore = state.spent();
  const bool isMerged = !state.best().buckets.empty();
  ExactSearch exact(problem, state.limit, state.makespan());
  int64_t steps = state.left(), allowed = steps;
  const bool complete = exact.run(steps);
  // A search that its first bound ends has looked at the problem all the same.
  state.spend(std::max<int64_t>(allowed - steps, 1));
  if (complete && !isMerged)
    state.knowLeastOfAllOrders(exact.makespan());
  if (exact.order().empty()) {
    state.noteFruitless(spentBefore);
    if (complete && !isMerged && !state.facts.bucketing)
      state.knowShortest();
    return;
  }
  DecodedSchedule found;
  found.buckets = state.best().buckets;
  found.makespan = exact.makespan();
  found.steps = stepsOf(state.facts.problem, found.buckets, expanded, exact.order());
  const bool isTaken = state.offer(std::move(found), spentBefore) == SearchVerdict::Incumbent;
  if (isTaken && complete && !state.facts.problem.hasContention() && !isMerged && !state.facts.bucketing)
    state.knowShortest();
}
