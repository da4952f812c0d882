//===- SearchState.h - State of a search ------------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The best answer so far, the effort that is left, and the gate that every improvement passes before it becomes the
// answer: the models and the verifier have to agree with it. Private to the solver.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCHSTATE_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCHSTATE_H

#include "CommSched/Scheduling/Solver/ScheduleOptions.h"
#include "Solver/Decode/Decoder.h"

#include <limits>
#include <memory>
#include <optional>

namespace commsched {

/// One search under one memory limit. Keeps references to the facts and to the options.
class SearchState {
public:
  /// The makespan of a decode that was cut off.
  static constexpr Ns kFailed = std::numeric_limits<Ns>::max();

  /// `given`, a reference of these or equal facts, has to fit `limit`; it is the first incumbent. The search takes from
  /// `options` the collective order that an answer has to keep, the further condition on answers, and the observers.
  /// `roomy`, another such reference that leaves more of the limit free, is preferred to it if the portfolio decodes to
  /// something shorter from it.
  SearchState(const ScheduleFacts &facts, const ScheduleOptions &options, Reference given, Bytes limit,
              std::optional<Reference> roomy);

  // The task.
  const ScheduleFacts &facts;
  const ScheduleOptions &options;
  const Bytes limit;
  /// Whether the problem has units (Node::unit), whose nodes every answer keeps together.
  const bool hasUnits;

  // The effort, in steps.

  /// Sets what the search may spend in all, with what it has spent before, and the makespan, ns, at which it ends.
  void allow(int64_t effort, Ns bound);
  /// The phase that spends from now on, and the share of the whole effort that it may take, percent.
  void beginPhase(llvm::StringRef name, int64_t percent);
  /// Whether there is no effort beyond the allowance of a first answer.
  bool isFirstAnswer() const { return effort <= spentBeforeRun; }
  int64_t allEffort() const { return effort; }
  int64_t spent() const { return numSpent; }
  /// Whether the search has run before and now goes on.
  bool hasRun() const { return spentBeforeRun > 0; }
  void spend(int64_t steps) { numSpent += steps; }
  /// What is left to the phase.
  int64_t left() const { return budget - numSpent; }
  Ns target() const { return aim; }
  /// Whether the answer is as short as it can be.
  bool isShortest() const { return optimal || makespan() <= aim; }
  /// Whether the phase ends.
  bool isDone() const { return left() <= 0 || isShortest() || options.isStopped(); }
  /// Whether another policy may be decoded. The allowance of a first answer counts, too.
  bool mayDecode() const;

  // Answers.

  const DecodedSchedule &best() const { return incumbent; }
  Ns makespan() const { return incumbent.makespan; }
  /// The number of answers so far, the given order among them.
  int32_t incumbents() const { return numIncumbents; }
  /// The problem with the buckets of the answer carried out, and its order.
  const ExpandedProblem &expanded();
  /// The same, after a call of expanded().
  const ExpandedProblem &carriedOut() const { return carried; }
  const Order &order() const { return bestOrder; }
  const std::string &defect() const { return firstDefect; }
  /// The best policy that was decoded.
  const Policy &bestPolicy() const { return shortestPolicy; }
  std::optional<Ns> leastOfAllOrders() const { return leastOrder; }
  std::optional<Ns> leastOfAllSchedules() const { return leastSchedule; }
  /// All orders of the problem without buckets were looked at, and this is the least makespan of those within the
  /// limit, without contention, ns.
  void knowLeastOfAllOrders(Ns makespan) { leastOrder = makespan; }
  /// Nothing is shorter than the answer.
  void knowShortest() { optimal = true; }
  /// Nothing is shorter than the answer: all orders of all buckets were looked at.
  void knowLeastOfAllSchedules() {
    knowShortest();
    leastSchedule = makespan();
  }

  /// Decodes policies one after the other, as far as the effort allows, and takes what is shorter.
  void decodeAll(llvm::ArrayRef<Policy> policies);
  /// Decodes policies from the roomy reference, if there is one, and prefers it from now on if that is shorter.
  void compareReferences(llvm::ArrayRef<Policy> policies);
  /// Takes a schedule that no policy was decoded to, and whose makespan is without contention, if it is shorter. Tells
  /// the observers of it, and of the steps since `spentBefore`.
  SearchVerdict offer(DecodedSchedule found, int64_t spentBefore);
  /// Tells the observers that the steps since `spentBefore` found nothing shorter.
  void noteFruitless(int64_t spentBefore) const;
  /// Whether the options' further condition refused what was offered last.
  bool wasRefused() const { return isRefused; }
  /// Takes the answer of another search of the same problem under the same limit if it is shorter.
  void adopt(SearchState &&other);
  /// Begins from an answer for a problem with the same nodes, if it is within the limit and shorter.
  void beginFrom(const Schedule &known);
  /// Where a search goes on, observers see another one, which begins with the answer of the first one.
  void tellBegin();
  void tellEnd();

private:
  /// Lets tests call accept() with wrong schedules, which no decode produces.
  friend struct SearchTestAccess;

  /// What a decode gave.
  struct Trial {
    DecodedSchedule decoded;
    /// Whether it is complete.
    bool fits = false;
  };

  size_t numAtOnce(size_t policies) const;
  Trial attempt(Decoder &with, const Policy &policy) const;
  void judge(const Policy &policy, Trial trial);
  Ns play(const DecodedSchedule &decoded);
  bool accept(const DecodedSchedule &decoded);
  bool gatherUnits(DecodedSchedule &decoded);
  void notify(const Policy *policy, const DecodedSchedule *result, Ns makespan, SearchVerdict verdict,
              int64_t spentBefore) const;

  /// One for each thread that decodes.
  std::vector<std::unique_ptr<Decoder>> decoders;
  /// The given order, and a roomy one if there is one; and the one that policies are decoded from.
  std::vector<Reference> references;
  size_t preferred = 0;
  DecodedSchedule incumbent;
  /// The incumbent carried out, not before expanded() for the given order, and its order.
  ExpandedProblem carried;
  Order bestOrder;
  /// Of the policies that were decoded: how many, the best one, and its makespan, ns.
  int64_t numDecoded = 0;
  Policy shortestPolicy;
  Ns shortestDecode = kFailed;
  bool isRefused = false, optimal = false;
  std::optional<Ns> leastOrder, leastSchedule;
  llvm::StringRef phase;
  /// What was spent when the search last ended is `spentBeforeRun`.
  int64_t effort = 0, budget = 0, numSpent = 0, spentBeforeRun = 0;
  Ns aim = 0;
  int32_t numIncumbents = 1;
  std::string firstDefect;
};

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCHSTATE_H
