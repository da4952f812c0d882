//===- Search.h - Iterated local search over policies -----------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Searches the space of policies, with a decoder that turns each policy into a schedule: a portfolio of priority rules
// first, then moves of single nodes (LocalMoves.h), then coordinate descent over single numbers, then in turns such
// moves and iterated local search (H. R. Lourenco, O. C. Martin and T. Stuetzle, "Iterated local search", Handbook of
// Metaheuristics, 2003) from a few points. Small problems are also searched exactly (ExactSearch.h), as are windows of
// an order that no move shortens (WindowSearch.h). Effort is counted in steps, and the random generator has a fixed
// seed, so equal input gives equal output.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H
#define COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H

#include "CommSched/Scheduling/Solver/Scheduler.h"
#include "ContendedMoves.h"
#include "Decoder.h"
#include "LocalMoves.h"
#include "Portfolio.h"

#include <limits>
#include <memory>
#include <optional>

namespace commsched {

/// Searches for short schedules under one memory limit.
class Search {
public:
  /// `given`, a reference of these or equal facts, has to fit `limit`; it is the first incumbent. The search takes from
  /// `options` the collective order that an answer has to keep, the slow-downs that it is timed with, and the
  /// observers. `roomy`, another such reference that leaves more of the limit free, is preferred to it if the first
  /// policies decode to something shorter.
  Search(const ScheduleFacts &facts, const ScheduleOptions &options, Reference given, Bytes limit,
         std::optional<Reference> roomy = std::nullopt);

  /// Searches until `effort` steps are spent, with those of calls before, or until the makespan is at most `bound`, ns.
  void run(int64_t effort, Ns bound);
  /// Takes the answer of another search of the same problem under the same limit, which has run, if it is shorter. The
  /// other one is not to be used afterwards.
  void adopt(Search &&other);
  /// Adopts what a search of the same problem without contention found, if it is shorter with contention, too.
  void adoptUndisturbed(DecodedSchedule plan);

  const DecodedSchedule &best() const { return incumbent; }
  const ExpandedProblem &expanded() const { return carriedOut; }
  const Order &order() const { return bestOrder; }
  /// With the slow-downs.
  Ns makespan() const { return bestMakespan; }
  Bytes peak() const { return incumbent.peak; }
  int64_t steps() const { return spent; }
  int32_t incumbents() const { return numIncumbents; }
  const std::string &defect() const { return firstDefect; }
  /// The least makespan of all orders within the limit without buckets, if all of them were enumerated, ns. Contention
  /// and slow-downs are left out, so it is a bound with them.
  std::optional<Ns> leastOfAllOrders() const { return leastOrder; }

private:
  /// Lets tests call accept() with wrong schedules, which no decode produces.
  friend struct SearchTestAccess;

  /// The makespan of a decode that was cut off.
  static constexpr Ns kFailed = std::numeric_limits<Ns>::max();

  /// A point of the search space, and the makespan that it decodes to.
  struct SearchPoint {
    Policy policy;
    /// Index into `references`.
    int32_t reference = 0;
    /// With the slow-downs, ns; kFailed if the decode was cut off.
    Ns makespan = 0;
    /// Indexed by node: what is added to its key, ns; empty for nothing.
    std::vector<Ns> bias;
  };

  /// What a decode gave.
  struct Trial {
    DecodedSchedule decoded;
    /// Whether it is complete, and shorter than its cutoff.
    bool fits = false;
  };

