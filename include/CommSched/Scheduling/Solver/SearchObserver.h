//===- SearchObserver.h - Watch the search of the solver --------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The solver tells its observers what it tries, what came out, and why it keeps or drops it. It tells nothing that
// depends on time or on addresses, so equal input and options give equal events. Without observers, a trial costs one
// comparison more.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SCHEDULING_SOLVER_SEARCHOBSERVER_H
#define COMMSCHED_SCHEDULING_SOLVER_SEARCHOBSERVER_H

#include "CommSched/Scheduling/Problem/Problem.h"
#include "llvm/ADT/MapVector.h"

namespace commsched {

/// The order that a decode falls back to: the given one, or one that leaves more of the limit free.
enum class SearchReference : uint8_t { Given, Roomy };

/// "given", "roomy".
llvm::StringRef stringify(SearchReference reference);

/// What the search does with a trial.
enum class SearchVerdict : uint8_t {
  /// It is the new answer: shorter than the best one so far, and the verifier agrees.
  Incumbent,
  /// It is complete, and not shorter than the best one so far.
  Dropped,
  /// It was given up before its end: it cannot become short enough, or does not fit the limit.
  CutOff,
  /// The verifier refuses it: a defect of the solver.
  Rejected,
};
/// "incumbent", "dropped", "cut off" or "rejected".
llvm::StringRef stringify(SearchVerdict verdict);

/// One number of a policy that differs from its default.
struct PolicyValue {
  /// The member of Policy: "window", "maxNeeded", ...
  llvm::StringRef name;
  int64_t value;
};

/// The beginning of a search. There is one of the order alone, and then one of order and buckets if these are allowed.
struct SearchStart {
  bool bucketing = false;
  NodeId nodes = 0;
  /// Steps that the search may spend.
  int64_t effort = 0;
  /// Limit on the peak, bytes; kUnlimited or more for no limit.
  Bytes limit = 0;
  /// The first incumbent's makespan, and the makespan at which the search ends, ns.
  Ns makespan = 0, target = 0;
};

/// One trial: a decode of a policy, a slice of the moves, or an enumeration.
struct SearchTrial {
  /// The name of the phase that makes it.
  llvm::StringRef phase;
  SearchVerdict verdict = SearchVerdict::CutOff;
  /// Whether a policy was decoded, which one, and what the decode falls back to.
  bool isDecode = false;
  llvm::ArrayRef<PolicyValue> policy;
  SearchReference reference = SearchReference::Given;
  /// Makespan, ns, peak, bytes, and number of buckets. 0 if the trial was cut off.
  Ns makespan = 0;
  Bytes peak = 0;
  int32_t buckets = 0;
  /// Steps that the trial took, and steps of the search so far.
  int64_t steps = 0, stepsSoFar = 0;
  /// The best makespan after the trial, ns.
  Ns best = 0;
};

/// Why a trial got its verdict, as half a sentence: "shorter than the best answer so far".
llvm::StringRef describeVerdict(const SearchTrial &trial);

/// The end of a search.
struct SearchEnd {
  Ns makespan = 0;
  Bytes peak = 0;
  int32_t buckets = 0;
  int64_t steps = 0;
};

/// Is told of everything that a search does, in order, by the thread that runs it.
class SearchObserver {
public:
  virtual ~SearchObserver() = default;
  virtual void begin(const SearchStart &start) = 0;
  virtual void observe(const SearchTrial &trial) = 0;
  virtual void end(const SearchEnd &end) = 0;
};

/// Counts trials.
class SearchStatistics : public SearchObserver {
public:
  /// Of one phase, over all searches.
  struct Phase {
    int64_t trials = 0, incumbents = 0, steps = 0;
  };

  void begin(const SearchStart &) override { ++searches; }
  void observe(const SearchTrial &trial) override;
  void end(const SearchEnd &) override {}

  /// The sum over all phases.
  Phase total() const;

  int32_t searches = 0;
  /// By the names of the phases that made a trial, in the order in which they did.
  llvm::MapVector<llvm::StringRef, Phase> phases;
  /// The phase of the last trial that became the answer; empty if none did.
  llvm::StringRef lastImprovement;
};

} // namespace commsched

#endif // COMMSCHED_SCHEDULING_SOLVER_SEARCHOBSERVER_H
