//===- SearchObserver.cpp - Watch the search of the solver ------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The words for references and verdicts, and the observer that counts.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Scheduling/Solver/SearchObserver.h"
#include "llvm/Support/ErrorHandling.h"

using namespace commsched;

llvm::StringRef commsched::stringify(SearchReference reference) {
  switch (reference) {
  case SearchReference::Given:
    return "given";
  case SearchReference::Roomy:
    return "roomy";
  }
  llvm_unreachable("all references are handled");
}

llvm::StringRef commsched::stringify(SearchVerdict verdict) {
  switch (verdict) {
  case SearchVerdict::Incumbent:
    return "incumbent";
  case SearchVerdict::Dropped:
    return "dropped";
  case SearchVerdict::CutOff:
    return "cut off";
  case SearchVerdict::Rejected:
    return "rejected";
  }
  llvm_unreachable("unknown verdict");
}

llvm::StringRef commsched::describeVerdict(const SearchTrial &trial) {
  switch (trial.verdict) {
  case SearchVerdict::Incumbent:
    return "shorter than the best answer so far";
  case SearchVerdict::Dropped:
    return "not shorter than the best answer so far";
  case SearchVerdict::CutOff:
    return trial.isDecode ? "it does not fit the limit" : "no shorter order was found";
  case SearchVerdict::Rejected:
    return "the verifier refuses it";
  }
  llvm_unreachable("unknown verdict");
}

void SearchStatistics::observe(const SearchTrial &trial) {
  Phase &phase = phases[trial.phase];
  ++phase.trials;
  phase.steps += trial.steps;
  if (trial.verdict != SearchVerdict::Incumbent)
    return;
  ++phase.incumbents;
  lastImprovement = trial.phase;
}

SearchStatistics::Phase SearchStatistics::total() const {
  Phase sum;
  for (const auto &[name, phase] : phases) {
    sum.trials += phase.trials;
    sum.incumbents += phase.incumbents;
    sum.steps += phase.steps;
  }
  return sum;
}