  bool exhausted() const { return spent >= budget || bestMakespan <= target; }
  bool shouldStop() const;
  void improve(int64_t effort, Ns bound);
  void decodePolicy(const Policy &policy);
  void decodeAhead(llvm::ArrayRef<Policy> policies);
  bool decodePortfolio(int64_t effort);
  void compareReferences();
  void trySamples();
  void trySmallBuckets();
  void setDeadlines();
  void tune();
  bool tryKnob(SearchPoint &point, KnobValue setting);
  Ns decode(SearchPoint &point, Ns cutoff);
  Trial attempt(Decoder &with, const SearchPoint &point, Ns cutoff) const;
  Ns judge(SearchPoint &point, Trial trial, Ns cutoff);
  Ns timeOf(const DecodedSchedule &decoded);
  Ns play(const DecodedSchedule &decoded);
  bool accept(const DecodedSchedule &decoded);
  bool gatherUnits(DecodedSchedule &decoded);
  bool searchExactly(int64_t share);
  void moveNodes(int64_t slice, bool reheats = false);
  bool searchWindows(int64_t share);
  Ns firstSlack() const;
  Ns slackAfter(int64_t done, int64_t all) const;
  void moveContended(int64_t slice);
  SearchVerdict offer(DecodedSchedule found, int64_t spentBefore);
  void notify(const SearchPoint *point, const DecodedSchedule *result, Ns makespan, SearchVerdict verdict,
              int64_t spentBefore) const;
  void carryOutGiven();
  void referToIncumbent();
  void settleReference();
  void sweep(SearchPoint &point);
  void climb();
  void perturb(SearchPoint &point, SplitMix64 &random) const;

  const ScheduleFacts &facts;
  CollectiveOrder mode;
  const SlowDown &slowDown;
  llvm::ArrayRef<SearchObserver *> observers;
  Bytes limit;
  /// Whether the problem has units (Node::unit), whose nodes every answer keeps together.
  bool units;
  const Executor &executor;
  /// ScheduleOptions::admits, and whether it refused what accept() was told last.
  const std::function<bool(const Problem &, llvm::ArrayRef<NodeId>)> &admits;
  bool isRefused = false;
  /// What leastOfAllOrders() returns.
  std::optional<Ns> leastOrder;
  Decoder decoder;
  /// The next policy of the portfolio, by index.
  size_t nextPolicy = 0;
  /// Whether there is no effort beyond the allowance of a first answer.
  bool isFirstAnswer = false;
  /// Whether deadlines and knobs of the best policies of the portfolio were tried.
  bool isTuned = false;
  /// Decoders for further threads, and what they have decoded ahead: the next policies of the portfolio, the last one
  /// first.
  std::vector<std::unique_ptr<Decoder>> moreDecoders;
  std::vector<Trial> ahead;
  /// Decodes of the portfolio that take longer are given up, ns.
  Ns worthwhile = INT64_MAX;
  /// The given order, a roomy one if there is one, and the order of the incumbent without its buckets if it fits the
  /// limit.
  std::vector<Reference> references;
  /// Indices into `references`: the one that policies are decoded from; a roomy one that is yet to be compared, or
  /// kNone; and the incumbent's, or kNone; and whether the latter is yet to be computed.
  int32_t preferred = 0, uncompared = kNone, incumbentReference = kNone;
  bool isReferenceDue = false;
  DecodedSchedule incumbent;
  /// The incumbent's makespan with the slow-downs, ns; DecodedSchedule::makespan is without them.
  Ns bestMakespan = 0;
  /// The incumbent carried out (not before carryOutGiven() for the given order), and its order.
  ExpandedProblem carriedOut;
  Order bestOrder;
  /// All points that were decoded in the first phases.
  std::vector<SearchPoint> points;
  SplitMix64 climbRandom;
  /// The moves of single nodes in the incumbent's order, and the number of incumbents when they last agreed with it.
  std::unique_ptr<LocalMoves> moves;
  std::unique_ptr<ContendedMoves> contendedMoves;
  int32_t incumbentOfMoves = 0;
  /// How often the moves have begun from an incumbent: each time with other random numbers.
  uint64_t movesBegun = 0;
  /// The number of incumbents when no window of the incumbent's order could be improved.
  int32_t incumbentOfWindows = 0;
  /// Whether the moves have lengthened orders: once is enough.
  bool isAnnealed = false;
  SearchPhase phase = SearchPhase::Portfolio;
  int64_t spent = 0, spentBeforeRun = 0, budget = 0;
  Ns target = 0;
  int32_t numIncumbents = 0;
  std::string firstDefect;
};

/// The order of a decode on the problem as it was, with the members of a bucket one after the other.
Order withoutBuckets(const Problem &problem, const DecodedSchedule &decoded);

} // namespace commsched

#endif // COMMSCHED_LIB_SCHEDULING_SOLVER_SEARCH_H
