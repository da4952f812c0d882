//===- SearchObserver.cpp - Watch the search of the solver ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The words for phases and verdicts, and the observer that counts.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "llvm/Support/ErrorHandling.h"

using namespace commsched;

llvm::StringRef commsched::stringify(SearchPhase phase) {
  switch (phase) {
  case SearchPhase::Portfolio:
    return "portfolio";
  case SearchPhase::Deadlines:
    return "deadlines";
  case SearchPhase::Exact:
    return "exact";
  case SearchPhase::Sweep:
    return "sweep";
  case SearchPhase::Climb:
    return "climb";
  case SearchPhase::Moves:
    return "moves";
  }
  llvm_unreachable("unknown phase");
}

llvm::StringRef commsched::stringify(SearchReference reference) {
  switch (reference) {
  case SearchReference::Given:
    return "given";
  case SearchReference::Roomy:
    return "roomy";
  case SearchReference::Incumbent:
    return "incumbent";
  }
  llvm_unreachable("all references are handled");
}

llvm::StringRef commsched::stringify(SearchVerdict verdict) {
  switch (verdict) {
  case SearchVerdict::Incumbent:
    return "incumbent";
  case SearchVerdict::Kept:
    return "kept";
  case SearchVerdict::Dropped:
    return "dropped";
  case SearchVerdict::CutOff:
    return "cut off";
  case SearchVerdict::Rejected:
    return "rejected";
  }
  llvm_unreachable("unknown verdict");
}

/// Why a trial is kept that is not the answer.
static llvm::StringRef describeKept(SearchPhase phase) {
  switch (phase) {
  case SearchPhase::Portfolio:
  case SearchPhase::Deadlines:
    return "a start point of the local search";
  case SearchPhase::Sweep:
    return "shorter than the policy that was changed";
  case SearchPhase::Climb:
    return "within the tolerance of the point that was changed";
  case SearchPhase::Exact:
  case SearchPhase::Moves:
    return "the best order of these buckets was known already";
  }
  llvm_unreachable("unknown phase");
}

llvm::StringRef commsched::describeVerdict(SearchPhase phase, SearchVerdict verdict) {
  switch (verdict) {
  case SearchVerdict::Incumbent:
    return "shorter than the best answer so far";
  case SearchVerdict::Kept:
    return describeKept(phase);
  case SearchVerdict::Dropped:
    return "not shorter than what it was to replace";
  case SearchVerdict::CutOff:
    return phase == SearchPhase::Exact || phase == SearchPhase::Moves ? "no shorter order was found"
                                                                      : "it cannot be short enough within the limit";
  case SearchVerdict::Rejected:
    return "the verifier refuses it";
  }
  llvm_unreachable("unknown verdict");
}

void SearchStatistics::observe(const SearchTrial &trial) {
  Phase &phase = phases[static_cast<size_t>(trial.phase)];
  ++phase.trials;
  phase.steps += trial.steps;
  phase.kept += trial.verdict == SearchVerdict::Kept || trial.verdict == SearchVerdict::Incumbent;
  if (trial.verdict != SearchVerdict::Incumbent)
    return;
  ++phase.incumbents;
  improved = true;
  lastImprovement = trial.phase;
}

SearchStatistics::Phase SearchStatistics::total() const {
  Phase sum;
  for (const Phase &phase : phases) {
    sum.trials += phase.trials;
    sum.kept += phase.kept;
    sum.incumbents += phase.incumbents;
    sum.steps += phase.steps;
  }
  return sum;
}
